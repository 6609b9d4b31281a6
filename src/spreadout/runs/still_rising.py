"""Whether a run ended before its model was trained: its score still rose, or its rounds were few."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from spreadout.core.types import Record
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.early_stopping import goodness, judged_by, shown_of
from spreadout.evaluation.metrics import described
from spreadout.evaluation.references import Reference
from spreadout.runs.finding import (
    FEWEST,
    Finding,
    central,
    differ,
    judged,
    quarter_of,
    room_above,
    scores_of,
)

STILL_RISING = 0.03  # of all that was gained, gained in the last quarter
LAST_STEP = 0.1  # the same, up to the last of fewer evaluations, or in a half where rates fall to 0
STILL_FALLING = 0.15  # of the errors that were left, made good in that time
CUT = 2  # times as many rounds would be chosen for the data, from which a run is cut short


def unfinished(
    config: EvalConfig,
    history: Sequence[Record],
    rounds: int,
    *,
    decays: bool = False,
    examples: int = 0,
    references: Mapping[str, Reference] | None = None,
) -> Finding | None:
    """The held-out score was still rising when the run ended: by the slope over its last quarter.

    Where rates fall to 0, the last half: it is less than a quarter of the way. A score near its best
    rises little, so errors count too. A rise that may be chance is none, and where chance cannot tell
    the score from the best there can be, or from the best reference, there is nothing to wait for.
    """
    if len(history) < 2 or _is_there(config, history, examples, references or {}):
        return None
    if int(history[-1]["round"]) < rounds and (config.patience or 0) >= FEWEST:
        return None  # it was stopped: validation examples have seen no rise for long enough
    if len(history) < FEWEST:
        return _short(config, history, rounds, examples)
    scores = scores_of(config, history)
    steps = (len(history) - 1) // 2 if decays else quarter_of(history)
    last = scores[-steps - 1 :]
    gain, total = steps * _slope(last), max(scores) - scores[0]
    room = room_above(config, scores[-1])
    rising = gain > (LAST_STEP if decays else STILL_RISING) * total and room > STILL_RISING * total
    falling = bool(examples) and gain > STILL_FALLING * (room + gain)
    if not math.isfinite(gain) or max(last[1:]) < max(scores) or not (rising or falling):
        return None
    if not differ(config, gain, scores[-1], examples):
        return None
    round = int(history[-1]["round"])
    when = "half of the run, while rates fell to 0" if decays else "quarter of the run"
    return Finding(
        "unfinished",
        f"{judged(config)} was still rising, by {gain:.2f} in the last {when}",
        "raise eval.patience" if round < rounds else f"set rounds = {2 * round}, or raise the rates",
    )


def cut_short(
    config: EvalConfig,
    history: Sequence[Record],
    rounds: int,
    usual: int | None,
    references: Mapping[str, Reference] | None = None,
    examples: int = 0,
) -> Finding | None:
    """Fewer rounds than such data asks for, and a model in one place is better.

    Rates that fall to 0 over the rounds make any run end on a level: its course does not show it.
    """
    if usual is None or usual < CUT * rounds:
        return None
    names, known = judged_by(config), central(config, references or {})
    best, who = max(known, default=(math.inf, ""))
    ours = goodness(config, history[shown_of(config, history)])
    if not differ(config, best - ours, ours, examples):
        return None
    beside = f", and {who} in one place has {described(names[0]).sign * best:.2f}" if who else ""
    return Finding(
        "unfinished",
        f"{rounds} round{'s' * (rounds > 1)}, where {usual} would be chosen for this data{beside}",
        f'set rounds = "auto", or {usual}',
    )


def _is_there(
    config: EvalConfig,
    history: Sequence[Record],
    examples: int,
    references: Mapping[str, Reference],
) -> bool:
    """Whether the last score is the best there can be, or that of the best reference, but for chance."""
    last = goodness(config, history[-1])
    best, _ = max(central(config, references), default=(math.inf, ""))
    return not (
        differ(config, room_above(config, last), last, examples)
        and (not examples or differ(config, abs(best - last), last, examples))
    )


def _short(
    config: EvalConfig, history: Sequence[Record], rounds: int, examples: int = 0
) -> Finding | None:
    """The same of a run with few evaluations: it rose from each to the next, up to the last."""
    scores, last = scores_of(config, history), int(history[-1]["round"])
    gain, total = scores[-1] - scores[-2], scores[-1] - scores[0]
    steady = all(b > a for a, b in pairwise(scores)) and math.isfinite(total)
    if not steady or gain <= LAST_STEP * total or room_above(config, scores[-1]) <= LAST_STEP * total:
        return None
    if not differ(config, gain, scores[-1], examples):
        return None
    return Finding(
        "unfinished",
        f"{judged(config)} rose by {gain:.2f} up to the last of {len(history)} evaluations, in round "
        f"{last}",
        "raise eval.patience" if last < rounds else f"set rounds = {8 * last}, or raise the rates",
    )


def _slope(values: Sequence[float]) -> float:
    """Of the straight line through them, by least squares, a step."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    square = sum((i - middle) ** 2 for i in range(len(values)))
    return sum((i - middle) * (value - mean) for i, value in enumerate(values)) / square
