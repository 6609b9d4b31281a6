"""A prior over classes: counted by the server, τ by validation data, in every score a user sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.evaluation import prior, prior_alone
from spreadout.evaluation.embed import class_vectors, embed, ranked
from spreadout.evaluation.scoring import log_prior
from spreadout.methods import class_counts
from spreadout.runs.build import build_federation


def skewed(seed: int = 0, noise: float = 1.6) -> so.Splits:
    """Six overlapping classes, the first with half of the examples, one client each."""
    draw = np.random.default_rng(seed)
    share = np.array([32, 16, 8, 4, 2, 2]) / 64
    centres = np.eye(6)

    def some(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = draw.choice(6, size=count, p=share)
        return (centres[y] + noise * draw.standard_normal((count, 6))).astype(np.float32), y

    x, y = some(600)
    train = so.FederatedDataset.from_arrays(x, y, client=y)
    test, held = (so.Examples.from_arrays(*some(800)) for _ in range(2))
    return so.Splits("skewed", train, test, held)


def config(**method: object) -> so.Experiment:
    return so.Experiment.of(
        {
            "rounds": 15,
            "model": {"encoder": "mlp", "hidden": [16], "dim": 8},
            "method": {"name": "fedaws", **method},
            "clients": {"lr": 0.1, "row_lr": 0.3, "local_steps": 1, "batch": "full"},
            "server": {"optimizer": "adam", "lr": 0.01},
            "eval": {"every": 15, "keep": "last", "metrics": ["P@1", "mean rank"]},
        }
    )


def test_it_helps_where_classes_differ_in_size_and_is_off_in_one_switch() -> None:
    data = skewed()
    with_it, without = (so.run(config(**m), data=data) for m in ({}, {"prior": 0}))
    assert with_it.metrics["P@1"] > without.metrics["P@1"] + 5
    assert with_it.metrics["mean rank"] < without.metrics["mean rank"]
    assert with_it.history[-1]["prior"] > 0
    assert "prior" not in without.history[-1]
    assert not without.state.scoring
    counts = with_it.summary["bytes"]["once_up"] - without.summary["bytes"]["once_up"]
    assert counts == 6 * (8 + 8)  # of each of six clients a class and how often it has it


def test_scores_are_the_cosine_and_tau_log_n() -> None:
    """`ranked`, by which predict and the confusion matrix go, against the formula written out."""
    data = skewed()
    result = so.run(config(prior=0.2), data=data)
    state, model = result.state, result.federation.model
    counts = torch.bincount(
        torch.as_tensor(data.train.columns["y"].take(torch.arange(600))), minlength=6
    )
    assert torch.equal(state.scoring["counts"].long(), counts)
    every = torch.arange(50)
    cosine = embed(model, state, data.test, every) @ class_vectors(model, state).T
    by_hand = cosine + 0.2 * torch.log(counts / counts.max())
    found = ranked(model, state, data.test, every, 6)
    assert torch.equal(found.ids, by_hand.argsort(dim=1, descending=True))
    assert torch.allclose(found.scores, by_hand.sort(dim=1, descending=True).values, atol=1e-5)


def test_tau_is_the_one_that_ranks_validation_examples_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against trying each τ as the setting of a run that evaluates on the validation part."""
    monkeypatch.setattr(
        prior_alone, "compared", lambda *args, **kwargs: prior_alone.Compared(better=True)
    )
    data = skewed()
    chosen = so.run(config(), data=data).history[-1]["prior"]
    swapped = so.Splits("swapped", data.train, data.validation, None)
    scores = {}
    for tau in prior.TRIED:
        e = config(prior=tau).model_dump(exclude_unset=True)
        e["eval"] = {"every": 15, "metrics": ["P@1", "P@3", "P@5"]}
        found = so.run(so.Experiment.of(e), data=swapped).metrics
        scores[tau] = round(sum(found.values()) / 3, 6)
    best = max(scores.values())
    assert chosen == min(tau for tau, score in scores.items() if score == best)


