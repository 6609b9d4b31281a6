"""Inputs that an encoder does not tell apart: its units are dead, or it has hardly been trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spreadout.core.types import Record
from spreadout.evaluation.activity import Activity
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.early_stopping import goodness, shown_of
from spreadout.evaluation.references import Reference
from spreadout.methods.collapse import LOWER_RATES
from spreadout.runs.finding import Finding, differ, grown, trivial

DEAD = 0.6  # share of a layer's units that may be 0 for all inputs …
SOME_DEAD, ALIKE = 0.4, 0.75  # … where embeddings are much alike: their mean has such a length
SAME = 0.98  # length of the mean embedding, from which all are about the same
FAR_OFF = 3.0  # standard deviations that inputs may be from 0
STARTED = 1.2  # growth of the encoder's weights, up to which it has hardly been trained
LONGER = 4  # times the rounds, for one that has not
LOWER_RATE = "lower clients.lr tenfold"
CENTRE = "subtract the mean of the features, and scale them"


def dead_units(activity: Activity | None) -> Finding | None:
    """Most units of a layer never fire."""
    if activity is None:
        return None
    much_alike = (activity.sameness or 0.0) > ALIKE
    if activity.dead <= DEAD and not (activity.dead > SOME_DEAD and much_alike):
        return None
    share = f"{100 * activity.dead:.0f} %"
    sign = f"{share} of the ReLU units of layer {activity.layer} are 0 for all inputs"
    far = _far_off(activity)
    return Finding("dead units", sign + far, CENTRE if far else LOWER_RATE)


def alike(
    config: EvalConfig, history: Sequence[Record], activity: Activity | None, rounds: int
) -> Finding | None:
    """All embeddings are about the same, though classes are not: inputs of one sign look so at first.

    Weights that have hardly grown say that training has not come far; those that have, that it threw
    everything to one side. The advice is more rounds, or lower rates, and never higher ones: who follows
    it again and again would be led in a circle.
    """
    same = 0.0 if activity is None else activity.sameness or 0.0
    if activity is None or same <= SAME:
        return None
    sign = f"all embeddings are about the same: their mean has length {same:.3f}"
    last = int(history[-1]["round"])
    remedy = f"set rounds = {LONGER * last}" if last >= rounds else "raise eval.patience"
    if grown(history[: shown_of(config, history) + 1]) > STARTED:
        remedy = LOWER_RATES
    far = _far_off(activity)
    return Finding("embeddings alike", sign + far, CENTRE if far else remedy)


def _far_off(activity: Activity) -> str:
    if activity.offset is None or activity.offset <= FAR_OFF:
        return ""
    return f"; inputs are {activity.offset:.0f} standard deviations from 0"


def tells_inputs_apart(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    examples: int = 0,
) -> bool:
    """Whether the score is above a trivial one by more than chance.

    A model to which all inputs are the same gives one answer: no better than always the most frequent.
    """
    known, ours = trivial(config, references), goodness(config, history[shown_of(config, history)])
    return bool(known) and differ(config, ours - max(known)[0], ours, examples)
