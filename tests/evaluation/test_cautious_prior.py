"""A prior over classes from validation labels alone: clients are asked nothing, and luck is kept out."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.config import sound
from spreadout.evaluation import cautious_prior, prior
from spreadout.evaluation.cautious_prior import (
    STEEPNESS,
    counted,
    first_places,
    last_as_good,
    log_likelihood,
)


def skewed(informative: float, rows: int = 300, classes: int = 6) -> so.Splits:
    """Each class half as frequent as the one before; a client for each. informative: of the inputs."""
    rng = np.random.default_rng(3)
    chance = 0.5 ** np.arange(classes)
    y = rng.choice(classes, rows, p=chance / chance.sum())
    centre = rng.normal(size=(classes, 8))
    x = (informative * centre[y] + rng.normal(size=(rows, 8))).astype(np.float32)
    third = rows // 3
    train = so.FederatedDataset.from_arrays(x[:third], y[:third], client=y[:third])
    held = [so.Examples.from_arrays(x[at], y[at]) for at in (slice(third, -third), slice(-third, None))]
    return so.Splits("skewed", train, held[1], held[0])


def test_an_example_does_not_vote_for_itself() -> None:
    """Two slow loops: the definition."""
    torch.manual_seed(0)
    scores = torch.rand(4, 3)
    labels = [[0], [0, 2], [1], [0]]
    examples = so.Examples.from_arrays(x=[[0.0]] * 4, y=labels)
    counts = counted(examples, 3)
    assert counts.tolist() == [4, 2, 2]
    right = torch.tensor([[float(c in own) for c in range(3)] for own in labels])
    found = log_likelihood(scores, right, torch.log(counts - right))
    for k, kappa in enumerate(STEEPNESS):
        for i, own in enumerate(labels):
            others = [1 + sum(c in sets for j, sets in enumerate(labels) if j != i) for c in range(3)]
            weight = [n * math.exp(kappa * float(scores[i, c])) for c, n in enumerate(others)]
            expected = sum(math.log(weight[c] / sum(weight)) for c in own) / len(own)
            assert abs(float(found[k, i]) - expected) < 1e-3 * (1 + kappa)


def test_what_chance_cannot_tell_apart_goes_to_the_model() -> None:
    values = torch.zeros(3, 100)
    values[1] = 0.02
    values[2] = torch.randn(100, generator=torch.Generator().manual_seed(0)) * 0.5
    assert last_as_good(values) == 2
    values[2] = -0.5
    assert last_as_good(values) == 1


def test_first_places_are_counted_for_each_weight_and_without_any() -> None:
    torch.manual_seed(1)
    scores, bias = torch.rand(20, 5), 3 * torch.rand(20, 5)
    right = (torch.rand(20, 5) < 0.4).float()
    found = first_places(scores, right, bias)
    for k, tau in enumerate([*(1 / kappa for kappa in STEEPNESS), 0.0]):
        ranked = [max(range(5), key=lambda c: float(scores[i, c] + tau * bias[i, c])) for i in range(20)]
        assert float(found[k]) == sum(float(right[i, c]) for i, c in enumerate(ranked))


def test_what_a_softmax_has_learnt_is_not_counted_twice() -> None:
    """Many classes, few validation examples of each: the likeliest weight cost eight points of P@1."""
    source = {"name": "synthetic", "classes": 300, "features": 400, "examples": 3000}
    scores = {}
    for weight in (0, "validation"):
        asked = so.Experiment.of(
            {
                "data": {"source": source, "validation_fraction": 0.1},
                "method": {"name": "fedss", "prior": weight},
                "rounds": 60,
                "eval": {"metrics": ["P@1"], "keep": "last", "references": False},
            }
        )
        scores[weight] = so.run(asked, device="cpu").metrics["P@1"]
    assert scores["validation"] >= scores[0] - 1.5  # twenty less without the guard; other examples
    assert scores[0] > 30


def ran(data: so.Splits, prior: object, rounds: int = 60) -> so.Result:
    method = {"name": "fedss", "prior": prior, "weighting": "uniform"}  # so that nobody learns p(class)
    asked = {"method": method, "rounds": rounds, "eval": {"every": 10}}
    return so.run(so.Experiment.of(asked), data=data, device="cpu")


def test_it_helps_where_inputs_say_nothing_and_stays_away_where_they_say_all() -> None:
    blind = skewed(0.0)
    without, with_it = ran(blind, 0), ran(blind, "validation")
    trivial = with_it.references["most frequent"].metrics["P@1"]
    assert without.metrics["P@1"] < trivial - 5
    assert with_it.metrics["P@1"] >= trivial
    assert with_it.history[-1]["prior"] > 0.5
    clear = skewed(6.0)
    assert ran(clear, "validation").metrics["P@1"] >= ran(clear, 0).metrics["P@1"] > 90


def test_clients_send_nothing_for_it_and_it_is_what_a_method_that_hides_classes_gets() -> None:
    data = skewed(1.0)
    asked = so.Experiment.of({"method": {"name": "fedss"}, "rounds": 3})
    complete = sound.sound(asked, data)
    assert complete.method.prior == "validation"
    assert "method.prior" in (complete.chosen or [])
    assert complete.method.sends_at_setup is None
    found = so.run(asked, data=data, device="cpu")
    assert found.summary["prior"]["weight"] == found.history[-1]["prior"]
    assert sound.sound(so.Experiment.of({"method": {"name": "fedaws"}}), data).method.prior == "auto"
    blind = so.Splits(data.name, data.train, data.test)  # no validation part: nothing to count
    assert sound.sound(asked, blind).method.prior == 0
    private = {"method": {"name": "fedss"}, "privacy": {"noise": 1.0, "clip": 1.0}}
    assert sound.sound(so.Experiment.of(private), data).method.prior == 0


def test_a_model_that_is_read_back_has_it(tmp_path: Path) -> None:
    asked = {"method": {"name": "fedss", "prior": "validation"}, "rounds": 20}
    found = so.run(so.Experiment.of(asked), data=skewed(0.0), device="cpu", out=tmp_path / "run")
    assert found.history[-1]["prior"] > 0
    again = so.load(tmp_path / "run").prior
    assert again is not None
    assert again.argmax() == 0


def test_one_in_several_examples_is_looked_at_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings of spreadout's modules are errors; PyTorch gives this one once in a process unless asked."""
    monkeypatch.setattr(cautious_prior, "SCORES", 1)  # 50 of a hundred
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        found = ran(skewed(informative=0.0), "validation", rounds=1)
    finally:
        torch.set_warn_always(always)
    assert found.federation.method.prior == "validation"


