"""What a metric says of itself, and the registry that knows all metrics by name.

A metric is a function of `MetricInputs`, registered with its unit, its range, which direction is better
and what it needs. Whatever computes, draws, compares or stops early by a metric reads these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.core.registry import Registry, near
from spreadout.evaluation.frequencies import Frequencies
from spreadout.evaluation.geometry import Geometry

Better = Literal["higher", "lower"]
Need = Literal["ranking", "rank", "scores", "embeddings", "neighbours", "batch rivals", "frequencies"]
PARTS: Mapping[Need, tuple[str, ...]] = {  # the parts of `MetricInputs` that belong to each need
    "ranking": ("ranking",),
    "rank": ("rank",),
    "scores": ("embeddings", "class_vectors"),
    "embeddings": ("embeddings",),
    "neighbours": ("neighbours",),
    "batch rivals": ("batch_rivals",),
    "frequencies": ("frequencies",),
}
OF_CLASSES = frozenset({"ranking", "rank", "scores", "batch rivals"})  # compare with trained classes
OF_EMBEDDINGS = frozenset({"rank", "scores", "embeddings", "neighbours", "batch rivals"})
RESERVED = frozenset(  # what else a record of an evaluation has
    {"round", "loss", "weights_norm", "prior", "spreadout_rises"}
    | {"bytes", "bytes_down", "bytes_up", "seconds", "refused"}
) | frozenset(Geometry.__dataclass_fields__)
ELSEWHERE = {
    "accuracy": "P@k",
    "acc": "P@k",
    "f1": "macro_f1",
    "f1_macro": "macro_f1",
}  # names in sklearn
_K = re.compile(r"@k\b")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Neighbours(NamedTuple):
    """Of every labelled example, its nearest others.

    >>> import torch
    >>> import spreadout as so
    >>> near = so.metrics.Neighbours(right=torch.tensor([[False, True]]), sizes=torch.tensor([1]))
    >>> so.metrics.retrieval_recall_at(*near, k=1), so.metrics.retrieval_recall_at(*near, k=2)
    (0.0, 100.0)
    """

    right: Tensor  # (n, most) bool: whether each, nearest first, is of the example's class
    sizes: Tensor  # (n,) how many others its class has


MARGIN = 0.05  # of the distance from the least to the largest value, added on both sides of an axis


@dataclass(frozen=True)
class MetricInputs:
    """What metrics are computed from. A part is computed once, when it is first read.

    >>> import torch
    >>> import spreadout as so
    >>> labels = so.Ragged.from_lists([[0], [1]])
    >>> inputs = so.MetricInputs.of(labels, ranking=torch.tensor([[0, 1], [0, 1]]))
    >>> so.metrics.find_metric("P@1").value(inputs)
    50.0
    """

    labels: Ragged  # the right classes of every example
    makers: Mapping[str, Callable[[], Any]] = field(default_factory=dict)  # of the parts, by name
    first_class: int = 0  # rows of `class_vectors` below it are no class

    @classmethod
    def of(cls, labels: Ragged, **parts: Any) -> MetricInputs:
        """Of parts that are there: `MetricInputs.of(labels, ranking=ids)`."""
        return cls(labels, {name: _always(part) for name, part in parts.items() if part is not None})

    @cached_property
    def ranking(self) -> Tensor:
        """(n, k) each example's first classes, best first, as many as the deepest metric looks at."""
        return self._made("ranking", Tensor)

    @cached_property
    def rank(self) -> Tensor:
        """(m,) of every labelled example: the place of its best right class among all, from 1."""
        return self._made("rank", Tensor)

    @cached_property
    def embeddings(self) -> Tensor:
        """(n, dim) of all examples."""
        return self._made("embeddings", Tensor)

    @cached_property
    def class_vectors(self) -> Tensor:
        """(C, dim) what embeddings are compared with: a score is a dot product."""
        return self._made("class_vectors", Tensor)

    @cached_property
    def neighbours(self) -> Neighbours:
        """Examples nearest to each other, whatever was trained."""
        return self._made("neighbours", Neighbours)

    @cached_property
    def batch_rivals(self) -> Tensor:
        """(m,) how many classes of its batch stand before each example's own."""
        return self._made("batch_rivals", Tensor)

    @cached_property
    def frequencies(self) -> Frequencies:
        """How often training has each class."""
        return self._made("frequencies", Frequencies)

    def _made(self, part: str, kind: type[T]) -> T:
        if part not in self.makers:
            need = next(name for name, parts in PARTS.items() if part in parts)
            raise UserError(
                f'inputs.{part}: is not there; a metric that reads it says needs=("{need}",)'
            )
        return cast(T, self.makers[part]())


