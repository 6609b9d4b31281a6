"""What is wrong with a run, told by measured signs, each with a remedy.

Every function looks for one fault and returns a `Finding`, or None. `diagnose` puts them in order: a
fault that would explain another comes first, and what it explains is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from spreadout.core.types import Record
from spreadout.evaluation.activity import Activity
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.early_stopping import best_of, chance, goodness, judged_by, shown_of
from spreadout.evaluation.metrics import described
from spreadout.evaluation.references import Copies, Reference
from spreadout.runs.finding import (
    FEWEST,
    Finding,
    central,
    differ,
    is_known,
    judged,
    quarter_of,
    scores_of,
)
from spreadout.runs.still_rising import cut_short, unfinished

LOSS_GROWTH = 1.5  # how far the training loss may be above its least value
NORM_GROWTH = 5.0  # by how much the encoder's weights may grow where the score is ruined:
RUINED = 0.2  # of all that was gained, lost since the best evaluation
WORSE = 0.05  # … and what may be lost of it before a rising loss counts
MOVED = 1.5  # growth of the weights below which rates were not too high
SWING = 0.25  # of all that was gained, by how much the score may change between evaluations
NOT_BY_CHANCE = 2.0  # … and how many standard errors of a score
RISES = 0.3  # share of spreadout steps that may raise their own objective
DEAD = 0.6  # share of a layer's units that may be 0 for all inputs …
SOME_DEAD, ALIKE = 0.4, 0.75  # … where embeddings are much alike: their mean has such a length
SAME = 0.98  # length of the mean embedding, from which all are about the same
FAR_OFF = 3.0  # standard deviations that inputs may be from 0
LEARNED = 0.5  # of the first training loss, what is left where training data is learned by heart
LOST = 0.05  # of all that was gained, lost since the best evaluation
COPIES, COPIED = 10, 0.01  # scored rows, and their share, that may be training rows by chance
ALWAYS = "always the most frequent labels"
AT_A_LOSS = (
    "try clients.lr ten times larger and ten times smaller, then more rounds; "
    'method.name = "centralized" shows what the data can give'
)
LOWER_ALL = "lower clients.lr and clients.row_lr tenfold, or the server's rate"
LOWER = "lower clients.lr tenfold, or start anew with another seed"
# The same where the server's optimiser takes the scale of the clients' rate away.
ITS = "server.lr, with the server.optimizer it has,"
ON_THE_SERVER = {
    AT_A_LOSS: AT_A_LOSS.replace("clients.lr", ITS),
    LOWER_ALL: f"lower {ITS} and clients.row_lr tenfold",
    LOWER: LOWER.replace("clients.lr", ITS),
}
WITH_PRIOR = 'set method.prior = "auto": clients then say how many examples of each class they have'


def diagnose(
    config: EvalConfig,
    history: Sequence[Record],
    *,
    rounds: int,
    decays: bool = False,
    examples: int = 0,
    usual: int | None = None,
    takes_prior: bool = False,
    collapse_advice: str | None = None,
    activity: Activity | None = None,
    references: Mapping[str, Reference] | None = None,
    scale_free: bool = False,
    copies: Copies | None = None,
) -> list[Finding]:
    """All that is wrong with a finished run; that it is below a trivial reference comes last.

    Rows that are in both parts say nothing of training, and come before all.

    rounds: how many the run was to have; decays: whether rates fall to 0 over them; examples: how many
    are scored; usual: the rounds that would have been chosen for the data; takes_prior: whether a prior
    over classes could be added; collapse_advice: what the method says of its classes, if they collapsed;
    scale_free: whether the server's optimiser takes the scale of the clients' one step away; copies: of
    training rows among those that are scored.
    """
    fallen = collapse(collapse_advice)
    wild = divergence(config, history, examples) or overshoot(history)
    tells = tells_inputs_apart(config, history, references or {}, examples)
    dead = dead_units(activity, collapsed=fallen is not None or tells)
    short = cut_short(config, history, rounds, usual, references, examples)
    if as_good_as_any(config, history, references or {}, examples):
        fallen = dead = None  # signs of a bad model, and it is none: inputs or classes may be alike
    if short is not None and activity is not None and activity.dead <= DEAD:
        dead = None  # embeddings are alike before they are trained
    calm = (
        overfitting(config, history)
        or short
        or unfinished(config, history, rounds, decays=decays, examples=examples, references=references)
    )
    said = [one for one in (wild, dead, None if wild or dead else fallen) if one is not None]
    if calm is not None and (not said or (calm is short and said == [fallen])):
        said.insert(0, calm)  # classes of a run that was cut short may not have come apart yet
    last = below_trivial(config, history, references or {}, said, takes_prior=takes_prior)
    found = said if last is None else [*said, last]
    known = leaked(config, copies)
    if known is not None:
        found = [known, *found]
    if not scale_free:
        return found
    return [replace(one, remedy=ON_THE_SERVER.get(one.remedy, one.remedy)) for one in found]


def leaked(config: EvalConfig, copies: Copies | None) -> Finding | None:
    """Rows that are scored are training rows too: what was learned by heart is right there."""
    if copies is None or copies.found < max(COPIES, COPIED * copies.rows):
        return None
    share = 100 * copies.found / copies.rows
    shown = f"{share:.0f}" if share >= 10 else f"{share:.1f}"
    return Finding(
        "rows in both parts",
        f"{shown} % of the {config.split} rows are also in the training part "
        f"({copies.found:,} of {copies.rows:,}): scores may be too high",
        "leave each row in one part only, or keep them if such rows are met again in use",
    )


def as_good_as_any(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    examples: int = 0,
) -> bool:
    """Whether no reference is better by more than chance, and one that looks at inputs is among them."""
    known, ours = central(config, references), goodness(config, history[shown_of(config, history)])
    return bool(known) and not differ(config, max(known)[0] - ours, ours, examples)


def tells_inputs_apart(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    examples: int = 0,
) -> bool:
    """Whether the score is above a trivial one by more than chance.

    A model to which all inputs are the same gives one answer: no better than always the most frequent.
    """
    names, ours = judged_by(config), goodness(config, history[shown_of(config, history)])
    known = [
        goodness(config, one.metrics)
        for one in references.values()
        if one.is_trivial and all(is_known(one.metrics.get(name)) for name in names)
    ]
    return bool(known) and differ(config, ours - max(known), ours, examples)


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
    grown = norms[-1] / norms[0] if norms[0] else 1.0
    recent = [loss for _, loss in losses[-quarter_of(history) :]]
    scores = scores_of(config, history)
    ruined = max(scores) - scores[-1] > RUINED * (max(scores) - scores[0]) or max(scores) == scores[0]
    # Spread classes are harder to hit: a loss may rise while the score does. And a row of nine may go.
    lost, by_chance = max(scores) - scores[-1], NOT_BY_CHANCE * chance(config, scores[-1], examples)
    told = lost > by_chance and differ(config, lost, scores[-1], examples)
    worse = (lost > WORSE * (max(scores) - scores[0]) and told) or max(scores) == scores[0]
    if worse and last > LOSS_GROWTH * least and last > first:
        sign = f"the training loss rose from {least:.3g} in round {at} to {last:.3g}"
    elif grown > NORM_GROWTH and ruined:
        sign = f"the norm of the encoder's weights grew from {norms[0]:.3g} to {norms[-1]:.3g}"
    elif grown > MOVED and len(losses) >= FEWEST and _swing(scores) > _calm(config, scores, examples):
        sign = f"{judged(config)} swings by {_swing(scores):.1f} from one evaluation to the next"
    elif worse and grown > MOVED and len(losses) >= FEWEST and min(recent) > first:
        sign = (
            f"the training loss is {last:.3g} and was {first:.3g}, while weights grew {grown:.1f}-fold"
        )
    else:
        return None
    return Finding("divergence", sign, LOWER_ALL)


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


def collapse(advice: str | None) -> Finding | None:
    """Classes fall onto each other: what the method says to that."""
    if not advice:
        return None
    sign, _, remedy = advice.partition("; ")
    return Finding("collapse", sign, remedy or "lower the rates")


def dead_units(activity: Activity | None, *, collapsed: bool = False) -> Finding | None:
    """Most units of a layer never fire, or all embeddings are the same though classes are not.

    collapsed: whether that is explained by the classes, or told wrong by the score.
    """
    if activity is None:
        return None
    same = activity.sameness or 0.0
    if activity.dead > DEAD or (activity.dead > SOME_DEAD and same > ALIKE):
        share = f"{100 * activity.dead:.0f} %"
        sign = f"{share} of the ReLU units of layer {activity.layer} are 0 for all inputs"
    elif same > SAME and not collapsed:
        sign = f"all embeddings are about the same: their mean has length {same:.3f}"
    else:
        return None
    if activity.offset is not None and activity.offset > FAR_OFF:
        far = f"inputs are {activity.offset:.0f} standard deviations from 0"
        return Finding(
            "dead units", f"{sign}; {far}", "subtract the mean of the features, and scale them"
        )
    return Finding("dead units", sign, LOWER)


def overfitting(config: EvalConfig, history: Sequence[Record]) -> Finding | None:
    """The held-out score fell for long while the training loss went on falling.

    Scores are means over a quarter of the evaluations: a single high one is luck.
    """
    if len(history) < FEWEST or config.keep == "best":  # what came later is not what the run leaves
        return None
    scores, quarter = scores_of(config, history), quarter_of(history)
    means = [sum(scores[i : i + quarter]) / quarter for i in range(1, len(scores) - quarter + 1)]
    place = best_of(config, history)
    start, before, after = (history[at].get("loss") for at in (1, place, -1))
    lost = max(means) - means[-1]
    if not (place and is_known(start) and is_known(before) and is_known(after) and math.isfinite(lost)):
        return None
    early = 3 * place <= 2 * (len(history) - 1)
    learned = after < min(before, LEARNED * start)
    if not (early and learned and lost > LOST * (max(means) - scores[0])):
        return None
    at = history[place]["round"]
    return Finding(
        "overfitting",
        f"{judged(config)} was best in round {at} and fell by {lost:.2f}, while the training loss "
        f"fell from {before:.3g} to {after:.3g}",
        f"set rounds = {at}, or eval.patience with validation data; or train with clients.input_dropout",
    )


def below_trivial(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    others: Sequence[Finding] = (),
    *,
    takes_prior: bool = False,
) -> Finding | None:
    """A prediction that looks at no input is better."""
    names = judged_by(config)
    for one in references.values():
        if not one.is_trivial or not all(is_known(one.metrics.get(name)) for name in names):
            continue
        shown = history[shown_of(config, history)]
        ours, theirs = goodness(config, shown), goodness(config, one.metrics)
        if ours >= theirs:
            continue
        sign = described(names[0]).sign
        always = "always the most popular items" if one.name == "popularity" else ALWAYS
        return Finding(
            "below a trivial reference",
            f"{judged(config)} is {sign * ours:.2f}, {always} have {sign * theirs:.2f}",
            others[0].remedy if others else WITH_PRIOR if takes_prior else AT_A_LOSS,
        )
    return None


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
