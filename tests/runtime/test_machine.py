"""What a run takes of the machine it is on, where its config leaves that open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import spreadout as so
from spreadout.core.state import ServerState
from spreadout.federated.federation import Federation
from spreadout.runs.build import build_federation, memory_of
from spreadout.runtime.simulator.shared_encoder import shared_outputs
from spreadout.runtime.simulator.staging import bytes_per_client

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(("there", "taken"), [(80 << 30, 10 << 30), (4 << 30, 1 << 30)])
def test_a_chunk_may_take_an_eighth_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, there: int, taken: int
) -> None:
    about = SimpleNamespace(total_memory=there)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    assert memory_of(so.Experiment(), CPU) == 1 << 30
    assert memory_of(so.Experiment(), GPU) == taken
    assert memory_of(so.Experiment.of({"run": {"memory_gb": 2.5}}), GPU) == 5 << 29


@pytest.mark.parametrize("given", ["0", "-1", "much"])
def test_a_budget_of_nothing_is_refused(given: str) -> None:
    with pytest.raises(so.UserError, match=r"run\.memory_gb"):
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


def test_images_are_encoded_in_bf16_on_a_gpu_alone() -> None:
    assert not built("convnet").bf16
    assert built("convnet", precision="bf16").bf16