@dataclass(frozen=True)
class Metric:
    """A metric: how it is computed, and what is to be known of it.

    >>> import spreadout as so
    >>> metric = so.metrics.find_metric("mean rank")
    >>> metric.title, metric.range
    ('mean rank (lower is better)', (1, None))
    """

    name: str  # as registered ("P@k"), or as a config names it ("P@5")
    function: Callable[..., Any]  # of inputs, and of k where the name has one
    needs: frozenset[Need]
    unit: str = ""
    better: Better = "higher"
    range: tuple[float | None, float | None] = (None, None)
    depth: int | None = None  # how many classes or neighbours it looks at, where its name has no k
    k: int | None = None  # where its name has one

    def __post_init__(self) -> None:
        # The registry compares parts by these names: a metric has those of its function.
        for name in ("__module__", "__qualname__"):
            object.__setattr__(self, name, getattr(self.function, name, ""))

    @property
    def takes_k(self) -> bool:
        return _K.search(self.name) is not None

    @property
    def looks_at(self) -> int | None:
        """How many classes or neighbours it looks at, if that is known before."""
        return self.k or self.depth

    @property
    def sign(self) -> int:
        """1 where higher values are better, −1 where lower ones are."""
        return 1 if self.better == "higher" else -1

    @property
    def needs_trained_classes(self) -> bool:
        """Whether it is about the classes of the table: others have no row to be ranked."""
        return not self.needs.isdisjoint(OF_CLASSES)

    @property
    def needs_embeddings(self) -> bool:
        """Whether a model that names the best classes alone cannot have it."""
        return not self.needs.isdisjoint(OF_EMBEDDINGS)

    @property
    def title(self) -> str:
        """For an axis: "P@1 (%)", "mean rank (lower is better)"."""
        unit = [] if not self.unit or self.name.endswith(self.unit) else [self.unit]
        notes = [*unit, *(["lower is better"] if self.better == "lower" else [])]
        return f"{self.name} ({', '.join(notes)})" if notes else self.name

    def named(self, name: str) -> Metric | None:
        """The same under a config's name for it, `P@5` for `P@k`; None if that is not its name."""
        if not self.takes_k:
            return self if name == self.name else None
        before, after = _K.split(self.name)
        match = re.fullmatch(f"{re.escape(before)}@([1-9][0-9]*){re.escape(after)}", name)
        return replace(self, name=name, k=int(match[1])) if match else None

    def value(self, inputs: MetricInputs) -> float:
        found = self.function(inputs) if self.k is None else self.function(inputs, self.k)
        try:
            return float(found)
        except (TypeError, ValueError, RuntimeError):
            kind = type(found).__name__
            raise UserError(f"metric {self.name!r}: gave a {kind}; it must give one number") from None

    def axis(self, values: Iterable[float]) -> tuple[float, float]:
        """From where to where an axis goes, so that all values lie inside it.

        An end of the metric's own range is shown where the values come near it: percentages start at 0
        and end at 100 if any is above 50; ranks from 400 to 500 are shown by themselves.
        """
        finite = [value for value in values if math.isfinite(value)]
        low, high = self.range
        if not finite:
            start = 0.0 if low is None else low
            return start, start + 1 if high is None else high
        least, most = min(finite), max(finite)
        pad = MARGIN * (most - least) or MARGIN * abs(most) or 1.0
        bottom, top = least - pad, most + pad
        if low is not None and high is not None:  # a share of something: seen from where nothing is
            far = most > (low + high) / 2
            bottom, top = low, high if far else low + (most - low) * (1 + MARGIN) + 1e-9
        elif low is not None:
            bottom = low if least - low <= (most - low) / 2 else max(bottom, low)
        elif high is not None:
            top = high if high - most <= (high - least) / 2 else min(top, high)
        # A metric may leave the range it was said to have; what it measured is drawn all the same.
        return min(bottom, least), max(top, most)


