"""Noise on a real server's sum: whole numbers, secret cohorts, noted before it is released."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from deployment import TOY
from memory_grid import MemoryGrid, Node, deployed, served
from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.core.rows import Update, sub_model
from spreadout.core.state import ServerState
from spreadout.core.types import Params
from spreadout.federated import central
from spreadout.federated.cohort import request_rows
from spreadout.federated.federation import Federation
from spreadout.flower import messages
from spreadout.flower.messages import HELLO, TRAIN
from spreadout.privacy import keystream
from spreadout.privacy.central import Rounds
from spreadout.privacy.discrete_gaussian import discrete_gaussian, uniform
from spreadout.privacy.release import Grid, in_units
from spreadout.runs.build import build_federation
from spreadout.runtime.sequential import train_client
from spreadout.use.export import export
from toys import several_classes

CLIP, NOISE = 0.3, 1.5
CLIENTS, COHORT, CLASSES, DIM = 6, 3, 8, 4
PRIVACY = {"model": "central", "clip": CLIP, "noise": NOISE}
QUICK = {**TOY, "deploy": {"timeout": 0.2, "wait": 1}, "eval": {"every": 1, "metrics": ["P@1"]}}
RealKeyStream = keystream.KeyStream


def experiment(*overrides: str) -> Experiment:
    start = {**QUICK, "method": {"name": "fedss", "negatives": 2}, "privacy": PRIVACY}
    told = [f"clients.per_round={COHORT}", "server.optimizer=sgd", "server.lr=1.0", *overrides]
    return Experiment.of(start, overrides=told)


def trusting(folder: Path, e: Experiment, nodes: int = 2) -> MemoryGrid:
    grid = deployed(several_classes(), e, folder / "project", nodes)
    for node in grid.nodes.values():
        node.config["trust-server"] = True
        node.restart()
    return grid


def run(
    folder: Path, e: Experiment, name: str = "run", grid: MemoryGrid | None = None, **more: Any
) -> Any:
    return served(grid or trusting(folder, e), several_classes(), e, folder / name, **more)


def released(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "releases.jsonl").read_text().splitlines()]


def numbers(state: ServerState) -> torch.Tensor:
    """The whole model, with the lengths of rows that nobody sees."""
    rows = state.tables["classes"] * state.central["length/classes"][:, None]  # type: ignore[operator]
    return torch.cat([*(v.flatten() for v in state.dense.values()), rows.flatten()]).double()


def begun(e: Experiment) -> ServerState:
    """The model before the first round."""
    f = build_federation(e, several_classes(), torch.device("cpu"))
    kept = {"length/classes": torch.ones(CLASSES)}
    return ServerState(0, *f.model.initial(e.seed, f.device), central=kept)


@pytest.fixture(autouse=True)
def _quick_accountant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rényi alone; the closest bound takes a second, and `tests/privacy` has it."""
    monkeypatch.setattr("spreadout.privacy.sampled.there", lambda: False)


class Keys:
    """Streams one after another, known beforehand: 1, 2, 3, …"""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> keystream.KeyStream:
        self.made += 1
        return RealKeyStream(self.made.to_bytes(keystream.KEY_BYTES, "big"))


@pytest.fixture
def known_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Keys()
    for module in ("privacy.keystream", "flower.grid"):
        monkeypatch.setattr(f"spreadout.{module}.KeyStream", keys)


# --- the slow twin: one client after another, whole numbers one by one -------------------------------


