"""A run over Flower is the run that was simulated: every method, real messages, nodes of many clients."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

import spreadout as so
from deployment import AS_SIMULATED, TOY, assert_same
from memory_grid import deployed, served
from spreadout.config.experiment import Experiment
from spreadout.config.sound import sound
from spreadout.data.columns import Lists
from spreadout.data.splits import Splits
from spreadout.runs.result import Result
from toys import several_classes, shop, staples, tagged

ARMS = {
    "fedaws": ["method.name=fedaws", "method.strength=0.1"],
    "fedaws, some clients": ["method.name=fedaws", "clients.per_round=3"],
    "baseline-1": ["method.name=baseline-1"],
    "baseline-2, fixed rows": ["method.name=baseline-2", "clients.per_round=4"],
    "flag": ["method.name=flag"],
    "fedavg": ["method.name=fedavg", "method.scale=5"],
    "fedss": ["method.name=fedss", "method.negatives=2", "method.scale=5"],
    "fedss, as many rows": ["method.name=fedss", "method.sampled_rows=5", "clients.per_round=2"],
    "fedss, negatives alone": ["method.name=fedss", "method.negatives=2", "method.loss_form=negatives"],
    "fedss by popularity": ["method.name=fedss", "method.negatives=2", "method.draw=popular"],
    "fedaws-softmax": ["method.name=fedaws-softmax", "method.scale=5"],
    "fedaws-softmax with rows": ["method.name=fedaws-softmax", "method.negatives=2", "method.scale=5", "clients.per_round=3"],
    "fedaws sees rows": ["method.name=fedaws", "method.negatives=2", "clients.per_round=3"],
    "fedaws sees rows, a row's positives": ["method.name=fedaws", "method.negatives=2", "method.merge=positives"],
    "fedaws sees rows, clipped": ["method.negatives=2", "privacy.clip=0.1", "privacy.noise=0", "method.prior=0"],
    "fedmlh": ["method.name=fedmlh", "method.buckets=4", "method.hash_tables=2"],
    "fedavg-bce": ["method.name=fedavg-bce"],
    "margins by frequency": ["method.name=fedaws", "method.margin=0.5", "method.margin_by_frequency=0.4"],
    "adjusted logits": ["method.name=fedavg", "method.scale=5", "method.logit_adjustment=1"],
    "adjusted logits of a sample": ["method.name=fedss", "method.negatives=2", "method.draw=popular", "method.logit_adjustment=1"],
    "spreadout weighted by frequency": ["method.name=fedaws", "method.weighted=true"],
    "both forms of spreadout, rows warmed up": ["method.spreadout_form=both", "method.k=2", "clients.row_warmup=2"],
    "fixed rows of buckets": ["method.name=baseline-2", "method.hash_tables=2", "method.buckets=4", "method.prior=0", "seed=3"],
    "drawn by size": ["clients.per_round=3", "clients.selection=by_size", "method.weighting=examples"],
    "rates that fall": ["clients.lr_decay=cosine"],
    "inputs corrupted": ["clients.input_noise=0.3", "clients.input_dropout=0.2"],
    "inputs scaled": ["model.input_scaling=standard", "clients.input_dropout=0.2", "method.prior=0"],
    "inputs scaled, fedmlh": ["method.name=fedmlh", "method.buckets=4", "model.input_scaling=standard"],
    "inputs scaled, hostile": ["model.input_scaling=standard", "server.robust=norm_clipping"],
    "clipped": ["privacy.clip=0.1", "privacy.noise=0", "method.name=fedaws", "method.prior=0"],
    "adam on clients and server": ["clients.optimizer=adam", "clients.lr=0.05", "server.optimizer=adam"],
    "norm limit": ["clients.max_update_norm=1.6"],
    "fedprox": ["clients.drift=fedprox", "clients.drift.mu=0.5"],
    "scaffold, some clients": ["clients.drift=scaffold", "clients.per_round=4"],
    "scaffold, fedavg": ["method.name=fedavg", "method.scale=5", "clients.drift=scaffold", "clients.lr=0.1"],
    "norms clipped": ["method.name=fedavg", "method.scale=5", "server.robust=norm_clipping"],
    "norms clipped, one owner a row": ["server.robust=norm_clipping", "clients.per_round=4"],
    "median": ["method.name=fedss", "method.negatives=2", "method.scale=5", "server.robust=median"],
    "trimmed mean": ["method.name=flag", "server.robust=trimmed_mean"],
    "spectral": ["method.name=fedavg", "method.scale=5", "server.robust=spectral", "server.robust.trim=0.4"],
    "geometric median": ["method.name=fedavg", "method.scale=5", "server.robust=geometric_median"],
    "centred clipping": ["server.robust=centred_clipping", "server.robust.momentum=0.8", "clients.per_round=4"],
    "feddyn, some clients": ["clients.drift=feddyn", "clients.drift.alpha=0.5", "clients.per_round=4"],
}  # fmt: skip


def both(data: Splits, experiment: Experiment, folder: Path, nodes: int) -> tuple[Result, Result]:
    grid = deployed(data, experiment, folder / "project", nodes)
    over_grid = served(grid, data, experiment, folder / "run")
    return so.run(experiment, data=data, device="cpu"), over_grid


@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS.keys())
def test_two_nodes_of_three_clients_train_the_simulated_model(arm: list[str], tmp_path: Path) -> None:
    assert_same(*both(several_classes(), Experiment.of(TOY, overrides=arm), tmp_path, nodes=2))


@pytest.mark.parametrize("arm", [[], ["server.robust=norm_clipping"]], ids=["trusted", "hostile"])
@pytest.mark.parametrize("method", ["fedaws", "fedmlh"])
def test_nodes_and_server_take_the_same_roots_of_long_tails(
    method: str, arm: list[str], tmp_path: Path
) -> None:
    data = several_classes()
    x = data.train.columns["x"].take(torch.arange(data.train.examples))
    tailed = {**data.train.columns, "x": so.Dense(torch.exp(2 * x))}
    data = replace(data, train=replace(data.train, columns=tailed))
    asked = [f"method.name={method}", "model.input_scaling=roots", *arm]
    if method == "fedmlh":
        asked.append("method.buckets=4")
    simulated, over_grid = both(data, Experiment.of(TOY, overrides=asked), tmp_path, nodes=2)
    assert_same(simulated, over_grid)
    assert over_grid.state.dense["0.power"].min() < 1


def test_class_features_are_known_to_the_server_alone(tmp_path: Path) -> None:
    data, features = several_classes(), tmp_path / "features.npy"
    np.save(features, np.random.default_rng(0).random((data.train.classes, 4)))
    arm = ["method.name=fedaws", f"method.class_features={features}", "method.borrow=100"]
    simulated, over_grid = both(data, Experiment.of(TOY, overrides=arm), tmp_path, nodes=2)
    assert_same(simulated, over_grid)
    assert simulated.state.method_tensors()["tower"].norm() > 0


@pytest.mark.parametrize(
    "arm",
    [
        "fedaws",
        "fedaws sees rows",
        "fedss",
        "baseline-2, fixed rows",
        "flag",
        "scaffold, some clients",
        "scaffold, fedavg",
    ],
)
def test_with_a_client_a_node_the_ledger_is_the_simulated_one_too(arm: str, tmp_path: Path) -> None:
    experiment = Experiment.of(TOY, overrides=ARMS[arm])
    simulated, over_grid = both(several_classes(), experiment, tmp_path, nodes=6)
    assert_same(simulated, over_grid)
    assert over_grid.state.traffic == simulated.state.traffic


@pytest.mark.parametrize(
    "asked",
    ["eval.split=validation", "eval.keep=best", "eval.decode=knn", "method.prior=validation"],
)
def test_validation_examples_are_the_servers_alone(asked: str, tmp_path: Path) -> None:
    """Nodes hold nothing out, and do not mind what the server does with what it has."""
    data = several_classes()
    held, share = replace(data, validation=data.test), ["data.validation_fraction=0.2"]
    changes = [asked, *(share if "split" in asked else [])]  # this one asks for it in a complete config
    simulated, over_grid = both(held, Experiment.of(TOY, overrides=changes), tmp_path, nodes=2)
    assert_same(simulated, over_grid)
    assert over_grid.metrics == pytest.approx(simulated.metrics)


@pytest.mark.parametrize(
    "arm", ["fedaws", "fedaws sees rows", "fedss", "fedavg", "flag", "baseline-2, fixed rows"]
)
def test_clients_without_examples_send_no_update_wherever_they_are(
    arm: str, toy: Splits, tmp_path: Path
) -> None:
    """Client 4 of six holds nothing: it is sent the model, requests rows, and says that it has none."""
    chosen = [*ARMS[arm], "clients.per_round=all", "clients.selection=uniform"]
    experiment = Experiment.of(TOY, overrides=chosen)
    simulated, over_grid = both(toy, experiment, tmp_path, nodes=6)
    alone = Experiment.of(TOY, overrides=[*chosen, "run.executor=sequential"])
    one_by_one = so.run(alone, data=toy, device="cpu")
    assert simulated.state.refused == over_grid.state.refused == {"no examples": experiment.rounds}
    assert simulated.state.traffic == over_grid.state.traffic == one_by_one.state.traffic
    ledger, model = simulated.state.traffic, simulated.state.dense
    dense = sum(value.nbytes for value in model.values())
    assert ledger.dense_down == 6 * experiment.rounds * dense
    assert ledger.dense_up == 5 * experiment.rounds * dense


def test_a_node_is_sent_once_what_its_clients_share(tmp_path: Path) -> None:
    experiment = Experiment.of(TOY, overrides=["method.name=fedavg"])
    simulated, over_grid = both(several_classes(), experiment, tmp_path, nodes=2)
    # Three clients a node: a third of the encoder and of the one table they all hold.
    assert 3 * over_grid.state.traffic.dense_down == simulated.state.traffic.dense_down
    assert 3 * over_grid.state.traffic.rows_down == simulated.state.traffic.rows_down
    assert over_grid.state.traffic.up == simulated.state.traffic.up


@pytest.mark.parametrize("name", ["fedalc", "fedalc-fixed"])
def test_label_sets_are_collected_with_a_key_the_server_does_not_have(name: str, tmp_path: Path) -> None:
    data = tagged()
    values = {**TOY, "model": {"hidden": [8], "dim": 5}, "method": {"name": name}}
    experiment = Experiment.of(values)
    assert_same(*both(data, experiment, tmp_path, nodes=3))


def test_noise_on_a_collection_is_each_clients_own(tmp_path: Path) -> None:
    method = {"name": "fedalc", "dummies": 3, "anonymity": 1}
    experiment = Experiment.of({**TOY, "model": {"hidden": [8], "dim": 5}, "method": method})
    assert_same(*both(tagged(), experiment, tmp_path, nodes=3))


@pytest.mark.parametrize(
    "method",
    [
        {"loss_form": "batch_softmax"},
        {"loss_form": "sampled_softmax", "negatives": 3},
        {"loss_form": "global_softmax"},
        {"loss_form": "hinge", "row_spreadout": 0.01, "server_spreadout": 0.01},
    ],
    ids=lambda method: str(method["loss_form"]),
)
@pytest.mark.parametrize("encoder", ["mean", "attention"])
def test_two_towers_train_the_simulated_model(
    method: dict[str, object], encoder: str, tmp_path: Path
) -> None:
    data = shop()
    history = data.train.columns["history"]
    assert isinstance(history, Lists)
    columns = {**data.train.columns, "history": replace(history, width=history.longest)}
    data = replace(data, train=replace(data.train, columns=columns))
    experiment = Experiment.of(
        {
            "rounds": 3,
            "chosen": [],
            "model": {"encoder": encoder, "dim": 6, "init": 0.5},
            "method": {"name": "dual_encoder", **method},
            "clients": {"batch": 4, "lr": 0.5, "per_round": 5},
            "server": AS_SIMULATED,
            "eval": {"metrics": ["R@1"], "every": 3},
        }
    )
    assert_same(*both(data, experiment, tmp_path, nodes=2))


def test_next_items_are_ranked_by_the_servers_validation_items_as_by_default(tmp_path: Path) -> None:
    """Nodes are asked for no counts: what is popular is told by the users that the server holds."""
    data = staples()
    plain = {**AS_SIMULATED, "optimizer": "sgd", "lr": 1.0}  # Adam makes much of how sums are rounded
    asked = sound(
        Experiment.of({"rounds": 10, "method": {"name": "dual_encoder"}, "server": plain}), data
    )
    assert asked.method.prior == "validation"
    simulated, over_grid = both(data, asked, tmp_path, nodes=2)
    assert_same(simulated, over_grid)
    assert simulated.history[-1]["prior"] > 0
    assert [one["prior"] for one in over_grid.history] == [one["prior"] for one in simulated.history]
    assert over_grid.metrics == pytest.approx(simulated.metrics)


@pytest.mark.parametrize("asks", ["own", "seen"])
def test_a_lookups_feature_rows_travel_like_class_rows(tmp_path: Path, asks: str) -> None:
    model = {"encoder": "lookup", "hidden": [6], "dim": 5, "width": 4}
    clients = {"batch": 3, "lr": 0.3, "local_steps": 3, "request_features": asks}
    made = {**TOY, "model": model, "clients": clients, "method": {"name": "fedalc"}}
    experiment = Experiment.of(made)
    assert_same(*both(tagged(), experiment, tmp_path, nodes=3))


def test_the_run_folder_is_that_of_the_contract(tmp_path: Path) -> None:
    experiment = Experiment.of({**TOY, "run": {"log_requests": True}})
    _, over_grid = both(several_classes(), experiment, tmp_path, nodes=2)
    out = tmp_path / "run"
    assert over_grid.folder == out
    for name in (
        "config.toml",
        "metrics.jsonl",
        "summary.json",
        "checkpoint",
        "model",
        "requests.jsonl",
    ):
        assert (out / name).exists()
    assert Experiment.load(out / "config.toml") == experiment
    x = np.zeros((1, 6), dtype=np.float32)
    from spreadout.runs.predict import Predictor

    assert len(Predictor.load(out).predict(x, 3)[0]) == 3  # it can be used like any other


def test_the_server_keeps_the_model_that_its_validation_examples_like_best(tmp_path: Path) -> None:
    data = several_classes()
    experiment = Experiment.of({**TOY, "eval": {"keep": "best", "every": 1}})
    simulated, over_grid = both(replace(data, validation=data.test), experiment, tmp_path, nodes=2)
    assert over_grid.summary["kept_round"] == simulated.summary["kept_round"]
    assert_same(simulated, over_grid)


def test_what_a_deployment_cannot_do_is_said_before_it_begins(tmp_path: Path) -> None:
    for overrides, word in (
        (["method.name=centralized"], "pools the data"),
        (["eval.metrics=['PSP@1']"], "PSP@1 needs how often"),
        (["model.encoder=resnet8", "model.norm=batch"], 'norm = "batch": real clients would have to'),
    ):
        experiment = Experiment.of(TOY, overrides=overrides)
        with pytest.raises(so.UserError, match=word):
            both(several_classes(), experiment, tmp_path, nodes=2)


def test_rows_of_open_tables_leave_the_others_bound() -> None:
    from spreadout.flower.access import NOT_ALLOWED, AccessControl

    access = AccessControl("own", {"classes": 9, "inputs": 9}, open_tables=frozenset({"inputs"}))

    def asks(classes: list[int], inputs: list[int]) -> str | None:
        return access.denial(0, {"classes": torch.tensor(classes), "inputs": torch.tensor(inputs)})

    assert asks([1], [1, 2]) is None
    assert asks([1], [5, 8]) is None  # another round's features
    assert asks([2], [1, 2]) == NOT_ALLOWED
    assert asks([1], [9]) == NOT_ALLOWED  # there is no such row


def test_the_first_rows_that_an_update_names_are_a_clients_own() -> None:
    from spreadout.flower.access import NOT_ALLOWED, AccessControl

    access = AccessControl("sample", {"classes": 9, "inputs": 9}, open_tables=frozenset({"inputs"}))

    def names(classes: list[int], inputs: list[int]) -> str | None:
        return access.not_its_own(0, {"classes": torch.tensor(classes), "inputs": torch.tensor(inputs)})

    assert access.denial(0, {"classes": torch.tensor([1, 4, 7])}) is None
    assert names([1, 4], [2]) is None
    assert access.denial(0, {"classes": torch.tensor([0, 1, 4])}) is None  # others, in another round
    assert names([4], [3]) is None
    assert names([0, 1, 4], [2]) == NOT_ALLOWED
    assert access.own == {0: {"classes": [1, 4]}}