METRICS: Registry[Metric] = Registry("metric")


def register_metric(
    name: str,
    *,
    needs: tuple[Need, ...],
    unit: str = "",
    better: Better = "higher",
    range: tuple[float | None, float | None] | None = None,
    depth: int | None = None,
) -> Callable[[F], F]:
    """Make a function of `MetricInputs` known as a metric; of k too, where the name has `@k`.

    needs: which parts of its inputs it reads. range: its least and largest value, None where there is
    none; of percentages 0 and 100. depth: how many classes of the ranking, or neighbours, a metric
    without a k looks at; if not given, the first class, or as many neighbours as the largest class has.

    >>> import spreadout as so
    >>> @so.register_metric("misses", needs=("rank",), better="lower")
    ... def misses(inputs):
    ...     return float((inputs.rank > 1).sum())
    >>> experiment = so.Experiment.of({"rounds": 2, "eval": {"metrics": ["P@1", "misses"]}})
    >>> metrics = so.run(experiment).metrics
    >>> round(100 - metrics["P@1"], 6) == round(100 * metrics["misses"] / 540, 6)
    True
    """
    bounds = range or ((0.0, 100.0) if unit == "%" else (None, None))
    given: tuple[Need, ...] = (needs,) if isinstance(needs, str) else needs
    _check(name, given, better, bounds, depth)

    def register(function: F) -> F:
        metric = Metric(name, function, frozenset(given), unit, better, bounds, depth)
        for other in METRICS.parts():
            one, two = (m.name.replace("@k", "@1") for m in (metric, other))
            if other.name != name and (other.named(one) or metric.named(two)):
                raise UserError(f"metric {name!r}: {other.name} has such names; choose another")
        METRICS.add(name, metric)
        return function

    return register


def find_metric(name: str) -> Metric:
    """The metric with this name; a `ValueError` says which there are.

    >>> from spreadout.evaluation.metrics import find_metric
    >>> find_metric("P@5").title, find_metric("mean rank").better
    ('P@5 (%)', 'lower')
    """
    for metric in METRICS.parts():
        if (found := metric.named(name)) is not None:
            return found
    known = near(ELSEWHERE.get(name.lower(), re.sub(r"@\d+\b", "@k", name)), METRICS)
    raise ValueError(f"{name!r} is unknown{known}, where k is a whole number from 1, such as P@1")


def described(name: str) -> Metric:
    """The metric of a finished run; a bare one where the module that registers it is not here.

    >>> import spreadout as so
    >>> so.metrics.described("P@1").title, so.metrics.described("of a module that is not here").title
    ('P@1 (%)', 'of a module that is not here')
    """
    try:
        return find_metric(name)
    except ValueError:
        return Metric(name, _absent, frozenset())


def _check(
    name: str,
    needs: Collection[str],
    better: str,
    bounds: tuple[float | None, float | None],
    depth: int | None,
) -> None:
    """Refuse what would only show much later."""
    if not name.strip() or name in RESERVED or len(_K.findall(name)) > 1:
        raise UserError(f"metric {name!r}: is no name for a metric; choose another")
    for need in needs:
        if need not in get_args(Need):
            raise UserError(f"metric {name!r}: needs {need!r}: unknown{near(need, get_args(Need))}")
    if better not in get_args(Better):
        raise UserError(f'metric {name!r}: better = {better!r}: must be "higher" or "lower"')
    low, high = bounds
    if low is not None and high is not None and low >= high:
        raise UserError(f"metric {name!r}: range = {bounds!r}: must go from its least to its largest")
    if depth is not None and depth < 1:
        raise UserError(f"metric {name!r}: depth = {depth!r}: must be at least 1")


def _always(part: Any) -> Callable[[], Any]:
    return lambda: part


def _absent(inputs: MetricInputs) -> float:
    raise UserError("the module that registers this metric is not imported")
