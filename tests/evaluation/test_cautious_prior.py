"""A prior over classes from validation labels alone: clients are asked nothing, and luck is kept out."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import spreadout as so
from benchmarks.defaults.next_items import tastes
from spreadout.config import sound
from spreadout.evaluation import cautious_prior, prior
from spreadout.evaluation.cautious_prior import (
    STEEPNESS,
    counted,
    first_places,
    last_as_good,
    log_likelihood,
)
from spreadout.evaluation.own_vote import own_votes, without_own_votes
from spreadout.evaluation.standings import rank_of_right
from spreadout.objectives.neighbours import Nearest
from toys import shop, staples


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


def test_equals_are_ahead_of_a_label() -> None:
    right = torch.eye(7).repeat(3, 1)[:20]
    alike = first_places(torch.ones(20, 7), right, 3 * right)
    assert float(alike[-1]) == 0  # a collapsed model ranks nothing: any prior is as good
    assert float(alike[0]) == 20


def test_where_order_says_little_what_is_popular_helps_to_name_the_next_item(tmp_path: Path) -> None:
    events = [event for event in tastes(np.random.default_rng(2)) if event[0] < 200]
    lines = ["user,item,time", *(f"{user},{item},{time}" for user, item, time in events)]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    scores = {}
    for overrides in ((), ("method.prior=0",)):
        values = {
            "data": {"source": "interactions", "path": str(tmp_path / "log.csv")},
            "method": {"name": "dual_encoder"},
            "rounds": 20,
            "eval": {"references": False, "keep": "last"},
        }
        result = so.run(so.Experiment.of(values, overrides=overrides), device="cpu")
        scores[overrides] = result.metrics["R@10"]
        assert (result.history[-1].get("prior") is None) == bool(overrides)
    assert scores[()] > scores["method.prior=0",] + 3


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


@pytest.mark.parametrize("own", [{}, {"loss_form": "batch_softmax"}, {"centralized": True}])
def test_users_of_histories_are_asked_for_nothing_either(own: dict[str, object]) -> None:
    """Whichever items they request; and with privacy there is none, as elsewhere."""
    data, method = staples(), {"name": "dual_encoder", **own}

    def chosen(splits: so.Splits, **sections: object) -> object:
        return sound.sound(so.Experiment.of({"method": method, **sections}), splits).method.prior

    assert chosen(data) == "validation"
    assert chosen(so.Splits(data.name, data.train, data.test)) == 0
    assert chosen(data, privacy={"noise": 1.0, "clip": 1.0}) == 0


def test_a_model_of_histories_is_weighed_only_where_it_is_not_surely_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No likelihood before that: its softmax has learnt what is frequent."""
    monkeypatch.setattr(cautious_prior, "choose", lambda *args, **kwargs: 1 / 0)
    asked: dict[str, object] = {"method": {"name": "dual_encoder"}, "rounds": 30}
    ring, even = shop(users=60), staples()
    knows = so.run(asked, data=replace(ring, validation=ring.test), device="cpu", progress=False)
    assert knows.history[-1]["prior"] == 0
    assert knows.metrics["R@1"] > knows.references["popularity"].metrics["R@1"] + 20
    found = so.run(asked, data=even, device="cpu", progress=False)
    assert found.history[-1]["prior"] > 0
    assert found.metrics["R@10"] >= found.references["popularity"].metrics["R@10"]


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


def scored_by_others(scores: torch.Tensor, labels: list[list[int]], tau: float) -> torch.Tensor:
    """The definition: each example's scores by the counts of all others. A slow loop."""
    found = scores.clone()
    for i in range(len(scores)):
        for c in range(scores.shape[1]):
            others = sum(c in sets for j, sets in enumerate(labels) if j != i)
            found[i, c] += tau * math.log(1 + others)
    return found


@pytest.mark.parametrize("tau", [0.5, 3.0])
def test_a_ranking_and_a_rank_are_those_by_the_labels_of_others(tau: float) -> None:
    rng = np.random.default_rng(4)
    labels = [sorted(rng.choice(7, rng.integers(1, 4), replace=False).tolist()) for _ in range(40)]
    examples = so.Examples.from_arrays(x=np.zeros((40, 1)), y=labels)
    scores = torch.from_numpy(rng.normal(size=(40, 7)) * 0.3)
    counts = counted(examples, 7).double()
    votes = own_votes(counts, tau)
    expected = scored_by_others(scores, labels, tau)
    by_all = scores + tau * torch.log(counts)
    assert not torch.equal(by_all.argsort(1), expected.argsort(1))  # it matters
    for k in (1, 3):
        wide = min(k + 3, 7)
        best = Nearest(*by_all.topk(wide, 1))
        found = without_own_votes(best, examples.labels, votes, k)
        assert torch.equal(found.ids, expected.topk(k, 1).indices)
        assert torch.allclose(found.scores, expected.topk(k, 1).values)
    eye = torch.eye(7)  # so that embeddings are the scores
    ranks = rank_of_right(by_all.float(), eye, examples.labels, votes=votes)
    for i, own in enumerate(labels):
        right = max(float(expected[i, c]) for c in own)
        assert float(ranks[i]) == 1 + int((expected[i] > right + 1e-5).sum())


def test_a_validation_score_has_no_vote_of_its_own_and_a_test_score_all_of_them() -> None:
    """Inputs that say nothing, and classes that all occur once or twice: only one's own label knows it."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 20
    train = so.FederatedDataset.from_arrays(x[:40], y[:40])
    held = so.Examples.from_arrays(x[40:], y[40:])
    data = so.Splits("noise", train, held, held)  # the same rows: the difference is the vote
    config: dict[str, object] = {"chosen": [], "rounds": 2, "data": {"validation_fraction": 0.1}}
    config["method"] = {"name": "fedss", "negatives": 5, "prior": "validation"}

    def score(split: str, monkeypatch: pytest.MonkeyPatch) -> float:
        monkeypatch.setattr(cautious_prior, "choose", lambda *args, **kwargs: 5.0)  # a heavy prior
        asked = so.Experiment.of({**config, "eval": {"split": split, "metrics": ["mean rank"]}})
        return so.run(asked, data=data, device="cpu").metrics["mean rank"]

    with pytest.MonkeyPatch.context() as patch:
        # Each class once: by all labels every class counts two, by the others one's own counts one.
        assert score("validation", patch) == 20.0
        assert score("test", patch) < 15


def test_the_score_that_keeps_a_model_has_no_vote_of_its_own() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 20
    train = so.FederatedDataset.from_arrays(x[:40], y[:40])
    held = so.Examples.from_arrays(x[40:], y[40:])
    asked = so.Experiment.of(
        {
            "chosen": [],
            "rounds": 2,
            "method": {"name": "fedss", "negatives": 5, "prior": "validation"},
            "eval": {"keep": "best", "metrics": ["P@1"], "every": 1},
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cautious_prior, "choose", lambda *args, **kwargs: 50.0)
        result = so.run(asked, data=so.Splits("noise", train, held, held), device="cpu")
    assert [record["validation P@1"] for record in result.history] == [0.0] * 3
    assert any(record["P@1"] > 0 for record in result.history)