def slow_twin(e: Experiment, rounds: int) -> tuple[ServerState, list[list[int]]]:
    """What a deployment computes, written down again: Python's own whole numbers, every row a list."""
    f = build_federation(e, several_classes(), torch.device("cpu"))
    state, keys = begun(e), Keys()
    length, cohorts, ahead = torch.ones(CLASSES), [], None
    for round in range(rounds):
        drawn = keys() if ahead is None else ahead
        who = [i for i, word in enumerate(uniform(CLIENTS, CLIENTS, drawn).tolist()) if word < COHORT]
        cohorts.append(who)
        ahead = keys() if round + 1 < rounds else None  # with the round's messages
        grid = Grid.of(e.privacy)  # type: ignore[arg-type]
        sums: dict[str, Any] = {name: [0] * v.numel() for name, v in state.dense.items()}
        table: list[list[int]] = [[0] * DIM for _ in range(CLASSES)]
        for client in who:
            update = one_update(f, state, client)
            parts = Params(update.dense, {n: rows.values for n, rows in update.tables.items()})
            units = iter(in_units(parts, CLIP, grid).tolist())
            for name, value in update.dense.items():
                sums[name] = [total + next(units) for total in sums[name][: value.numel()]]
            for row in update.tables["classes"].ids.tolist():
                table[row] = [total + next(units) for total in table[row]]
        words = keys()
        for name, value in state.dense.items():
            moved = noised(np.array(sums[name]), grid, words).reshape(value.shape)
            state.dense[name] = value + torch.from_numpy(moved).float() / COHORT
        moved = noised(np.array(table).reshape(-1), grid, words).reshape(CLASSES, DIM)
        rows = state.tables["classes"] * length[:, None] + torch.from_numpy(moved).float() / COHORT  # type: ignore[operator]
        length = rows.norm(dim=1)
        state.tables["classes"] = rows / length[:, None]
        state.round += 1
    state.central["length/classes"] = length
    return state, cohorts


def one_update(f: Federation, state: ServerState, client: int) -> Update:
    request = request_rows(f, torch.tensor([client]), state.round).requests
    sent = sub_model(state.round, state.dense, state.tables, {n: rows[0] for n, rows in request.items()})
    return train_client(replace(f, data=f.data.view(client)), sent, {})[0]


def noised(total: NDArray[np.int64], grid: Grid, words: keystream.KeyStream) -> NDArray[np.float64]:
    return (total + discrete_gaussian(len(total), grid.sigma, words)) * grid.unit


def test_a_deployments_model_is_the_slow_twins_with_the_same_noise(
    tmp_path: Path, known_keys: None
) -> None:
    e = experiment("rounds=3")
    ours = run(tmp_path, e).state
    twin, cohorts = slow_twin(e, 3)
    torch.testing.assert_close(numbers(ours), numbers(twin), rtol=1e-5, atol=1e-6)
    assert len({tuple(cohort) for cohort in cohorts}) > 1
    assert ours.traffic.participations == sum(map(len, cohorts))
    assert float(ours.central["owed/classes"]) == 0.0  # nothing is left to a seed


@pytest.mark.parametrize(
    "overrides",
    [
        ["method.name=fedaws", "method.strength=0.1"],
        ["method.name=fedavg", "server.optimizer=adam", "server.lr=0.1"],
        ["method.name=fedmlh", "method.hash_tables=2", "method.buckets=4"],
    ],
    ids=["a step on the server's table", "an optimiser with a memory", "buckets"],
)
def test_methods_and_optimisers_train_under_it(tmp_path: Path, overrides: list[str]) -> None:
    e = Experiment.of(
        {**QUICK, "privacy": PRIVACY}, overrides=["rounds=2", f"clients.per_round={COHORT}", *overrides]
    )
    state = run(tmp_path, e).state
    assert state.refused == {}
    f = build_federation(e, several_classes(), torch.device("cpu"))
    dense, tables = f.model.initial(e.seed, f.device)
    pairs = [(state.dense[n], v) for n, v in dense.items() if n not in f.model.constant_dense]
    pairs += [(state.tables[n], v) for n, v in tables.items() if n not in f.clients.training.fixed]  # type: ignore[misc]
    for ours, before in pairs:  # not one number without noise
        assert bool(ours.isfinite().all())
        assert float((ours != before).double().mean()) > 0.99


# --- what one client can do ---------------------------------------------------------------------------


def hostile(node: Node, factor: float) -> None:
    """A node that sends its updates so many times as long."""

    def change(question: Message, reply: Message) -> list[Message]:
        if question.metadata.message_type == TRAIN and "updates" in reply.content:
            found = []
            for arrays in messages.updates_in(reply.content).values():
                update = messages.update_of(arrays, private=True)
                longer = {name: value * factor for name, value in update.dense.items()}
                found.append(replace(update, dense=longer))
            messages.put_updates(reply.content, found)
        return [reply]

    node.change = change


def silent_in_training(node: Node) -> None:
    """A node that is drawn, says which rows it wants, and is not heard of again."""
    node.change = lambda question, reply: [] if question.metadata.message_type == TRAIN else [reply]


