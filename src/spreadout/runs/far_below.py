"""A model far below what its data can give, beside a cheap one in one place; or with one answer to all.

A federation costs some points, and a score of few examples is mostly luck: what is said is beyond both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spreadout.core.types import Record
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.early_stopping import chance, goodness, judged_by, shown_of
from spreadout.evaluation.metrics import described
from spreadout.evaluation.references import Reference
from spreadout.evaluation.references.features import Form
from spreadout.methods.base import Method
from spreadout.runs.finding import NO_CHANCE, Finding, central, judged, room_above

FAR = 0.1  # of the best reference's score; what is nearer is the price of a federation
ERRORS = 2  # standard errors of the difference, as if each was scored on examples of its own
MENDED, ROWS = 0.2, 2  # of one answer's errors, and of examples, that a reference has right
PLAIN = 'server.optimizer = "sgd" and server.lr = 10'
SIMPLER = "plain steps and a linear network learn less of what is noise in few rows"
PUSHED = 'nothing keeps classes apart here: try method.name = "fedaws"'
WITHOUT_PRIOR = "set method.prior = 0: how frequent a class is outweighs what the model says"
COMPARE = 'try method.name = "fedss": its clients compare their classes with others'


@dataclass(frozen=True)
class Setting:
    """What advice depends on, of a run and its data."""

    alone: bool = False  # clients compare their classes with no others …
    unpushed: bool = False  # … and nothing else keeps these apart
    adam: bool = False  # the server takes Adam's steps or the like, on features that are numbers
    wide: bool = False  # of which there are as many as examples
    standardised: bool = False  # they are brought to one scale …
    centred: bool = True  # … and are not far from 0 as they are
    hidden: bool = False  # the network has hidden layers
    rates_chosen: bool = False  # by the data
    has_central: bool = False  # the same network can be trained in one place


UNKNOWN = Setting()


def far_below(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    examples: int,
    other_rates: str,
    setting: Setting = UNKNOWN,
) -> Finding | None:
    """The best reference that looks at inputs is much better, and surely.

    other_rates: what is advised where the user has set them.
    """
    ours, best, who = _both(config, history, references)
    if not math.isfinite(best - ours) or best - ours < FAR * abs(best):
        return None
    if best - ours < max(ERRORS * _error(config, ours, best, examples), _share(NO_CHANCE, examples)):
        return None
    remedy = PUSHED if setting.unpushed else None
    if remedy is None and setting.adam and (setting.wide or who == "ridge"):
        remedy = simpler(setting, references[who].form)
    if remedy is None and setting.rates_chosen:
        remedy = the_better_model(who, setting.has_central)
    sign = _beside(config, ours, best, who)
    return Finding("far below a reference", sign, remedy or other_rates)


def simpler(setting: Setting, form: Form | None) -> str:
    """What has helped where a linear model is the best, or where there are more features than rows.

    Adam moves the weights of a feature of noise as far as those of one that tells classes apart.
    form: of features, in which the best reference does best; those of a large scale may say most.
    """
    as_they_are = form == "raw" and setting.wide and setting.standardised and setting.centred
    keys = ['model.input_scaling = "none"'] if as_they_are else []
    keys += ["model.hidden = []"] if setting.hidden else []
    return f"set {', '.join(keys)}{', ' * bool(keys)}{PLAIN}: {SIMPLER}"


def the_better_model(who: str, has_central: bool) -> str:
    """Where nothing is known to help: how to see where the loss is, and what to use if it stays."""
    if not has_central:
        return f"nothing is known to help: {who} may be the better model here"
    return (
        'method.name = "centralized" shows whether this network can do better in one place; if not, '
        f"{who} is the better model here"
    )


def one_answer(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    examples: int,
    answer: str,
    other_rates: str,
    setting: Setting = UNKNOWN,
) -> Finding | None:
    """Every example has the same answer, and a reference tells some of them apart.

    Where none does, inputs may say nothing, and one answer is the best there is. So a reference has to
    make good a part of its errors.
    """
    ours, best, who = _both(config, history, references)
    gap = best - ours
    least = max(MENDED * room_above(config, ours), _share(ROWS, examples))
    if not math.isfinite(gap) or gap < least:
        return None
    remedy = other_rates
    if setting.alone:
        remedy = COMPARE
    elif history[shown_of(config, history)].get("prior"):
        remedy = WITHOUT_PRIOR
    return the_same_answer(answer, _beside(config, ours, best, who), remedy)


def the_same_answer(answer: str, more: str, remedy: str) -> Finding:
    sign = f"all examples are taken for {answer}, and they are of several classes"
    return Finding("one answer", f"{sign}; {more}", remedy)


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


def compares_nothing(method: Method) -> bool:
    """Whether a client compares its classes with no others, which a softmax over samples would do."""
    trains_rows = method.has_class_table and not method.takes_histories
    return trains_rows and method.row_access == "own" and not method.is_centralized


def has_central(method: Method) -> bool:
    """Whether the same network can be trained in one place, by `centralized`."""
    return method.has_class_table and not (method.takes_histories or method.is_centralized)
