"""Data in one place is one training: its optimisers go on from round to round, clients' begin anew."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import spreadout as so
from spreadout.runtime.simulator import graphs
from spreadout.runtime.simulator.executor import Simulator


def settings(
    rounds: int, steps: int, method: str = "centralized", executor: str = "simulator", **clients: object
) -> so.Experiment:
    """Full batches, so that every step sees the same examples however steps are cut into rounds."""
    config = {
        "rounds": rounds,
        "chosen": [],
        "model": {"hidden": [8], "dim": 6},
        "method": {"name": method},
        "clients": {"batch": "full", "local_steps": steps, "lr": 0.01, **clients},
        "server": {"optimizer": "sgd", "lr": 1.0},
        "eval": {"every": rounds, "references": False},
        "run": {"executor": executor, "checkpoint_every": 1},
    }
    return so.Experiment.of(config)


def trained(rounds: int, steps: int, *args: str, **more: object) -> so.Result:
    return so.run(settings(rounds, steps, *args, **more))  # type: ignore[arg-type]


def weights(result: so.Result) -> list[torch.Tensor]:
    return [*result.state.dense.values(), *result.state.tables.values()]  # type: ignore[list-item]


OPTIMIZERS = [{"optimizer": "adam"}, {"optimizer": "sgd", "momentum": 0.9}]


@pytest.mark.parametrize("executor", ["simulator", "sequential"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_six_steps_are_the_same_in_any_rounds(executor: str, optimizer: dict[str, object]) -> None:
    whole = trained(1, 6, executor=executor, **optimizer)
    for rounds in (2, 6):
        cut = trained(rounds, 6 // rounds, executor=executor, **optimizer)
        for one, other in zip(weights(cut), weights(whole), strict=True):
            torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-5)


class Eager:
    """A cache of graphs that replays by doing the steps, on copies of its inputs as a graph has them."""

    ran = 0

    def takes(self, steps: int, trained: int) -> bool:
        return True

    def places(self, active: Sequence[int]) -> tuple[int, ...]:
        return tuple(active)

    def room(self, what: str, needed: int, round_to: int = 1) -> int:
        return needed

    def run(
        self, objective: Any, training: Any, inputs: graphs.Inputs, places: Sequence[int], about: Any
    ) -> Any:
        own = {part: {name: t.clone() for name, t in some.items()} for part, some in inputs.items()}
        done = graphs._update(objective, training, own, places)
        graphs.keep_memory_(inputs, own)
        self.ran += "memory" in inputs
        return done


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_replayed_steps_remember_too(
    optimizer: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = trained(3, 2, **optimizer)
    made, eager = Simulator.from_options, Eager()
    monkeypatch.setattr(Simulator, "from_options", lambda options: replace(made(options), graphs=eager))
    replayed = trained(3, 2, **optimizer)
    assert eager.ran == 3
    for one, other in zip(weights(replayed), weights(plain), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    assert not torch.equal(weights(plain)[0], weights(trained(2, 2, **optimizer))[0])


def test_clients_of_a_federation_begin_every_round_from_rest() -> None:
    one, two = (trained(n, 6 // n, "fedavg", optimizer="adam") for n in (1, 2))
    assert not torch.allclose(weights(one)[0], weights(two)[0], atol=1e-4)
    assert not any(part.startswith("in one place") for part in two.state.slots)


def test_a_resumed_run_remembers_too(tmp_path: Path) -> None:
    whole = trained(4, 2, optimizer="adam")
    rounds = 0

    def stop() -> bool:
        nonlocal rounds
        rounds += 1
        return rounds >= 2

    with pytest.raises(so.Interrupted):
        so.run(settings(4, 2, optimizer="adam"), out=tmp_path / "run", stop=stop)
    again = so.resume(tmp_path / "run")
    for one, other in zip(weights(again), weights(whole), strict=True):
        assert torch.equal(one, other)


def test_only_the_rows_of_a_round_are_remembered_for_it() -> None:
    """Items that no step of a round holds keep what was remembered of them."""
    from spreadout.core.optimizers import Optimizer
    from spreadout.core.state import ServerState
    from spreadout.federated.in_one_place import keep_, remembered

    class Training:
        dense, rows, fixed = (
            Optimizer(optimizer="adam"),
            {"classes": Optimizer(optimizer="adam")},
            frozenset[str](),
        )

    class Federation:
        keeps_optimizers = True

        class clients:  # noqa: N801
            training = Training

    state = ServerState(0, {}, {"classes": torch.ones(4, 2)})
    for held, value in (([0, 2], 1.0), ([2, 3], 5.0)):
        ids = {"classes": torch.tensor(held)}
        memory = remembered(Federation, state, ids)  # type: ignore[arg-type]
        assert memory is not None
        memory["classes"]["first"] += value
        keep_(state, ids, memory)
    assert state.slots["in one place/classes"]["first"][:, 0].tolist() == [1, 0, 6, 5]
    memory["classes"]["first"] += float("nan")
    keep_(state, ids, memory)
    assert "in one place/classes" not in state.slots  # the next round begins anew