@pytest.mark.parametrize("factor", [1e6, -3e15, math.nan, 1e30])
def test_a_hostile_reply_of_any_length_moves_the_model_by_the_clip_at_most(
    tmp_path: Path, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = experiment("rounds=1", "clients.per_round=all", "clients.selection=full")
    found = []
    for name in ("silent", "hostile"):
        for module in ("privacy.keystream", "flower.grid"):
            monkeypatch.setattr(f"spreadout.{module}.KeyStream", Keys())  # the same noise
        grid = trusting(tmp_path / name, e, CLIENTS)  # a client each
        if name == "hostile":
            hostile(grid.nodes[102], factor)
        else:
            silent_in_training(grid.nodes[102])
        found.append(served(grid, several_classes(), e, tmp_path / name / "run").state)
    without, attacked = found
    moved = float((numbers(attacked) - numbers(without)).norm())
    assert moved <= CLIP / CLIENTS * (1 + 1e-4)
    whole = math.isfinite(factor) and factor < 1e20  # what overflows is refused instead
    assert (moved > 0.9 * CLIP / CLIENTS) == whole
    assert attacked.refused == ({} if whole else {"not finite": 1})


# --- nobody can know who was drawn, nor the noise ------------------------------------------------------


def asked(grid: MemoryGrid) -> list[tuple[int, tuple[int, ...]]]:
    """Who was trained in which round."""
    found = []
    for node in grid.nodes.values():
        for message in node.heard:
            if message.metadata.message_type == TRAIN:
                task = messages.numbers_in(message.content, "task")
                found.append((int(task["round"]), tuple(task["clients"])))  # type: ignore[arg-type]
    return sorted(found)


def test_two_runs_with_one_seed_have_other_cohorts_and_other_noise(tmp_path: Path) -> None:
    e = experiment("rounds=6")
    grids = [trusting(tmp_path / str(i), e) for i in range(2)]
    models = [run(tmp_path, e, f"run{i}", grid).state for i, grid in enumerate(grids)]
    assert asked(grids[0]) != asked(grids[1])  # equal once in 2^36
    different = numbers(models[0]) != numbers(models[1])
    assert float(different.double().mean()) > 0.99


def test_a_round_with_nobody_and_nodes_that_leave_release_noise(tmp_path: Path) -> None:
    """… and count: what is released tells nothing of who was there."""
    e = experiment("rounds=3", "clients.per_round=1")
    grid = trusting(tmp_path, e)
    for node in grid.nodes.values():
        silent_in_training(node)
    result = run(tmp_path, e, grid=grid)
    moved = numbers(result.state) - numbers(begun(e))
    assert bool((moved != 0).all())
    assert float(moved.std()) == pytest.approx(NOISE * CLIP * math.sqrt(3), rel=0.4)
    assert len(released(tmp_path / "run")) == 3
    assert result.summary["privacy"]["releases"] == 3


# --- the ledger -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stepped", [False, True])
def test_a_crash_between_noting_and_publishing_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stepped: bool
) -> None:
    """The round that comes again has noise of its own, though seed and checkpoint are the same."""
    e = experiment("rounds=2")
    grid, step, lost = trusting(tmp_path, e), central.step_, []
    for node in grid.nodes.values():
        silent_in_training(node)  # what moves is noise alone

    def dies(f: Federation, state: ServerState, aggregate: Any) -> None:
        if state.round == 1 and not lost:
            assert len(released(tmp_path / "run")) == 2  # it is noted, and nothing has moved yet
            if stepped:
                step(f, state, aggregate)
            lost.append(numbers(state))
            raise RuntimeError("killed")
        step(f, state, aggregate)

    monkeypatch.setattr(central, "step_", dies)
    with pytest.raises(RuntimeError, match="killed"):
        run(tmp_path, e, grid=grid)
    result = run(tmp_path, e, grid=grid, resume=True)
    same = numbers(result.state) == lost[0]
    assert float(same.double().mean()) < 0.1  # noise is whole numbers: one in many may come again
    assert [line["round"] for line in released(tmp_path / "run")] == [1, 2, 2]
    told = result.summary["privacy"]
    assert told["releases"] == 3
    drawn = central.rounds_of(result.federation)
    assert (drawn.drawn, drawn.cohort, drawn.population) == ("poisson", COHORT, CLIENTS)
    assert told["epsilon"] == pytest.approx(drawn.at_most(NOISE, 3, 1e-6))
    assert released(tmp_path / "run")[-1]["epsilon"] == told["epsilon"]


