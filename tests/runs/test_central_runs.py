"""Runs with noise on the server: what they write down, where they end, what they refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import spreadout as so
from spreadout.federated.cohort import draw_clients
from spreadout.privacy.accounting import epsilon_of
from spreadout.runs import session
from spreadout.runs.build import build_federation
from spreadout.runs.files import WEIGHTS
from tiny import tiny, tiny_data
from toys import several_classes

PRIVATE = {"model": "central", "clip": 0.3, "noise": 5.0}


def config(**changes: object) -> so.Experiment:
    return tiny(**{"rounds": 4, "privacy": PRIVATE, **changes})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_says_what_it_spent_in_every_round(tmp_path: Path) -> None:
    result = so.run(config(), data=tiny_data(), out=tmp_path / "run")
    spent = [epsilon_of(5.0, rounds, 1e-6, sensitivity=1.0) for rounds in range(5)]
    assert [one["epsilon"] for one in result.history] == pytest.approx(spent)
    assert [one["epsilon"] for one in lines(tmp_path / "run" / "releases.jsonl")] == pytest.approx(
        spent[1:]
    )
    assert [one["loss"] for one in result.history] == [None] + [
        pytest.approx(float("nan"), nan_ok=True)
    ] * 4
    told = result.summary["privacy"]
    assert told["epsilon"] == pytest.approx(spent[4])
    assert (told["guarantee"], told["unit"]) == (
        "simulated: no guarantee",
        "a client, with all of its data",
    )
    assert "replaced by nothing; the number of clients is public" in told["adjacency"]
    evidence = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert {one["delta"]: one["epsilon"] for one in evidence["epsilon"]}[1e-6] == pytest.approx(spent[4])
    assert evidence["channels"]["rows"]["status"] == "protected"
    assert "releases.jsonl" in (tmp_path / "run" / "SHA256SUMS").read_text()


def test_noise_on_clients_is_written_down_in_every_round_too(tmp_path: Path) -> None:
    so.run(config(privacy={"clip": 0.3, "noise": 5.0}), data=tiny_data(), out=tmp_path / "run")
    told = [(one["round"], one["epsilon"]) for one in lines(tmp_path / "run" / "releases.jsonl")]
    assert told == [(rounds, pytest.approx(epsilon_of(5.0, rounds, 1e-6))) for rounds in range(1, 5)]


def test_a_budget_ends_training_before_it_is_exceeded() -> None:
    spent = epsilon_of(5.0, 2, 1e-6, sensitivity=1.0)
    result = so.run(config(privacy={**PRIVATE, "epsilon": spent + 1e-6}), data=tiny_data())
    assert result.summary["rounds"] == 2
    assert result.summary["stopped_early"]
    assert result.summary["privacy"]["budget_is_spent"]
    assert result.history[-1]["round"] == 2


def test_a_release_that_a_crash_has_lost_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = session.run_round

    def dies(federation: Any, state: Any) -> Any:
        done = whole(federation, state)
        if state.round == 3:
            raise RuntimeError("power cut")
        return done

    monkeypatch.setattr(session, "run_round", dies)
    with pytest.raises(RuntimeError, match="power cut"):
        so.run(config(), data=tiny_data(), out=tmp_path / "run")
    assert [one["round"] for one in lines(tmp_path / "run" / "releases.jsonl")] == [1, 2, 3]
    monkeypatch.setattr(session, "run_round", whole)
    result = so.resume(tmp_path / "run", data=tiny_data())
    assert [one["round"] for one in lines(tmp_path / "run" / "releases.jsonl")] == [1, 2, 3, 3, 4]
    assert result.summary["rounds"] == 4
    assert result.summary["privacy"]["releases"] == 5
    assert result.summary["privacy"]["epsilon"] == pytest.approx(
        epsilon_of(5.0, 5, 1e-6, sensitivity=1.0)
    )


@pytest.mark.parametrize("executor", ["simulator", "sequential"])
def test_a_round_that_is_done_again_has_another_cohort(
    executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is accounted for: one cohort with two noises would be one draw with less noise."""
    whole, seen = session.run_round, []

    def dies(federation: Any, state: Any) -> Any:
        done = whole(federation, state)
        seen.append((done.round, done.cohort.clients.tolist()))
        if len(seen) in (3, 6):
            raise RuntimeError("power cut")
        return done

    monkeypatch.setattr(session, "run_round", dies)
    e = config(
        clients={"batch": 3, "lr": 0.3, "local_steps": 2, "per_round": 3},
        eval={"every": 8, "metrics": ["P@1"]},
        run={"checkpoint_every": 8, "executor": executor},
        rounds=8,
    )
    data = several_classes()
    with pytest.raises(RuntimeError, match="power cut"):
        so.run(e, data=data, out=tmp_path / "run")
    with pytest.raises(RuntimeError, match="power cut"):
        so.resume(tmp_path / "run", data=data)
    so.resume(tmp_path / "run", data=data)
    assert [round for round, _ in seen] == [*range(1, 4), *range(1, 4), *range(1, 9)]
    cohorts = [cohort for _, cohort in seen]
    f = so.run(e, data=data).federation
    drawn = [draw_clients(f, release).tolist() for release in range(14)]
    assert cohorts == drawn  # each release by its own draw
    assert drawn[:3] != drawn[3:6]
    assert len(lines(tmp_path / "run" / "releases.jsonl")) == 14


