"""Every finding in a real run, by its sign; what it advises is followed, and makes a better model."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import spreadout as so
from faulty import PLAIN, blobs, corners, doubled, loud, mislabelled, ran, rare, skewed, wide
from spreadout.report.terminal import print_summary
from spreadout.runs import diagnosis
from toys import shop, staples, tagged

PAGE = Path(__file__).parents[2] / "docs" / "references.md"
Settings = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A run with a fault, how it is told, and the same with what is advised."""

    name: str
    sign: str
    remedy: str
    data: Callable[[], so.Splits]
    bad: Settings
    good: tuple[Settings, ...]  # each thing that the remedy names
    gain: float  # points that each brings at least


def adam(rate: float) -> Settings:
    return {"optimizer": "adam", "lr": rate, "eps": 1e-8}


def falling(rate: float) -> Settings:
    return {
        "rounds": 40,
        "eval": {"every": 4},
        "model": {"hidden": [32]},
        "method": {"name": "fedaws"},
        "clients": {**ONE, "lr_decay": "cosine"},
        "server": {**adam(rate), "lr_decay": "cosine"},
    }


CHOSEN: Settings = {"chosen": None, "rounds": "auto", "eval": {}}  # by the data, as by default
WHOLE: Settings = {"local_steps": 1, "batch": "full", "lr": 0.3}
ONE: Settings = {"local_steps": 1, "lr": 0.1}
SPREAD: Settings = {"name": "fedaws", "loss_form": "square"}
SMALL: Settings = {"encoder": "lookup", "width": 8, "hidden": [8], "dim": 6, "init": 0.5}
TAGS: Settings = {"rounds": 40, "eval": {"every": 4}, "model": SMALL}
ITEMS: Settings = {"encoder": "mean", "dim": 6, "init": 0.5}
SAMPLED: Settings = {
    "name": "dual_encoder",
    "loss_form": "sampled_softmax",
    "scale": 10.0,
    "negatives": 6,
}
HEART: Settings = {
    "eval": {"every": 1},
    "model": {"hidden": [64]},
    "method": {"name": "centralized"},
    "clients": {"lr": 0.3, "batch": "full", "local_steps": 8},
}


def many() -> so.Splits:
    return blobs(classes=30, each=4, noise=0.6)


def far_out() -> so.Splits:
    """Log-normal features: a few values are a thousand times the median."""
    splits = blobs(classes=6, noise=0.3)
    columns = dict(splits.train.columns)
    x = columns["x"]
    assert isinstance(x, so.Dense)
    columns["x"] = so.Dense(torch.exp(3 * x.values), index=x.index)
    held = splits.test.inputs["x"]
    assert isinstance(held, so.Dense)
    inputs = {"x": so.Dense(torch.exp(3 * held.values), index=held.index)}
    return replace(
        splits,
        train=replace(splits.train, columns=columns),
        test=replace(splits.test, inputs=inputs),
    )


def words() -> so.Splits:
    return tagged(n=300)


def ring() -> so.Splits:
    return shop(users=40)