def test_the_budget_ends_a_deployment_cleanly(tmp_path: Path) -> None:
    drawn = Rounds("poisson", COHORT, CLIENTS)
    budget = drawn.at_most(NOISE, 2, 1e-6) + 0.01
    result = run(tmp_path, experiment("rounds=5", f"privacy.epsilon={budget}", "eval.every=5"))
    told = result.summary["privacy"]
    assert told["budget_is_spent"]
    assert told["epsilon"] <= budget < drawn.at_most(NOISE, 3, 1e-6)
    assert len(released(tmp_path / "run")) == told["releases"] == result.state.round == 2
    assert (tmp_path / "run" / "summary.json").is_file()


def test_a_clip_that_moves_does_so_by_a_noised_count(tmp_path: Path) -> None:
    e = experiment("rounds=2", "privacy.clip_quantile=0.5")
    grid = trusting(tmp_path, e)
    found = [float(run(tmp_path, e, f"run{i}", grid).state.central["clip"]) for i in range(2)]
    assert found[0] != found[1]
    assert all(CLIP / 10 < clip < CLIP * 10 for clip in found)


# --- what is said -----------------------------------------------------------------------------------------


def test_what_a_deployment_says_of_itself(tmp_path: Path) -> None:
    result = run(tmp_path, experiment("rounds=2"))
    told = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert told["setting"] == "deployment"
    assert "simulated" not in json.dumps(told)
    assert result.summary["privacy"]["simulated"] is False
    assert told["guarantee"].startswith("central: ")
    assert "not the server" in told["adversary"]
    assert "operating system" in told["sampler"]
    assert "operating system" in told["cohorts"]["from"]
    messages_up = told["channels"]["messages to the server"]
    assert messages_up["status"] == "disclosed"
    assert "without noise" in messages_up["what"]
    assert told["channels"]["logs"]["status"] == "disclosed"
    assert told["releases"] == {"2": 1}
    assert not (tmp_path / "run" / "deployment" / "releases.jsonl").exists()


def test_what_is_published_with_the_model_does_not_count_who_was_there(tmp_path: Path) -> None:
    run(tmp_path, experiment("rounds=1"))
    export(tmp_path / "run", to="safetensors", out=tmp_path / "model")
    card, about = ((tmp_path / "model" / name).read_text() for name in ("README.md", "model.json"))
    assert "Guarantee: central: " in card
    assert "participations" not in card + about


def test_a_node_gives_nothing_to_a_server_that_it_was_not_told_to_trust(tmp_path: Path) -> None:
    e = experiment("rounds=1")
    grid = deployed(several_classes(), e, tmp_path / "project", 2)
    greeting = RecordDict({"task": ConfigRecord({"run": "a", "round": 0})})
    node = grid.nodes[100]
    reply = node.app(Message(greeting, 100, HELLO), node.context).content
    assert "trust-server=true" in str(messages.numbers_in(reply, "problem")["reason"])
    with pytest.raises(UserError, match="operator trusts the server"):
        run(tmp_path, e, grid=grid)


def test_a_node_with_a_budget_does_not_count_the_servers_noise_as_its_own(tmp_path: Path) -> None:
    e = experiment("rounds=1", "clients.per_round=all", "clients.selection=full")
    grid = trusting(tmp_path, e, 1)
    grid.nodes[100].config |= {"ledger": str(tmp_path / "ledger"), "epsilon": 100.0}
    grid.nodes[100].restart()
    assert run(tmp_path, e, grid=grid).state.refused == {"node failed": CLIENTS}


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("privacy.noise=0", "promises nothing"),
        ("privacy.epsilon=0.01", "one round with privacy.noise"),
        ("clients.selection=weighted", 'take "poisson"'),
    ],
)
def test_what_promises_nothing_is_refused_before_anybody_trains(
    tmp_path: Path, override: str, word: str
) -> None:
    e = experiment(override)
    grid = trusting(tmp_path, e)
    with pytest.raises(UserError, match=word):
        run(tmp_path, e, grid=grid)
    assert asked(grid) == []
