"""FedAwS whose clients see some rows of other classes: each part against a slow and obvious twin."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import spreadout as so
from spreadout.cli.main import app
from spreadout.core.rows import project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.types import Batch, Params, RowInfo
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round
from spreadout.methods import FedAwS, FedSS
from spreadout.methods.base import Method
from spreadout.models.build import DataShape, ModelConfig, build_model
from spreadout.runs.audit import foreseen, moved_rows
from spreadout.runs.build import build_federation
from spreadout.runs.evidence import channels
from toys import several_classes

EVERYBODY = torch.arange(6)


def config(method: dict[str, object] | None = None, **sections: object) -> so.Experiment:
    base = {
        "rounds": 4,
        "model": {"hidden": [5], "dim": 4},
        "clients": {"batch": 3, "lr": 0.3, "local_steps": 2, "per_round": 4},
        "method": {"name": "fedaws", "negatives": 3, **(method or {})},
        "eval": {"every": 2, "metrics": ["P@1"]},
    }
    return so.Experiment.of({**base, **sections})


def built(experiment: so.Experiment) -> tuple[Federation, ServerState]:
    f = build_federation(experiment, several_classes(), torch.device("cpu"))
    return f, ServerState(0, *f.model.initial(f.seed, f.device))


def one_client() -> tuple[so.EmbeddingModel, Params, Batch, RowInfo]:
    """A client with rows of five of nine classes; the second and third are its own. A row is padding."""
    draw = torch.Generator().manual_seed(0)
    data = so.FederatedDataset.from_arrays(np.zeros((2, 4)), [0, 1], client=[0, 0], classes=9)
    model = build_model(ModelConfig(hidden=[6], dim=4), DataShape.of(data), 0)
    dense, _ = model.initial(0, torch.device("cpu"))
    rows = project_to_sphere(torch.randn(6, 4, generator=draw))
    rows[5] = 0
    batch = {
        "x": torch.randn(4, 4, generator=draw),
        "y": torch.tensor([1, 2, 2, 0]),
        "mask": torch.tensor([1.0, 1, 1, 0]),
    }
    own = torch.tensor([False, True, True, False, False, False])
    info = RowInfo({"classes": torch.arange(6) < 5}, {"classes": own}, {"classes": torch.tensor(9)}, {})
    return model, Params(dense, {"classes": rows}), batch, info


def test_the_loss_is_the_papers_and_a_corrected_softmax_written_out() -> None:
    """max(0, m − s_y)² + ½ · −log p(y), with logits 20 s_c, of drawn rows less log(3 · 1/7)."""
    model, params, batch, info = one_client()
    found = FedAwS(negatives=3).loss(model, params, batch, info)
    other = FedAwS(negatives=3, negative_weight=2.0, negative_scale=4.0, loss_form="square")
    found_too = other.loss(model, params, batch, info)
    s = model.embed(params, batch) @ params.rows["classes"].T
    each, each_too = [], []
    for i, y in enumerate([1, 2, 2]):  # the last of the batch is padding
        taken = [0.0 if c in (1, 2) else math.log(3 * 1 / 7) for c in range(5)]
        logits = [20 * float(s[i, c]) - taken[c] for c in range(5)]
        soft = math.log(sum(math.exp(one) for one in logits)) - logits[y]
        each.append(max(0.0, 0.9 - float(s[i, y])) ** 2 + 0.5 * soft)
        logits = [4 * float(s[i, c]) - taken[c] for c in range(5)]
        soft = math.log(sum(math.exp(one) for one in logits)) - logits[y]
        each_too.append((1 - float(s[i, y])) ** 2 + 2 * soft)
    assert float(found) == pytest.approx(np.mean(each), rel=1e-5)
    assert float(found_too) == pytest.approx(np.mean(each_too), rel=1e-5)


def slopes(method: Method) -> dict[str, torch.Tensor]:
    """How the loss depends on everything a client trains."""
    model, params, batch, info = one_client()
    leaves = {**params.dense, "rows": params.rows["classes"]}
    for leaf in leaves.values():
        leaf.requires_grad_()
    loss = method.loss(model, params, batch, info)
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def test_only_the_encoder_learns_from_rows_of_others() -> None:
    """Rows move as in the paper; the encoder also as FedSS with half its weight would move it."""
    seen, plain, sampled = slopes(FedAwS(negatives=3)), slopes(FedAwS()), slopes(FedSS(negatives=3))
    torch.testing.assert_close(seen.pop("rows"), plain.pop("rows"))
    assert float(sampled.pop("rows").norm()) > 0.1
    for name, slope in seen.items():
        torch.testing.assert_close(slope, plain[name] + 0.5 * sampled[name])
        assert not torch.allclose(slope, plain[name])


def test_without_negatives_it_is_the_paper() -> None:
    plain = FedAwS()
    assert plain.row_access == "own"
    assert plain.names_own_rows
    assert not plain.needs_own
    assert not plain.returns_own_rows
    assert plain.loss_is_of_each_example
    f, _ = built(config({"negatives": 0}))
    own = f.data.rows_of(EVERYBODY)["classes"]
    asked = f.method.request(f.data, EVERYBODY, seed=0, round=0)["classes"]
    assert torch.equal(asked.values, own.values)


def test_requests_are_own_rows_and_fresh_others() -> None:
    f, _ = built(config())
    own = f.data.rows_of(EVERYBODY)["classes"]
    asked = [f.method.request(f.data, EVERYBODY, seed=0, round=r)["classes"] for r in (0, 1)]
    for i in range(6):
        assert len(asked[0][i]) == len(own[i]) + 3
        assert set(own[i].tolist()) <= set(asked[0][i].tolist())
        assert asked[0][i].tolist() == sorted(set(asked[0][i].tolist()))
    assert asked[0].values.tolist() != asked[1].values.tolist()
    alone = f.method.request(f.data.view(4), torch.tensor([0]), seed=0, round=1)["classes"]
    assert torch.equal(alone[0], asked[1][4])  # a client makes its own draw
    assert not f.method.has_secret_draws  # the updates name what they would hide


@pytest.mark.parametrize("executor", ["simulator", "sequential"])
@pytest.mark.parametrize("steps", [1, 3])
def test_rows_of_others_neither_move_nor_travel_back(executor: str, steps: int) -> None:
    clients = {"batch": "full", "lr": 0.3, "local_steps": steps, "per_round": 2}
    e = config({"strength": 1e-12}, clients=clients, run={"executor": executor}, rounds=1)
    f, state = built(e)
    before, cohort = state.tables["classes"].clone(), f.executor.cohort(f, state)
    own = f.data.rows_of(cohort.clients)["classes"].values
    assert len(own) < len(cohort.requests["classes"].values)
    run_round(f, state)
    moved = (state.tables["classes"] - before).norm(dim=1) > 1e-4
    assert set(moved.nonzero()[:, 0].tolist()) == set(own.tolist())
    row = 4 * 4 + 8
    assert state.traffic.rows_up == row * len(own)
    assert state.traffic.rows_down == row * len(cohort.requests["classes"].values)


def test_a_stopped_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    data, e = several_classes(), config(run={"checkpoint_every": 1})
    whole = so.run(e, data=data, out=tmp_path / "whole")
    rounds = iter(range(1, 10))
    with pytest.raises(so.Interrupted):
        so.run(e, data=data, out=tmp_path / "cut", stop=lambda: next(rounds) == 2)
    resumed = so.resume(tmp_path / "cut", data=data)
    torch.testing.assert_close(resumed.state.dense, whole.state.dense, rtol=0, atol=0)
    torch.testing.assert_close(resumed.state.tables, whole.state.tables, rtol=0, atol=0)
    assert resumed.state.traffic == whole.state.traffic
    saved = so.Experiment.load(tmp_path / "cut" / "config.toml")
    assert saved.method == FedAwS(negatives=3)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ({"negatives": -1}, "method.negatives = -1: must be at least 0"),
        ({"negatives": 0, "negative_weight": 0.3}, "negative_weight: is for rows of other classes"),
        ({"negatives": 0, "negative_scale": 5.0}, "negative_scale: is for rows of other classes"),
        ({"negative_weight": 0.0}, "method.negative_weight = 0.0: must be above 0"),
        ({"negatives": 2.5}, "method.negatives = 2.5: must be a whole number"),
    ],
)
def test_settings_that_say_nothing_are_refused(method: dict[str, object], said: str) -> None:
    with pytest.raises(so.UserError, match=said):
        config(method)


def test_more_rows_than_there_are_classes_are_refused() -> None:
    with pytest.raises(so.UserError, match=r"method.negatives = 8: there are only 8 classes"):
        built(config({"negatives": 8}))
    f, state = built(config({"negatives": 7}))  # all others: a client gets what is left
    assert f.executor.cohort(f, state).requests["classes"].lengths.tolist() == [8] * 4
    assert math.isfinite(run_round(f, state).loss)


def test_what_needs_to_know_who_holds_a_row_is_refused() -> None:
    shared = {"model": "distributed", "clip": 0.5, "noise": 0.5}
    with pytest.raises(so.UserError, match=r"send back fewer rows.*set method.negatives = 0"):
        built(config({"prior": 0}, privacy=shared))
    with pytest.raises(so.UserError, match="which classes are its own"):
        built(config({"prior": 0}, privacy={"model": "example", "clip": 0.5, "noise": 0.5}))
    built(config({"prior": 0}, privacy={"clip": 0.5, "noise": 0.5}))


def test_the_server_is_said_to_learn_a_clients_classes(tmp_path: Path) -> None:
    f, _ = built(config())
    assert channels(f)["rows"].status == "disclosed"
    assert "sends back its own alone" in channels(f)["rows"].what
    path = tmp_path / "config.toml"
    path.write_text(
        'rounds = 3\n[data]\nsource = "digits"\n[method]\nname = "fedaws"\nnegatives = 4\n'
        '[clients]\nper_round = "all"\n'
    )
    looks = foreseen(str(path), [], None).looks()
    assert [look.requests for look in looks] == [1, 2, 3]
    for look in looks:  # one update is enough
        assert (look.candidates, look.confidence, look.found, look.exposed) == (1, 1, 1, 1)
    hidden = foreseen(str(path), ["method.name=fedaws-softmax"], None).looks()
    assert hidden[0].candidates == 5
    assert hidden[0].exposed == 0
    moved = moved_rows(str(path), [])
    assert (moved.found, moved.chance) == (1.0, 1.0)
    said = CliRunner().invoke(app, ["audit", str(path)]).output
    assert "An update has the client's own rows alone, 1.0, and so names them" in said
    shown = CliRunner().invoke(app, ["audit", str(path), "--json"]).output
    assert json.loads(shown) == [asdict(look) for look in looks]