CASES = {
    "a loss that rises": Case(
        "divergence",
        "the training loss rose",
        "lower clients.lr and clients.row_lr tenfold",
        lambda: blobs(clients=5, shift=1.5),
        {"model": {"hidden": []}, "clients": {"lr": 3.0}},
        ({"model": {"hidden": []}, "clients": {"lr": 0.3}},),
        50,
    ),
    "weights that grow": Case(
        "divergence",
        "the norm of the encoder's weights grew",
        "lower clients.lr and clients.row_lr tenfold, or the server's rate",
        many,
        {"clients": {"lr": 10.0}},
        ({"clients": {"lr": 1.0}}, {"clients": {"lr": 10.0}, "server": {"lr": 0.1}}),
        20,
    ),
    "a score that swings": Case(
        "divergence",
        "P@1 swings",
        "lower clients.lr and clients.row_lr tenfold",
        lambda: blobs(clients=5, shift=2.5),
        {"model": {"hidden": []}, "clients": {"lr": 1.0}},
        ({"model": {"hidden": []}, "clients": {"lr": 0.1}},),
        30,
    ),
    "a loss that does not fall": Case(
        "divergence",
        "while weights grew",
        "lower clients.lr and clients.row_lr tenfold",
        many,
        {"clients": {"lr": 3.0}},
        ({"clients": {"lr": 0.3}},),
        50,
    ),
    "divergence where the server takes the scale away": Case(
        "divergence",
        "P@1 swings",
        "lower server.lr, with the server.optimizer it has, and clients.row_lr tenfold",
        lambda: blobs(clients=5, shift=2.5),
        {"model": {"hidden": [16]}, "clients": ONE, "server": adam(0.1)},
        ({"model": {"hidden": [16]}, "clients": ONE, "server": adam(0.01)},),
        50,
    ),
    "positives alone": Case(
        "collapse",
        "classes are collapsing",
        'try method.name = "fedaws"',
        many,
        {"rounds": 12, "clients": {"lr": 1.0}, "method": {**SPREAD, "name": "baseline-1"}},
        ({"rounds": 12, "clients": {"lr": 1.0}, "method": SPREAD},),
        0.1,
    ),
    "too weak a push": Case(
        "collapse",
        "classes are collapsing",
        "raise method.strength",
        words,
        {**TAGS, "clients": WHOLE, "method": {"name": "fedalc", "strength": 1e-6}},
        ({**TAGS, "clients": WHOLE, "method": {"name": "fedalc", "strength": 1.0}},),
        10,
    ),
    "a margin that is too small": Case(
        "collapse",
        "classes are collapsing",
        "raise method.spreadout_margin",
        words,
        {**TAGS, "clients": WHOLE, "method": {"name": "fedaws", "spreadout_margin": 0.1}},
        ({**TAGS, "clients": WHOLE, "method": {"name": "fedaws"}},),
        10,
    ),
    "clients that pull further than the server pushes": Case(
        "collapse",
        "classes are collapsing",
        "lower clients.row_lr tenfold, or raise method.spreadout_steps",
        words,
        {**TAGS, "clients": {"local_steps": 4, "batch": 8, "lr": 3.0}, "method": {"name": "fedaws"}},
        (
            {**TAGS, "clients": {"local_steps": 4, "batch": 8, "lr": 3.0, "row_lr": 0.3}, "method": {"name": "fedaws"}},
            {**TAGS, "clients": {"local_steps": 4, "batch": 8, "lr": 3.0}, "method": {"name": "fedaws", "spreadout_steps": 5}},
        ),
        10,
    ),
    "nearly all pairs pushed apart": Case(
        "collapse",
        "classes are driven into few directions",
        "set method.k = 7",
        many,
        {"rounds": 12, "clients": {"lr": 1.0}, "method": {**SPREAD, "spreadout_form": "topk", "k": 28}},
        ({"rounds": 12, "clients": {"lr": 1.0}, "method": {**SPREAD, "spreadout_form": "topk", "k": 7}},),
        30,
    ),
    "a plain step that drives nearly all pairs apart": Case(
        "collapse",
        "classes are driven into few directions",
        'set method.spreadout_step = "safe" and method.k = 7',
        many,
        {"rounds": 12, "clients": {"lr": 1.0}, "method": {**SPREAD, "spreadout_step": "plain", "spreadout_form": "topk", "k": 28, "strength": 0.01}},
        ({"rounds": 12, "clients": {"lr": 1.0}, "method": {**SPREAD, "spreadout_step": "safe", "spreadout_form": "topk", "k": 7, "strength": 0.01}},),
        5,
    ),
    "all pairs pushed without end": Case(
        "collapse",
        "classes are driven into few directions",
        'set method.spreadout_form = "hinge"',
        many,
        {"rounds": 12, "clients": {"lr": 1.0}, "method": {**SPREAD, "spreadout_form": "far"}},
        ({"rounds": 12, "clients": {"lr": 1.0}, "method": SPREAD},),
        30,
    ),
    "a softmax thrown together": Case(
        "collapse",
        "classes are collapsing",
        "lower clients.lr and clients.row_lr tenfold",
        lambda: blobs(clients=5, shift=1.5),
        {"model": {"hidden": []}, "clients": {"lr": 1.0}},
        ({"model": {"hidden": []}, "clients": {"lr": 0.1}},),
        30,
    ),
    "classes in few buckets": Case(
        "collapse",
        "classes are collapsing",
        "raise method.buckets, or method.hash_tables",
        many,
        {"rounds": 12, "clients": {"lr": 1.0}, "method": {**SPREAD, "name": "baseline-2", "hash_tables": 1, "buckets": 2}},
        (
            {"rounds": 12, "clients": {"lr": 1.0}, "method": {**SPREAD, "name": "baseline-2", "hash_tables": 1, "buckets": 10}},
            {"rounds": 12, "clients": {"lr": 1.0}, "method": {**SPREAD, "name": "baseline-2", "hash_tables": 8, "buckets": 2}},
        ),
        10,
    ),
    "labels pulled together before the first round": Case(
        "collapse",
        "classes are collapsing",
        "raise method.push, or lower method.pull",
        words,
        {**TAGS, "clients": WHOLE, "method": {"name": "fedalc-fixed", "push": 0.01, "pull": 100.0}},
        (
            {**TAGS, "clients": WHOLE, "method": {"name": "fedalc-fixed", "push": 100.0, "pull": 100.0}},
            {**TAGS, "clients": WHOLE, "method": {"name": "fedalc-fixed", "push": 0.01, "pull": 0.01}},
        ),
        5,
    ),
    "items without negatives": Case(
        "collapse",
        "classes are collapsing",
        'set method.loss_form = "sampled_softmax", or raise method.server_spreadout',
        ring,
        {"rounds": 40, "model": ITEMS, "eval": {"every": 4, "metrics": ["R@1"]}, "clients": {"lr": 5.0, "batch": 8}, "method": {"name": "dual_encoder", "loss_form": "hinge"}},
        (
            {"rounds": 40, "model": ITEMS, "eval": {"every": 4, "metrics": ["R@1"]}, "clients": {"lr": 5.0, "batch": 8}, "method": SAMPLED},
            {"rounds": 40, "model": ITEMS, "eval": {"every": 4, "metrics": ["R@1"]}, "clients": {"lr": 5.0, "batch": 8}, "method": {"name": "dual_encoder", "loss_form": "hinge", "server_spreadout": 1.0}},
        ),
        10,
    ),
    "a rate that kills units": Case(
        "dead units",
        "of the ReLU units of layer 2 are 0 for all inputs",
        "lower clients.lr tenfold",
        lambda: blobs(clients=5, shift=2.5),
        {"model": {"hidden": [16]}, "clients": {"lr": 0.3}},
        ({"model": {"hidden": [16]}, "clients": {"lr": 0.03}},),
        10,
    ),
    "a rate of the server that kills units": Case(
        "dead units",
        "of the ReLU units of layer 2 are 0 for all inputs",
        "lower server.lr, with the server.optimizer it has, tenfold",
        lambda: blobs(clients=5, shift=2.0),
        {"rounds": 30, "eval": {"every": 3}, "model": {"hidden": [8]}, "clients": ONE, "server": adam(0.06)},
        ({"rounds": 30, "eval": {"every": 3}, "model": {"hidden": [8]}, "clients": ONE, "server": adam(0.006)},),
        10,
    ),
    "an encoder that has hardly been trained": Case(
        "embeddings alike",
        "all embeddings are about the same",
        "set rounds = 160",
        words,
        {**TAGS, "clients": {"local_steps": 1, "batch": "full", "lr": 0.01}},
        ({**TAGS, "rounds": 160, "eval": {"every": 16}, "clients": {"local_steps": 1, "batch": "full", "lr": 0.01}},),
        5,
    ),
    "everything thrown to one side": Case(
        "embeddings alike",
        "all embeddings are about the same",
        "lower server.lr, with the server.optimizer it has, and clients.row_lr tenfold",
        words,
        {**TAGS, "model": {"hidden": [16], "dim": 16}, "clients": {**ONE, "batch": 8, "row_lr": 100.0}, "server": adam(0.03), "method": {"name": "fedaws"}},
        ({**TAGS, "model": {"hidden": [16], "dim": 16}, "clients": {**ONE, "batch": 8, "row_lr": 10.0}, "server": adam(0.003), "method": {"name": "fedaws"}},),
        5,
    ),
    "a score that still rises": Case(
        "unfinished",
        "was still rising",
        "set rounds = 40, or raise the rates",
        lambda: blobs(noise=0.6),
        {"clients": {"lr": 0.02}, "method": {"name": "fedaws"}},
        (
            {"rounds": 40, "clients": {"lr": 0.02}, "method": {"name": "fedaws"}},
            {"clients": {"lr": 0.5}, "method": {"name": "fedaws"}},
        ),
        5,
    ),
    "few evaluations, each better": Case(
        "unfinished",
        "up to the last of 3 evaluations",
        "set rounds = 48, or raise the rates",
        lambda: blobs(noise=0.6),
        {"rounds": 6, "eval": {"every": 3}, "clients": {"lr": 0.02}, "method": {"name": "fedaws"}},
        (
            {"rounds": 48, "eval": {"every": 3}, "clients": {"lr": 0.02}, "method": {"name": "fedaws"}},
            {"rounds": 6, "eval": {"every": 3}, "clients": {"lr": 0.2}, "method": {"name": "fedaws"}},
        ),
        20,
    ),
    "patience that ends too soon": Case(
        "unfinished",
        "was still rising",
        "raise eval.patience",
        lambda: blobs(noise=0.6, validation=2),
        {"rounds": 40, "eval": {"every": 2, "keep": "best", "patience": 1}, "clients": {"lr": 0.02}, "method": {"name": "fedaws"}},
        ({"rounds": 40, "eval": {"every": 2, "keep": "best", "patience": 10}, "clients": {"lr": 0.02}, "method": {"name": "fedaws"}},),
        5,
    ),
    "what is learned by heart": Case(
        "overfitting",
        "while the training loss fell",
        'eval.keep = "best" with validation data; or train with clients.input_dropout',
        lambda: mislabelled(validation=40),
        HEART,
        (
            {**HEART, "eval": {"every": 1, "keep": "best"}},
            {**HEART, "clients": {**HEART["clients"], "input_dropout": 0.4}},
        ),
        2,
    ),
    "incomes and counts": Case(
        "long tails",
        "in one place has",
        'set model.input_scaling = "roots"',
        far_out,
        {"model": {"input_scaling": "standard"}},
        ({"model": {"input_scaling": "roots"}},),
        10,
    ),
    "rates that lead to a bad end": Case(
        "far below a reference",
        "nearest neighbours in one place has",
        "try server.lr, with the server.optimizer it has, ten times larger and ten times smaller, then more rounds",
        lambda: blobs(classes=30, each=6, noise=0.8),
        falling(0.001),
        (falling(0.01), {**falling(0.001), "rounds": 160, "eval": {"every": 16}}),
        5,
    ),
    "rare classes that clients compare with nothing": Case(
        "one answer",
        "all examples are taken for class 0, and they are of several classes; P@1 is 90.00, ridge in one place has",
        'try method.name = "fedss"',
        lambda: rare(0.8, validation=60),
        {**CHOSEN, "method": {"name": "fedaws"}},
        ({**CHOSEN, "method": {"name": "fedss"}},),
        2,
    ),
    "a prior that outweighs the model": Case(
        "one answer",
        "all examples are taken for class 0",
        "set method.prior = 0",
        lambda: rare(0.8, validation=60),
        {**CHOSEN, "method": {"name": "fedavg", "prior": 1.0}},
        ({**CHOSEN, "method": {"name": "fedavg", "prior": 0}},),
        2,
    ),
    "inputs that say little to clients of one class": Case(
        "inputs unused",
        "on validation examples the model is no better than always the most frequent labels",
        'try method.name = "fedss"',
        lambda: rare(0.6, validation=30),
        {**CHOSEN, "method": {"name": "fedaws"}},
        ({**CHOSEN, "method": {"name": "fedss"}},),
        2,
    ),
    "no prior": Case(
        "below a trivial reference",
        "always the most frequent labels have 70",
        diagnosis.WITH_PRIOR,
        skewed,
        {"rounds": 10, "clients": {"lr": 0.5, "local_steps": 1}, "method": {"name": "fedss", "negatives": 2, "weighting": "uniform"}},
        ({"rounds": 10, "clients": {"lr": 0.5, "local_steps": 1}, "method": {"name": "fedss", "negatives": 2, "weighting": "uniform", "prior": "auto"}},),
        10,
    ),
    "rates of another size": Case(
        "below a trivial reference",
        "always the most popular items have",
        "try server.lr, with the server.optimizer it has, ten times larger and ten times smaller, then more rounds",
        ring,
        {"eval": {"every": 2, "metrics": ["R@1"]}, "model": ITEMS, "clients": {**ONE, "batch": 32}, "server": adam(0.001), "method": SAMPLED},
        (
            {"eval": {"every": 2, "metrics": ["R@1"]}, "model": ITEMS, "clients": {**ONE, "batch": 32}, "server": adam(0.01), "method": SAMPLED},
            {"rounds": 80, "eval": {"every": 8, "metrics": ["R@1"]}, "model": ITEMS, "clients": {**ONE, "batch": 32}, "server": adam(0.001), "method": SAMPLED},
        ),
        3,
    ),
    "an order that says nothing": Case(
        "below a trivial reference",
        "always the most popular items have",
        'where order says little, set method.prior = "auto"',
        staples,
        {"rounds": 60, "eval": {"every": 6, "metrics": ["R@5"]}, "model": ITEMS, "clients": {**ONE, "batch": 32}, "server": adam(0.03), "method": SAMPLED},
        ({"rounds": 60, "eval": {"every": 6, "metrics": ["R@5"]}, "model": ITEMS, "clients": {**ONE, "batch": 32}, "server": adam(0.03), "method": {**SAMPLED, "prior": "auto"}},),
        5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_advised_helps(case: Case) -> None:
    data = case.data()
    bad, found = ran(data, **case.bad)
    told = [one for one in found if one.name != "rows in both parts"]  # toys of few words have some
    assert told[0].name == case.name
    assert case.sign in told[0].sign
    assert case.remedy in told[0].remedy
    for better in case.good:
        good, after = ran(data, **better)
        assert good > bad + case.gain
        assert told[0].name not in [one.name for one in after]  # the sign is gone
        if case.name in ("far below a reference", "one answer"):
            assert after == []


def crowd() -> so.Splits:
    """400 classes of three examples each, mostly noise."""
    return blobs(classes=400, each=3, dim=100, noise=1.5, held=3)


def as_printed(remedy: str) -> list[str]:
    """What a line says to set, as `--set` takes it."""
    return [f"{key}={value}" for key, value in re.findall(r"([a-z]+\.[a-z_]+) = (\S*[^\s:,;])", remedy)]


AS_THEY_ARE = ["model.input_scaling", "model.hidden", "server.optimizer", "server.lr"]


@pytest.mark.parametrize(
    ("data", "method", "name", "advice", "gain"),
    [
        (loud, "fedaws", "far below a reference", AS_THEY_ARE, 20),
        (loud, "fedss", "far below a reference", AS_THEY_ARE, 20),
        (wide, "fedaws", "far below a reference", AS_THEY_ARE[1:], 10),
        (wide, "fedss", "far below a reference", AS_THEY_ARE[1:], 10),
        (crowd, "fedss", "far below a reference", AS_THEY_ARE[1:], 5),
        (lambda: rare(0.8, validation=60), "fedaws", "one answer", ["method.name"], 4),
    ],
    ids=[
        "a large scale",
        "the same, fedss",
        "wide",
        "wide, fedss",
        "many classes, fedss",
        "rare classes",
    ],
)
def test_defaults_and_then_what_their_line_says(
    data: Callable[[], so.Splits], method: str, name: str, advice: list[str], gain: float
) -> None:
    given = data()

    def ended(*overrides: str) -> so.Result:
        config = so.Experiment.of({"method": {"name": method}}, overrides=overrides)
        return so.run(config, data=given, device="cpu")

    def far(result: so.Result) -> float:
        known = result.references.values()
        best = max(one.metrics["P@1"] for one in known if not one.is_trivial)
        return best - result.metrics["P@1"]

    bad = ended()
    (found,) = bad.summary["findings"]
    assert found["name"] == name
    said = as_printed(found["remedy"])
    assert [one.partition("=")[0] for one in said] == advice
    good = ended(*said)
    assert good.metrics["P@1"] > bad.metrics["P@1"] + gain
    assert far(good) < 0.75 * far(bad)
    assert good.summary["findings"] == [] or data is crowd  # which fedss does not learn so well


@pytest.mark.parametrize(("method", "name"), [("fedaws", "far below"), ("fedss", "inputs unused")])
def test_plain_steps_find_thirty_columns_that_tell_among_three_thousand(method: str, name: str) -> None:
    data = wide(108, 3000, telling=30, scales=0.0, validation=12, seed=2)
    config: Settings = {"method": {"name": method}}
    bad = so.run(so.Experiment.of(config), data=data, device="cpu")
    (found,) = bad.summary["findings"]
    assert found["name"].startswith(name)
    said = as_printed(found["remedy"])
    assert 'server.optimizer="sgd"' in said
    good = so.run(so.Experiment.of(config, overrides=said), data=data, device="cpu")
    assert good.metrics["P@1"] > bad.metrics["P@1"] + 25
    assert name not in [one["name"] for one in good.summary["findings"]]


def test_who_does_as_lines_say_again_and_again_comes_from_flag_to_a_linear_fedaws() -> None:
    """Over Adam's steps in a network of two layers, which learn what is noise in three examples."""
    overrides, scores = ["method.name=flag"], list[float]()
    for _ in range(3):
        result = so.run(so.Experiment.of({}, overrides=overrides), data=crowd(), device="cpu")
        scores.append(result.metrics["P@1"])
        overrides += [each for one in result.summary["findings"] for each in as_printed(one["remedy"])]
    assert overrides == [
        "method.name=flag",
        'method.name="fedaws"',
        "model.hidden=[]",
        'server.optimizer="sgd"',
        "server.lr=10",
    ]
    assert scores[1] > scores[0] + 20
    assert scores[2] > scores[1] + 10


def test_where_nothing_is_known_to_help_the_same_network_in_one_place_is_no_better() -> None:
    data = corners()

    def ended(*overrides: str) -> so.Result:
        config = so.Experiment.of({"method": {"name": "fedaws"}}, overrides=overrides)
        return so.run(config, data=data, device="cpu")

    run = ended()
    (found,) = run.summary["findings"]
    assert found["name"] == "far below a reference"
    assert "nearest neighbours is the better model here" in found["remedy"]
    central = ended(*as_printed(found["remedy"]))
    assert central.summary["method"] == "centralized"
    assert central.metrics["P@1"] < run.references["nearest neighbours"].metrics["P@1"] - 20


@pytest.mark.parametrize(
    "name", ["an encoder that has hardly been trained", "everything thrown to one side"]
)
def test_who_follows_advice_on_embeddings_again_and_again_comes_to_an_end(name: str) -> None:
    """Rates only fall and rounds only grow, so that no settings are met twice."""
    case = CASES[name]
    data, settings = case.data(), case.bad
    for _ in range(5):
        score, found = ran(data, **settings)
        told = [one for one in found if one.name == "embeddings alike"]
        if not told:
            break
        rounds = re.fullmatch(r"set rounds = (\d+)", told[0].remedy)
        if rounds:
            settings = {**settings, "rounds": int(rounds[1])}
        else:
            assert told[0].remedy.startswith("lower ")
            rates = {part: dict(settings.get(part, {})) for part in ("clients", "server")}
            for part in rates.values():
                part.update({key: part[key] / 10 for key in ("lr", "row_lr") if key in part})
            settings = {**settings, **rates}
    assert not told
    assert score > ran(data, **case.bad)[0] + case.gain


def test_every_finding_of_the_page_is_here() -> None:
    """Others have tests of their own: below, in test_mirrored.py and in test_prior_alone.py."""
    table = PAGE.read_text().partition("| finding | sign | remedy |")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE))
    elsewhere = {"overshoot", "rows in both parts", "mirrored classes", "inputs unused"}
    assert named == {case.name for case in CASES.values()} | elsewhere


