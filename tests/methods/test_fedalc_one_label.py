"""Where every example has one label no two labels meet, and FedALC is FedAwS, up to rounding."""

import torch

import spreadout as so


def test_without_label_sets_fedalc_trains_the_model_of_fedaws() -> None:
    made = {}
    for name in ("fedaws", "fedalc"):
        values = {"rounds": 12, "data": {"source": "digits"}, "method": {"name": name}}
        made[name] = so.run(so.Experiment.of(values), device="cpu", progress=False)
    ours, theirs = made["fedalc"], made["fedaws"]
    assert torch.allclose(ours.class_vectors, theirs.class_vectors, atol=1e-4)
    assert ours.metrics == theirs.metrics
    for name, weight in theirs.state.dense.items():
        assert torch.allclose(ours.state.dense[name], weight, atol=1e-4)
