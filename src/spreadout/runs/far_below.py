"""A model far below what its data can give, beside a cheap one in one place; or with one answer to all.

A federation costs some points, and a score of few examples is mostly luck: what is said is beyond both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from spreadout.core.types import Record
from spreadout.data.sources.label_cells import joint_of
from spreadout.data.splits import Splits
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.early_stopping import chance, goodness, judged_by, shown_of
from spreadout.evaluation.metrics import described
from spreadout.evaluation.references import Reference
from spreadout.methods.base import Method
from spreadout.runs.finding import NO_CHANCE, Finding, central, judged, room_above

FAR = 0.1  # of the best reference's score; what is nearer is the price of a federation
ERRORS = 2  # standard errors of the difference, as if each was scored on examples of its own
MENDED, ROWS = 0.2, 2  # of one answer's errors, and of examples, that a reference has right
AS_THEY_ARE = (
    'set model.input_scaling = "none": features of a large scale seem to say more than others here'
)
WITHOUT_PRIOR = "set method.prior = 0: how frequent a class is outweighs what the model says"
COMPARE = 'try method.name = "fedss": its clients compare their classes with others'


def far_below(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    examples: int,
    remedy: str,
    *,
    standardised: bool = False,
) -> Finding | None:
    """The best reference that looks at inputs is much better, and surely.

    standardised: whether features are brought to one scale, which that reference may have left alone.
    """
    ours, best, who = _both(config, history, references)
    if not math.isfinite(best - ours) or best - ours < FAR * abs(best):
        return None
    if best - ours < max(ERRORS * _error(config, ours, best, examples), _share(NO_CHANCE, examples)):
        return None
    if standardised and references[who].form in ("raw", "unit"):
        remedy = AS_THEY_ARE
    return Finding("far below a reference", _beside(config, ours, best, who), remedy)


def one_answer(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    examples: int,
    answer: str,
    remedy: str,
    *,
    alone: bool = False,
) -> Finding | None:
    """Every example has the same answer, and a reference tells some of them apart.

    Where none does, inputs may say nothing, and one answer is the best there is. So a reference has to
    make good a part of its errors. alone: whether clients compare their classes with no others.
    """
    ours, best, who = _both(config, history, references)
    gap = best - ours
    least = max(MENDED * room_above(config, ours), _share(ROWS, examples))
    if not math.isfinite(gap) or gap < least:
        return None
    if history[shown_of(config, history)].get("prior"):
        remedy = WITHOUT_PRIOR
    if alone:
        remedy = COMPARE
    sign = f"all examples are taken for {answer}, and they are of several classes"
    return Finding("one answer", f"{sign}; {_beside(config, ours, best, who)}", remedy)


def _both(
    config: EvalConfig, history: Sequence[Record], references: Mapping[str, Reference]
) -> tuple[float, float, str]:
    """How good the model is, how good the best reference, and which that is."""
    best, who = max(central(config, references), default=(-math.inf, ""))
    return goodness(config, history[shown_of(config, history)]), best, who


def _beside(config: EvalConfig, ours: float, best: float, who: str) -> str:
    sign = described(judged_by(config)[0]).sign
    return f"{judged(config)} is {sign * ours:.2f}, {who} in one place has {sign * best:.2f}"


def _error(config: EvalConfig, ours: float, best: float, examples: int) -> float:
    """Of a difference; infinite where nobody knows how many examples were scored, or how they waver."""
    if not examples or described(judged_by(config)[0]).range != (0, 100):
        return math.inf
    return math.hypot(chance(config, ours, examples), chance(config, best, examples))


def _share(rows: int, examples: int) -> float:
    """In percent; of one example, where nobody knows how many there are."""
    return 100 * rows / max(examples, 1)


def what_helps(data: Splits) -> str | None:
    """On such data; None where nothing better is known than other rates."""
    joint = joint_of(data.class_names)
    return joint and f'part the labels of a row: set data.source.separator = "{joint}"'


def compares_nothing(method: Method) -> bool:
    """Whether a client compares its classes with no others, which a softmax over samples would do."""
    return method.row_access == "own" and not method.is_centralized and not method.takes_histories