def test_an_interrupted_run_leaves_its_evidence_and_goes_on_to_the_same_end(tmp_path: Path) -> None:
    rounds = iter([False, True])
    with pytest.raises(so.Interrupted):
        so.run(config(), data=tiny_data(), out=tmp_path / "run", stop=lambda: next(rounds, False))
    found = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert found["releases"] == {"2": 1}
    result = so.resume(tmp_path / "run", data=tiny_data())
    whole = so.run(config(), data=tiny_data())
    assert result.summary["privacy"] == whole.summary["privacy"]
    assert result.history[-1]["weights_norm"] == whole.history[-1]["weights_norm"]  # the same noise


def test_rows_that_nobody_read_have_their_noise_wherever_a_run_stops(tmp_path: Path) -> None:
    """Noise is drawn when a row is read; a checkpoint, and a model that is saved, read all of them."""
    method = {"name": "fedss", "negatives": 1}
    lazy = config(method=method, rounds=3, clients={"per_round": 1, "lr": 0.1}, eval={"every": 3})
    f = build_federation(lazy, several_classes(), torch.device("cpu"))
    first = f.model.initial(f.seed, f.device)[1]["classes"]
    rounds = iter([False, True])
    with pytest.raises(so.Interrupted):
        so.run(lazy, data=several_classes(), out=tmp_path / "run", stop=lambda: next(rounds, False))
    (saved,) = (tmp_path / "run" / "checkpoint").glob("*.safetensors")
    kept = load_file(saved)
    assert (kept["central:paid/classes"] == kept["central:owed/classes"]).all()
    assert ((kept["tables:classes"] - first).norm(dim=1) > 0.1).all()
    result = so.resume(tmp_path / "run", data=several_classes())
    model = load_file(tmp_path / "run" / WEIGHTS)["table.classes"]
    assert torch.equal(model, result.state.tables["classes"])
    assert ((model - kept["tables:classes"]).norm(dim=1) > 0.1).all()


def test_what_the_config_leaves_open_is_filled_in() -> None:
    found = so.Experiment.of({"method": {"name": "fedaws"}, "privacy": PRIVATE})
    assert (found.method.merge, found.method.prior) == ("sum", 0.0)  # type: ignore[attr-defined]
    assert found.clients.selection == "poisson"
    assert so.Experiment.of(found.model_dump()) == found


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"method": {"name": "fedaws", "merge": "replace"}}, "one client's own value"),
        ({"method": {"name": "fedavg", "merge": "mean"}}, "depends on who came"),
        ({"method": {"name": "fedss", "negatives": 1, "merge": "weighted-mean"}}, "depends on who came"),
        ({"method": {"name": "flag"}}, "method.merge = 'positives'"),
        ({"method": {"name": "fedaws", "prior": "auto"}}, "label counts"),
        ({"method": {"name": "fedaws", "weighting": "examples"}}, "method.weighting"),
        ({"method": {"name": "fedss", "negatives": 1, "draw": "popular"}}, "their classes"),
        ({"model": {"input_scaling": "standard", "hidden": []}}, "model.input_scaling"),
        ({"clients": {"per_round": 2, "selection": "nonempty"}}, "which clients have examples"),
        ({"clients": {"per_round": 2, "selection": "weighted"}}, "numbers of examples"),
        ({"clients": {"per_round": 2, "selection": "fixed"}}, "the same clients every round"),
        ({"clients": {"max_update_norm": 1.0}}, "clients.max_update_norm"),
        ({"server": {"robust": {"name": "median"}}}, "server.robust"),
        ({"clients": {"drift": {"name": "scaffold"}}}, "clients.drift"),
        ({"privacy": {**PRIVATE, "epsilon": 0.1}}, "one round"),
    ],
)
def test_what_depends_on_who_came_is_refused_by_name(changes: dict[str, object], word: str) -> None:
    values = {"rounds": 1, "privacy": PRIVATE, "chosen": [], **changes}
    with pytest.raises(so.UserError, match=word):
        so.run(values, data=several_classes())


def test_quantiles_are_for_the_server() -> None:
    with pytest.raises(so.UserError, match="clip_quantile"):
        so.Experiment.of({"privacy": {"clip": 1.0, "noise": 1.0, "clip_quantile": 0.5}})
