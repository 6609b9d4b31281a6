"""Steps that were too large: of clients or server, so that training diverged, or of the spreadout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from spreadout.core.types import Record
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.early_stopping import chance
from spreadout.methods.collapse import LOWER_RATES
from spreadout.runs.finding import (
    FEWEST,
    Finding,
    differ,
    grown,
    is_known,
    judged,
    quarter_of,
    scores_of,
)

LOSS_GROWTH = 1.5  # how far the training loss may be above its least value
NORM_GROWTH = 5.0  # by how much the encoder's weights may grow where the score is ruined:
RUINED = 0.2  # of all that was gained, lost since the best evaluation
WORSE = 0.05  # … and what may be lost of it before a rising loss counts
MOVED = 1.5  # growth of the weights below which rates were not too high
SWING = 0.25  # of all that was gained, by how much the score may change between evaluations
NOT_BY_CHANCE = 2.0  # … and how many standard errors of a score
RISES = 0.3  # share of spreadout steps that may raise their own objective


def divergence(config: EvalConfig, history: Sequence[Record], examples: int = 0) -> Finding | None:
    """The loss or the weights grew far beyond what they were, and the score got worse; or it swings.

    examples: how many are scored. Of few, a score swings by chance.
    """
    losses = [(r["round"], float(r["loss"])) for r in history if is_known(r.get("loss"))]
    norms = [float(r["weights_norm"]) for r in history if is_known(r.get("weights_norm"))]
    if not losses or not norms:
        return None
    at, least = min(losses, key=lambda pair: pair[1])
    (_, first), (_, last) = losses[0], losses[-1]
    growth = grown(history)
    recent = [loss for _, loss in losses[-quarter_of(history) :]]
    scores = scores_of(config, history)
    ruined = max(scores) - scores[-1] > RUINED * (max(scores) - scores[0]) or max(scores) == scores[0]
    # Spread classes are harder to hit: a loss may rise while the score does. And a row of nine may go.
    lost, by_chance = max(scores) - scores[-1], NOT_BY_CHANCE * chance(config, scores[-1], examples)
    told = lost > by_chance and differ(config, lost, scores[-1], examples)
    worse = (lost > WORSE * (max(scores) - scores[0]) and told) or max(scores) == scores[0]
    if worse and last > LOSS_GROWTH * least and last > first:
        sign = f"the training loss rose from {least:.3g} in round {at} to {last:.3g}"
    elif growth > NORM_GROWTH and ruined:
        sign = f"the norm of the encoder's weights grew from {norms[0]:.3g} to {norms[-1]:.3g}"
    elif growth > MOVED and len(losses) >= FEWEST and _swing(scores) > _calm(config, scores, examples):
        sign = f"{judged(config)} swings by {_swing(scores):.1f} from one evaluation to the next"
    elif worse and growth > MOVED and len(losses) >= FEWEST and min(recent) > first:
        sign = (
            f"the training loss is {last:.3g} and was {first:.3g}, while weights grew {growth:.1f}-fold"
        )
    else:
        return None
    return Finding("divergence", sign, LOWER_RATES)


def overshoot(history: Sequence[Record]) -> Finding | None:
    """The server's own step raised what it should lower."""
    share = history[-1].get("spreadout_rises") if history else None
    if not is_known(share) or share <= RISES:
        return None
    return Finding(
        "overshoot",
        f"{100 * share:.0f} % of the server's spreadout steps raised their own objective",
        'set method.spreadout_step = "safe", or lower method.strength',
    )


def _swing(scores: Sequence[float]) -> float:
    """How much the score falls between evaluations, in the second half: root mean square.

    What swings falls as far as it rises; falls are counted twice, and a rise alone is no swing.
    """
    late = scores[len(scores) // 2 :]
    return math.sqrt(2 * sum(min(b - a, 0.0) ** 2 for a, b in pairwise(late)) / max(len(late) - 1, 1))


def _calm(config: EvalConfig, scores: Sequence[float], examples: int) -> float:
    """How much a sound run's score may swing: a share of what was gained, and more than chance does."""
    by_chance = chance(config, sum(scores) / len(scores), examples)
    return max(SWING * (max(scores) - scores[0]), NOT_BY_CHANCE * by_chance)