def test_a_plain_step_that_overshoots_is_not_to_be_made_larger() -> None:
    class Heard(so.Observer):
        said: list[str] = []  # noqa: RUF012

        def warned(self, text: str) -> None:
            self.said.append(text)

    data = blobs(classes=60, each=4, dim=20)
    pushed = {"name": "fedaws", "spreadout_step": "plain", "strength": 1.0}
    config: dict[str, Any] = {**PLAIN, "rounds": 20, "clients": {"lr": 0.3}, "eval": {"every": 2}}
    watch = Heard()
    result = so.run(so.Experiment.of({**config, "method": pushed}), data=data, observer=watch)
    (first, *_) = result.summary["findings"]
    assert first["name"] == "overshoot"
    assert result.history[-1]["spreadout_rises"] > 0.3
    # Its classes are drawn together, and the advice is not to push harder.
    assert result.history[-1]["collapsing"]
    assert not any("raise method.strength" in text for text in [first["remedy"], *watch.said])
    assert any("overshoot" in text for text in watch.said)
    good, found = ran(data, **config, method={**pushed, "spreadout_step": "safe"})
    assert good > result.metrics["P@1"] + 5
    assert found == []
    lower, _ = ran(data, **config, method={**pushed, "strength": 0.01})
    assert lower > result.metrics["P@1"] + 5