def test_without_validation_data_tau_is_a_constant() -> None:
    data = skewed()
    alone = so.Splits("alone", data.train, data.test, None)
    assert so.run(config(), data=alone).history[-1]["prior"] == prior.UNKNOWN


def test_it_is_kept_with_the_model_and_survives_an_interruption(tmp_path: Path) -> None:
    data = skewed()
    whole = so.run(config(), data=data, out=tmp_path / "whole")
    x = np.random.default_rng(5).standard_normal((5, 6))
    loaded = so.load(tmp_path / "whole")
    assert torch.equal(loaded.state.scoring["prior"], whole.state.scoring["prior"])
    assert loaded.predict(x, 6) == whole.predictor.predict(x, 6)
    with pytest.raises(so.Interrupted):
        so.run(config(), data=data, out=tmp_path / "cut", stop=lambda: True)
    again = so.resume(tmp_path / "cut", data=data)
    assert torch.equal(again.state.scoring["prior"], whole.state.scoring["prior"])


def test_counts_come_from_clients_and_malformed_ones_are_refused() -> None:
    data = skewed().train
    found = list(class_counts.messages_of(data))
    assert [message["classes"].tolist() for message in found] == [[0], [1], [2], [3], [4], [5]]
    assert [int(message["counts"][0]) for message in found] == data.sizes.tolist()
    state = so.ServerState(0, {}, {"classes": torch.zeros(6, 2)})
    model = so.run(config(), data=skewed()).federation.model
    bad = [
        {"classes": np.array([9]), "counts": np.array([1])},
        {"classes": np.array([0]), "counts": np.array([-5])},
        {"classes": np.array([0]), "counts": np.array([2**40])},
        {"classes": np.array([0, 0]), "counts": np.array([1, 1])},
        {"classes": np.array([0]), "counts": np.array([1.5])},
        {"classes": np.array([0])},
    ]
    class_counts.collect_([*found, *bad], state, model)
    assert state.refused["class counts: malformed"] == len(bad)
    assert state.scoring["counts"].tolist() == data.sizes.tolist()


def test_label_sets_are_counted_by_label() -> None:
    y = [[0, 1], [1], [1, 2]]
    train = so.FederatedDataset.from_arrays(np.zeros((3, 2)), y, client=[0, 0, 1])
    found = [{k: v.tolist() for k, v in m.items()} for m in class_counts.messages_of(train)]
    assert found == [
        {"classes": [0, 1], "counts": [1, 2]},
        {"classes": [1, 2], "counts": [1, 1]},
    ]


def test_under_privacy_it_is_refused_because_counts_have_no_noise() -> None:
    private = {"clip": 1.0, "noise": 1.0}
    e = config(prior=0.1).model_dump(exclude_unset=True)
    loud = so.Experiment.of({**e, "privacy": private})
    with pytest.raises(so.UserError, match="label counts without noise"):
        so.run(loud, data=skewed())
    e = config().model_dump(exclude_unset=True)
    quiet = so.run(so.Experiment.of({**e, "privacy": private}), data=skewed())
    assert quiet.summary["bytes"]["once_up"] == 0
    assert not quiet.state.scoring


def test_log_prior_of_a_class_nobody_has() -> None:
    assert log_prior(torch.tensor([4.0, 0.0])).tolist() == pytest.approx([0, float(np.log(0.5 / 4))])


def test_a_count_says_no_more_than_its_clients_share() -> None:
    """One of six claims 2³⁰ examples of the rarest class: it counts for what most clients have."""
    data = skewed()
    f = build_federation(config(), data, torch.device("cpu"))
    dense, tables = f.model.initial(0, torch.device("cpu"))
    state = so.ServerState(0, dense, tables)
    forged = [dict(message) for message in class_counts.messages_of(data.train)]
    forged[5]["counts"] = forged[5]["counts"] * 0 + 2**30
    class_counts.collect_(forged, state, f.model, most=40)
    assert float(state.scoring["counts"].max()) <= 40
    class_counts.collect_(forged, state, f.model)
    assert float(state.scoring["counts"].max()) == 2**30  # without a cap
