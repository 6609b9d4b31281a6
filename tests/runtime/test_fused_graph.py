"""A replayed fused step is the step itself, read from where the weights are; a CPU has no graphs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.core.state import ServerState
from spreadout.core.types import Tensors
from spreadout.data.splits import Splits
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round
from spreadout.runs.build import build_federation
from spreadout.runtime.simulator import fused_graph
from spreadout.runtime.simulator.executor import Simulator
from spreadout.runtime.simulator.fused_graph import FusedGraph, Step, Work


class Recomputed:
    """A capture in which replaying is to compute again, from the memory a graph would have."""

    made = 0

    def __init__(self, work: Work, dense: Tensors, inputs: Tensors) -> None:
        type(self).made += 1
        self.work, self.dense = work, {name: value.detach() for name, value in dense.items()}
        self.inputs = {name: value.detach().clone() for name, value in inputs.items()}

    def __call__(self, inputs: Tensors) -> Step:
        for name, value in inputs.items():
            self.inputs[name].copy_(value)
        return self.work(self.dense, self.inputs)


def built(method: str, norm: str) -> Federation:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 10)
    x = rng.integers(0, 256, (30, 3, 8, 8)).astype(np.uint8)
    train = so.FederatedDataset.from_arrays(x, y, client=y)
    data = Splits("pictures", train, so.Examples.from_arrays(x, y))
    values = {
        "rounds": 5,
        "model": {"encoder": "resnet8", "norm": norm, "dim": 4},
        "method": {"name": method},
        "clients": {"local_steps": 1, "batch": 4, "lr": 0.5, "image_shift": 1},
        "server": {"lr": 0.1, "momentum": 0.9, "lr_decay": "cosine"},
    }
    return build_federation(so.Experiment.of(values), data, torch.device("cpu"))


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("method", ["fedaws", "baseline-2", "centralized"])
def test_replayed_rounds_are_the_rounds_themselves(
    method: str, norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = []
    for replays in (False, True):
        f = built(method, norm)
        if replays:  # as if a CPU had graphs
            f = replace(f, executor=Simulator(fused=FusedGraph()))
            monkeypatch.setattr(fused_graph, "Captured", Recomputed)
            monkeypatch.setattr(fused_graph, "on_gpu", lambda tensors: True)
        state = ServerState(0, *f.model.initial(f.seed, f.device))
        before = Recomputed.made
        for _ in range(5):
            run_round(f, state)
        assert Recomputed.made - before == int(replays)  # once, and never again
        states.append(state)
    torch.testing.assert_close(states[0].dense, states[1].dense, rtol=0, atol=0)
    torch.testing.assert_close(states[0].tables, states[1].tables, rtol=0, atol=0)


def test_without_a_gpu_nothing_is_replayed() -> None:
    graph = FusedGraph()
    for _ in range(3):
        assert graph.run(_never, {}, {"x": torch.zeros(1)}, "net") is None
    assert not graph.given_up


def test_a_step_that_cannot_be_captured_is_computed_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(fused_graph, "Captured", broken)
    monkeypatch.setattr(fused_graph, "on_gpu", lambda tensors: True)
    graph, inputs = FusedGraph(), {"x": torch.zeros(1)}
    assert graph.run(_never, {}, inputs, "net") is None
    with pytest.warns(UserWarning, match="without a graph of the step: operation not permitted"):
        assert graph.run(_never, {}, inputs, "net") is None
    assert graph.given_up


def _never(dense: Tensors, inputs: Tensors) -> Step:
    raise AssertionError