def test_a_loss_that_wavers_near_zero_does_not_hide_a_collapse() -> None:
    """Positives alone are easily right: the loss of collapsed classes is tiny, and rises by chance."""
    data = blobs(classes=40, dim=2, noise=0.05)

    def pushed(strength: float) -> so.Result:
        method = {"name": "fedaws", "strength": strength}
        clients = {"input_dropout": 0.2}
        config = so.Experiment.of({"rounds": 300, "method": method, "clients": clients})
        return so.run(config, data=data, device="cpu")

    bad = pushed(1e-4)
    (first, *_) = bad.summary["findings"]
    assert (first["name"], first["remedy"]) == ("collapse", "raise method.strength")
    assert pushed(0.01).metrics["P@1"] > bad.metrics["P@1"] + 50


def test_inputs_far_from_zero_kill_units_and_centred_ones_do_not() -> None:
    config: dict[str, Any] = {"model": {"hidden": [16]}, "clients": {"lr": 0.1}}
    bad, (first, *_) = ran(blobs(clients=5, shift=10.0), **config)
    assert first.name == "dead units"
    assert "subtract the mean of the features" in first.remedy
    good, found = ran(blobs(clients=5), **config)  # the same centres and noise without the shift
    assert good > bad + 50
    assert found == []


def test_the_round_that_is_named_is_a_good_end() -> None:
    data = mislabelled()
    judged = {"every": 1, "split": "validation", "keep": "last"}
    looked_at: Settings = {**HEART, "eval": judged, "data": {"validation_fraction": 0.2}}
    _, (first, *_) = ran(replace(data, validation=data.test), **looked_at)
    assert first.name == "overfitting"
    end = int(first.remedy.split("rounds = ")[1].split(",")[0])
    assert end <= 13
    other = mislabelled(validation=40)  # other examples than those that the round was read off
    bad, _ = ran(other, **HEART)
    good, _ = ran(other, **HEART, rounds=end)
    assert good > bad + 5


