"""What a run takes of the machine it is on, where its config leaves that open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import spreadout as so
from spreadout.config.sound import asks_the_same
from spreadout.core.state import ServerState
from spreadout.federated.federation import Federation
from spreadout.runs.build import build_federation, memory_of, uses_bf16
from spreadout.runtime.simulator.shared_encoder import shared_outputs
from spreadout.runtime.simulator.staging import bytes_per_client

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(("there", "taken"), [(80 << 30, 10 << 30), (4 << 30, 1 << 30)])
def test_a_chunk_may_take_an_eighth_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, there: int, taken: int
) -> None:
    about = SimpleNamespace(total_memory=there)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    pictures, flat = built("convnet").model, built("mlp").model
    assert memory_of(so.Experiment(), pictures, CPU) == 1 << 30
    assert memory_of(so.Experiment(), pictures, GPU) == taken
    assert memory_of(so.Experiment(), flat, GPU) == 1 << 30
    assert memory_of(so.Experiment.of({"run": {"memory_gb": 2.5}}), pictures, GPU) == 5 << 29


@pytest.mark.parametrize(
    ("given", "said"),
    [("0", "above 0"), ("-1", "above 0"), ("much", "a number"), ("nan", "a finite number|above 0")],
)
def test_a_budget_of_nothing_is_refused(given: str, said: str) -> None:
    with pytest.raises(so.UserError, match=rf"run\.memory_gb = .*: must be ({said}) or 'auto'"):
        so.Experiment.of({}, overrides=[f"run.memory_gb={given}"])


def built(encoder: str, **run: Any) -> Federation:
    """Ten clients of a class, with images of 32 x 32."""
    labels = np.repeat(np.arange(10), 4)
    x = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), dtype=np.uint8)
    train = so.FederatedDataset.from_arrays(x, labels)
    splits = so.Splits("pictures", train, so.Examples.from_arrays(x[:2], labels[:2]))
    values = {"model": {"encoder": encoder}, "clients": {"local_steps": 1, "batch": 4}, "run": run}
    return build_federation(so.Experiment.of(values), splits, CPU)


@pytest.mark.parametrize("encoder", ["convnet", "resnet8"])
def test_what_images_take_in_one_call_is_foretold(encoder: str) -> None:
    """What autograd keeps of a cohort fits the estimate, which leaves room for gradients, and is near."""
    f = built(encoder)
    dense, tables = f.model.initial(0, CPU)
    state = ServerState(0, dense, tables)
    foretold = 10 * bytes_per_client(f, state, 1, 4, {"classes": 1}, fuses=True)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    weights = {name: value.requires_grad_() for name, value in dense.items()}
    x = torch.rand(10, 4, 3, 32, 32)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        found = shared_outputs(f, weights, x, torch.ones(10, 4, dtype=torch.bool))
    assert found.outputs["x"].requires_grad
    assert 1.5 * sum(kept.values()) < foretold < 6 * sum(kept.values())


def test_images_are_encoded_in_bf16_on_a_gpu_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, flat = built("convnet").model, built("mlp").model
    plain, private = so.Experiment(), so.Experiment.of({"privacy": {"clip": 1.0, "noise": 1.0}})
    for major, has in ((7, False), (8, True), (9, True)):
        about = SimpleNamespace(major=major)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, about=about: about)
        assert uses_bf16(plain, pictures, GPU) is has
        assert not uses_bf16(plain, pictures, CPU)
        assert not uses_bf16(plain, flat, GPU)
        assert not uses_bf16(private, pictures, GPU)
    for precision in ("bf16", "float32"):
        told = so.Experiment.of({"run": {"precision": precision}})
        assert uses_bf16(told, pictures, GPU) is uses_bf16(told, flat, CPU) is (precision == "bf16")


def test_a_run_from_before_these_could_be_left_open_is_the_same_run() -> None:
    now = so.Experiment.of({"chosen": []})
    before = so.Experiment.of({"chosen": [], "run": {"memory_gb": 1.0, "precision": "float32"}})
    assert asks_the_same(now, before)
    assert not asks_the_same(so.Experiment.of({"chosen": [], "run": {"precision": "bf16"}}), before)
