"""All references that fit some data, scored with a run's own metrics on its own examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from spreadout.data.columns import Dense, Lists, Sparse
from spreadout.data.held_out import Examples
from spreadout.data.in_words import counted
from spreadout.data.moments import are_numbers
from spreadout.data.splits import Splits
from spreadout.evaluation.frequencies import PROPENSITY, Frequencies
from spreadout.evaluation.metric import Metric
from spreadout.evaluation.pooled import Pool, pool_of
from spreadout.evaluation.references import histories, ridge, sparse_ridge
from spreadout.evaluation.references.features import FORMS, Features, Form, width_of
from spreadout.evaluation.references.neighbours import COUNTS, Voters
from spreadout.evaluation.references.reference import POPULARITY, Reference, mean_goodness
from spreadout.evaluation.references.scoring import (
    Clock,
    OutOfTime,
    Scorer,
    computable,
    metrics_of,
)
from spreadout.objectives.neighbours import Nearest

MOST_SECONDS = 60.0  # of all references of a run
MOST_FEATURES = 4096
WORK = {"cpu": 2e11, "cuda": 4e13}  # multiply-adds of a matrix product; above it, a sample is taken
MOST_NUMBERS = 1 << 28  # of features held in memory
FEWEST = 100  # instances of a sample, whatever they cost
CHOICE = 2000  # at most so many training instances are kept back to choose settings by
CHOICE_SHARE = 0.2

RIDGE_WORDS: tuple[Form, ...] = ("raw", "unit")  # forms of features to choose from
RIDGE_NUMBERS: tuple[Form, ...] = ("standard", "raw", "roots")  # the first of equals is taken
NEAR_WORDS: tuple[Form, ...] = ("unit",)
NEAR_NUMBERS: tuple[Form, ...] = ("standard, unit", "unit", "roots, unit")

T = TypeVar("T")
Split = Literal["test", "validation"]


class Found(NamedTuple):
    """What a reference comes to."""

    scorer: Scorer
    note: str
    form: Form | None = None  # of features, that was chosen


Maker = Callable[["_Work"], Found]


def references_of(
    splits: Splits,
    metrics: Sequence[str],
    split: Split = "test",
    *,
    frequent: int = 100,
    propensity: tuple[float, float] = PROPENSITY,
    seconds: float = MOST_SECONDS,
    device: torch.device | str = "cpu",
) -> dict[str, Reference]:
    """Trivial and cheap central predictions from the training data, by name, the trivial one first.

    Settings of a reference (λ of ridge, how many neighbours vote) are chosen on a part of the training
    data, by the mean of the metrics that are like the first one. Metrics that need embeddings are left
    out. A reference that takes too long has no metrics and a note that says so.

    >>> import spreadout as so
    >>> found = so.references_of(so.load_data(so.DataConfig(source="digits")), ["P@1"])
    >>> [name for name, one in found.items() if not one.is_trivial]
    ['ridge', 'nearest neighbours']
    """
    if why_none(splits, metrics, split):
        return {}
    scored, wanted = splits.scored(split), computable(metrics)
    assert scored is not None
    pool = pool_of(splits.train)
    seen = Frequencies(pool.counts, len(pool), frequent, propensity)
    work = _Work(pool, scored, wanted, seen, torch.device(device), Clock(seconds))
    return {name: work.reference(name, maker) for name, maker in _fitting(pool)}


def why_none(splits: Splits, metrics: Sequence[str], split: Split) -> str:
    """Why there can be no reference at all; empty where there can."""
    scored = splits.scored(split)
    if not splits.train.examples:
        return "not available: the training data is not here"
    if scored is None or not len(scored.labels.values):
        return "not available: no labelled example is held out"
    if not computable(metrics):
        return "not available: every metric needs embeddings"
    if int(scored.labels.values.min()) >= splits.train.classes:
        return "not available: the classes of the held-out examples are never trained on"
    return ""


def _fitting(pool: Pool) -> Iterator[tuple[str, Maker]]:
    if isinstance(pool.inputs.get("history"), Lists):
        yield POPULARITY, _most_frequent
        yield "successor", _successor
        yield "item-kNN", _item_knn
        return
    yield "most frequent", _most_frequent
    if isinstance(pool.inputs.get("x"), Dense | Sparse):
        yield "ridge", _ridge
        yield "nearest neighbours", _nearest


TRIVIAL = frozenset({"most frequent", POPULARITY})


@dataclass(frozen=True)
class _Work:
    """What references are made from, and how they are scored."""

    pool: Pool
    scored: Examples
    metrics: list[Metric]
    seen: Frequencies
    device: torch.device
    clock: Clock

    def reference(self, name: str, maker: Maker) -> Reference:
        trivial = name in TRIVIAL
        started, form = self.clock.seconds, None
        try:
            scorer, note, form = maker(self)
            found = metrics_of(
                scorer, self.scored.labels, self.pool, self.metrics, self.seen, self.clock
            )
        except OutOfTime:
            found, note = {}, f"left out: references may take {self.clock.limit:g} s in all"
        except Exception as error:  # a metric of the user's own, or no memory: no run is lost by it
            found, note = {}, f"left out: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        took = round(self.clock.seconds - started, 3)
        return Reference(name, found, took, note, trivial, form)

    def features(self, most: int) -> Features:
        return Features(self.pool.inputs["x"], self.device, most)

    def sample(self, cost: float) -> tuple[Tensor, Tensor, str]:
        """Instances to fit and to choose on, as many as work allows if each costs so much; a note."""
        order = self.pool.shuffled("references")
        most = min(len(order), max(FEWEST, int(WORK[self.device.type] / max(cost, 1))))
        order = order[:most]
        note = "" if most == len(self.pool) else f"{most:,} of {len(self.pool):,} training instances"
        held = min(CHOICE, max(1, int(CHOICE_SHARE * most)))
        return order[held:] if most > 1 else order, order[:held], note

    def best(self, settings: Sequence[T], make: Callable[[T], Scorer], held: Tensor) -> T:
        """The setting that does best on training instances kept back; a scorer gets them in order."""
        labels = self.pool.labels.select(held)

        def goodness(setting: T) -> float:
            scorer = make(setting)
            found = metrics_of(scorer, labels, self.pool, self.metrics, self.seen, self.clock)
            return mean_goodness(found, self.metrics)

        return max(settings, key=goodness)


def _forms(
    features: Features, fit: Tensor, numbers: Sequence[Form], words: Sequence[Form]
) -> dict[Form, Features]:
    """Features in the forms to choose from; roots only where there is a long tail."""
    there = numbers if are_numbers(features.column) else words
    forms = {form: features.formed(form, fit) for form in there}
    return {form: one for form, one in forms.items() if one.power is None or bool((one.power < 1).any())}


def _most_frequent(work: _Work) -> Found:
    prior = work.pool.prior
    return Found(lambda at: prior[None], "")


def _ridge(work: _Work) -> Found:
    pool = work.pool
    features, system_of, cost = _dense_or_sparse(work)
    fit, held, sampled = work.sample(cost)
    classes = ridge.most_classes(pool, features.width)
    left_out = int((pool.counts > 0).sum()) - len(classes)
    forms = _forms(features, fit, RIDGE_NUMBERS, RIDGE_WORDS)
    systems = {
        form: system_of(formed, pool.labels, classes, fit, work.clock) for form, formed in forms.items()
    }
    kept_back = {form: one.like(one.column.select(held)) for form, one in forms.items()}
    last: dict[Form, ridge.Ridge] = {}  # a solution is near that of the strength before

    def made(setting: tuple[Form, float]) -> Scorer:
        work.clock.check()
        form, strength = setting
        last[form] = systems[form].solve(strength, last.get(form))
        return last[form].scorer(kept_back[form], pool.prior)

    settings = [(form, strength) for form in systems for strength in ridge.STRENGTHS]
    form, strength = work.best(settings, made, held)
    every = torch.cat([held, fit])
    chosen = features.formed(form, every)
    whole = system_of(chosen, pool.labels, classes, every, work.clock)
    scorer = whole.solve(strength).scorer(chosen.like(work.scored.inputs["x"]), pool.prior)
    rare = f"{left_out:,} rarest classes left out" if left_out else ""
    note = _joined(f"strength {strength:g}", FORMS[form], features.note, sampled, rare)
    return Found(scorer, note, form)


def _dense_or_sparse(work: _Work) -> tuple[Features, ridge.SystemOf, float]:
    """The cheaper way: features as it takes them, what makes its system, what an instance costs."""
    pool, held = work.pool, int((work.pool.counts > 0).sum())
    wide = width_of(pool.inputs["x"])
    few = len(pool) <= MOST_FEATURES and len(pool) * wide <= MOST_NUMBERS // 2
    dense = work.features(wide if few else MOST_FEATURES)
    words = work.features(max(1, sparse_ridge.MOST_WEIGHTS // max(held, 1)))
    if not are_numbers(words.column) and sparse_ridge.pays(words, held, dense.width):
        cost = len(ridge.STRENGTHS) * sparse_ridge.work(words, held) / len(pool)
        in_memory = WORK[work.device.type] * held / MOST_NUMBERS
        return words, sparse_ridge.sparse_system_of, max(cost, in_memory)
    return dense, ridge.system_of, dense.width * min(dense.width, len(pool))


def _nearest(work: _Work) -> Found:
    pool = work.pool
    features = work.features(MOST_FEATURES)
    cost = features.width * max(len(work.scored), CHOICE)
    fit, held, sampled = work.sample(max(cost, WORK[work.device.type] * features.width / MOST_NUMBERS))
    forms = _forms(features, fit, NEAR_NUMBERS, NEAR_WORDS)
    voters = {form: Voters.of(one, pool.labels, fit) for form, one in forms.items()}
    near = {form: voters[form].nearest(one.rows(held), max(COUNTS)) for form, one in forms.items()}

    def made(setting: tuple[Form, int]) -> Scorer:
        form, count = setting
        found = near[form]
        return lambda at: voters[form].votes(
            Nearest(found.scores[at, :count], found.ids[at, :count]), pool.prior
        )

    form, count = work.best([(form, count) for form in forms for count in COUNTS], made, held)
    every = torch.cat([held, fit])
    chosen = features.formed(form, every)
    whole = Voters.of(chosen, pool.labels, every)
    scorer = whole.scorer(chosen.like(work.scored.inputs["x"]), pool.prior, count)
    note = FORMS[form] if form != "unit" else ""
    note = _joined(counted(count, "neighbour"), note, features.note, sampled)
    return Found(scorer, note, form)


def _history_columns(work: _Work) -> tuple[Lists, Lists]:
    ours, theirs = work.pool.inputs["history"], work.scored.inputs["history"]
    assert isinstance(ours, Lists)
    assert isinstance(theirs, Lists)
    return ours, theirs


def _successor(work: _Work) -> Found:
    ours, theirs = _history_columns(work)
    pairs = histories.successors(work.pool, ours)
    return Found(histories.successor_scorer(pairs, theirs, work.pool.prior), "")


def _item_knn(work: _Work) -> Found:
    ours, theirs = _history_columns(work)
    met = histories.meetings(work.pool, ours, work.clock)
    few = len(met.items) < work.pool.classes - work.pool.first_class
    note = f"of the {len(met.items):,} most popular items" if few else ""
    return Found(histories.meeting_scorer(met, theirs, work.pool.prior), note)


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