def test_no_round_is_named_that_was_read_off_the_test_part() -> None:
    _, (first, *_) = ran(mislabelled(), **HEART)
    assert first.name == "overfitting"
    assert "rounds" not in first.remedy


def test_rows_that_were_trained_on_flatter_a_score_and_left_out_they_do_not() -> None:
    """Nothing can be learned here: what is above one in four is known by heart."""
    flattered, (first, *_) = ran(doubled(leave_out=False), **HEART)
    assert first.name == "rows in both parts"
    assert "leave each row in one part only" in first.remedy
    honest, found = ran(doubled(leave_out=True), **HEART)
    assert flattered > honest + 10
    assert "rows in both parts" not in [one.name for one in found]


def test_a_run_cut_far_below_what_is_chosen_says_so_and_the_chosen_rounds_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spreadout.config.choices.SHORTEST", 100)
    data = blobs(classes=40, dim=4, noise=0.2)

    def ended(*overrides: str) -> so.Result:
        return so.run(so.Experiment.of({}, overrides=overrides), data=data, device="cpu")

    short = ended("rounds=1")
    (found,) = short.summary["findings"]
    assert found["name"] == "unfinished"
    best = short.references["nearest neighbours"].metrics["P@1"]
    assert best > short.metrics["P@1"]
    assert found["sign"] == (
        "1 round, where 100 would be chosen for this data, and nearest neighbours in one place has "
        f"{best:.2f}"
    )
    assert found["remedy"] == 'set rounds = "auto", or 100'
    longer = ended("rounds=auto", "eval.every=50")
    assert longer.metrics["P@1"] > short.metrics["P@1"] + 5
    assert longer.summary["findings"] == []
    # A config with local work of its own has a number of rounds of its own.
    assert ended("rounds=1", "clients.local_steps=2").summary["findings"] != [found]


def test_a_sound_run_has_no_findings() -> None:
    score, found = ran(blobs(noise=0.6), method={"name": "fedaws"}, clients={"lr": 0.5})
    assert score > 90
    assert found == []


def test_below_the_most_frequent_labels_is_said_in_the_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = so.Experiment.of(
        {
            **PLAIN,
            "rounds": 10,
            "eval": {"every": 2},
            "method": {"name": "fedavg"},
            "clients": {"lr": 10.0},
        }
    )
    result = so.run(config, data=blobs(clients=5), out=tmp_path / "run")
    print_summary(result.summary, tmp_path / "run", as_json=False)
    last = capsys.readouterr().out.splitlines()[-1]
    trivial = result.references["most frequent"].metrics["P@1"]
    assert result.metrics["P@1"] < trivial == 10
    assert last.startswith("finding")
    assert f"P@1 is {result.metrics['P@1']:.2f}, always the most frequent labels have 10.00" in last
    assert "lower clients.lr" in last  # what the fault before it needs
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written["findings"] == result.summary["findings"]