def test_few_examples_are_not_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `"auto"` does below a hundred validation examples, and from there on."""
    monkeypatch.setattr(cautious_prior, "choose", lambda *_, **__: 0.1)
    monkeypatch.setattr(prior, "choose", lambda *_: 0.2)
    for rows, expected in ((99, 0.1), (100, 0.2)):
        held = so.Examples.from_arrays(x=[[0.0]] * (rows + 5), y=[[0]] * rows + [[]] * 5)
        found = prior.found("auto", None, None, torch.ones(2), held)  # type: ignore[arg-type]
        assert found == expected


def test_a_model_that_diverged_has_no_prior() -> None:
    scores, right = torch.full((3, 4), float("nan")), torch.eye(3, 4)
    assert cautious_prior.weight(scores, right, torch.zeros(3, 4)) == 0.0


def test_it_is_refused_with_privacy_and_where_there_is_nothing_to_count() -> None:
    data = skewed(1.0)
    method = {"name": "fedavg", "prior": "validation"}
    private = {"method": method, "rounds": 1, "privacy": {"clip": 1.0, "noise": 1.0}}
    with pytest.raises(so.UserError, match="exact counts"):
        so.run(so.Experiment.of(private), data=data, device="cpu")
    bare = so.Splits("bare", data.train, data.test)
    with pytest.raises(so.UserError, match="no validation examples to count"):
        so.run(so.Experiment.of({"method": method, "rounds": 1}), data=bare, device="cpu")
