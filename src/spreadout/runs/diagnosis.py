"""What is wrong with a run, told by measured signs, each with a remedy.

Every function looks for one fault and returns a `Finding`, or None. `diagnose` puts them in order: a
fault that would explain another comes first, and what it explains is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spreadout.core.types import Record
from spreadout.evaluation.activity import Activity
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.early_stopping import goodness, judged_by, shown_of
from spreadout.evaluation.metrics import described
from spreadout.evaluation.prior_alone import ALONE
from spreadout.evaluation.references import POPULARITY, Copies, Reference
from spreadout.methods.collapse import LOWER_RATES
from spreadout.runs.alike import DEAD, LOWER_RATE, alike, dead_units, tells_inputs_apart
from spreadout.runs.far_below import (
    COMPARE,
    ROWS,
    UNKNOWN,
    Setting,
    far_below,
    one_answer,
    simpler,
    the_same_answer,
)
from spreadout.runs.finding import (
    FEWEST,
    Finding,
    central,
    differ,
    grown,
    is_known,
    judged,
    quarter_of,
    scores_of,
    trivial,
)
from spreadout.runs.large_steps import MOVED, divergence, overshoot
from spreadout.runs.still_rising import cut_short, unfinished

LEARNED = 0.5  # of the first training loss, what is left where training data is learned by heart
LOST = 0.05  # of all that was gained, lost since the best evaluation
COPIES, COPIED = 10, 0.01  # scored rows, and their share, that may be training rows by chance
ALWAYS = "always the most frequent labels"
POPULAR = "always the most popular items"
LITTLE = 0.25  # of the way from a trivial score to the best in one place
ROOTS = 'set model.input_scaling = "roots": a few values far out hide what tells the others apart'
UNMIRRORED = "set clients.image_flip = false: mirrored images may be of other classes"
AT_A_LOSS = (
    "try clients.lr ten times larger and ten times smaller, then more rounds; "
    'method.name = "centralized" shows what the data can give'
)
# The same where the server's optimiser takes the scale of the clients' rate away.
ITS = "server.lr, with the server.optimizer it has,"
WITH_POPULARITY = (
    f'{AT_A_LOSS}; where order says little, set method.prior = "auto": clients then say how often they '
    "have each item"
)
ON_THE_SERVER = {
    **{said: said.replace("clients.lr", ITS) for said in (AT_A_LOSS, WITH_POPULARITY)},
    LOWER_RATES: f"lower {ITS} and clients.row_lr tenfold",
    LOWER_RATE: LOWER_RATE.replace("clients.lr", ITS),
}
UNUSED = (
    "try other rates and more rounds; of few validation examples chance tells little: a larger "
    "data.validation_fraction tells more"
)
RARE = 'if rare classes are to count as much, set eval.metrics = ["balanced_accuracy", "P@1"]'
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
    mirrored: bool = False,
    only_answer: str | None = None,
    setting: Setting = UNKNOWN,
) -> list[Finding]:
    """All that is wrong with a finished run; that it is below a trivial reference comes last.

    Rows that are in both parts say nothing of training, and come before all.

    rounds: how many the run was to have; decays: whether rates fall to 0 over them; examples: how many
    are scored; usual: the rounds that would have been chosen for the data; takes_prior: whether a prior
    over classes could be added; collapse_advice: what the method says of its classes, if they collapsed;
    scale_free: whether the server's optimiser takes the scale of the clients' one step away; copies: of
    training rows among those that are scored; mirrored: whether it was chosen to mirror images;
    only_answer: the class that all examples are taken for.
    """
    fallen, dead = collapse(collapse_advice), dead_units(activity)
    wild = divergence(config, history, examples)
    if fallen is not None and grown(history) <= MOVED:
        wild = None  # weights are where they were: what wavers is the small loss of classes that fell
    wild = wild or overshoot(history)
    short = cut_short(config, history, rounds, usual, references, examples)
    if short is not None and activity is not None and activity.dead <= DEAD:
        dead = None  # embeddings are alike before they are trained
    calm = (
        overfitting(config, history)
        or short
        or unfinished(config, history, rounds, decays=decays, examples=examples, references=references)
    )
    if as_good_as_any(config, history, references or {}, examples):
        fallen = dead = None  # signs of a bad model, and it is none: inputs or classes may be alike
    elif fallen is None and not tells_inputs_apart(config, history, references or {}, examples):
        calm = calm or alike(config, history, activity, rounds)
    said = [one for one in (wild, dead, None if wild or dead else fallen) if one is not None]
    if calm is not None and (not said or (calm is short and said == [fallen])):
        said.insert(0, calm)  # classes of a run that was cut short may not have come apart yet
    if mirrored and (twins := mirrored_classes(config, history, references or {})) is not None:
        said.insert(0, twins)
    if (
        setting.standardised
        and (tails := long_tails(config, history, references or {}, examples)) is not None
    ):
        said.insert(0, tails)
    unused = inputs_unused(config, history, references or {}, said, examples, setting)
    if not said and unused is None and only_answer is not None:
        same = one_answer(config, history, references or {}, examples, only_answer, AT_A_LOSS, setting)
        said += [] if same is None else [same]
    last = below_trivial(config, history, references or {}, said, takes_prior=takes_prior)
    found = [*said, *(one for one in (unused, last) if one is not None)]
    known = leaked(config, copies)
    if not found and not (known and leads_by_copies(config, history, references or {}, copies)):
        far = far_below(config, history, references or {}, examples, AT_A_LOSS, setting)
        far = far or rare_unnamed(config, only_answer)
        found = [] if far is None else [far]
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


def leads_by_copies(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    copies: Copies | None,
) -> bool:
    """Whether rows that a reference knows by heart may be all that it is ahead by."""
    if copies is None or not copies.rows:
        return False
    best, _ = max(central(config, references), default=(-math.inf, ""))
    ours = goodness(config, history[shown_of(config, history)])
    return best - ours <= 100 * copies.found / copies.rows


def as_good_as_any(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    examples: int = 0,
) -> bool:
    """Whether no reference is better by more than chance, and one that looks at inputs is among them."""
    known, ours = central(config, references), goodness(config, history[shown_of(config, history)])
    return bool(known) and not differ(config, max(known)[0] - ours, ours, examples)


def collapse(advice: str | None) -> Finding | None:
    """Classes fall onto each other: what the method says to that."""
    if not advice:
        return None
    sign, _, remedy = advice.partition("; ")
    return Finding("collapse", sign, remedy or "lower the rates")


def overfitting(config: EvalConfig, history: Sequence[Record]) -> Finding | None:
    """The held-out score fell for long while the training loss went on falling.

    Scores are means over a quarter of the evaluations: a single high one is luck.
    """
    if len(history) < FEWEST or config.keep == "best":  # what came later is not what the run leaves
        return None
    scores, quarter = scores_of(config, history), quarter_of(history)
    means = [sum(scores[i : i + quarter]) / quarter for i in range(1, len(scores) - quarter + 1)]
    place = max(range(len(scores)), key=scores.__getitem__)  # looked at, and nothing chosen by it
    start, before, after = (history[at].get("loss") for at in (1, place, -1))
    lost = max(means) - means[-1]
    if not (place and is_known(start) and is_known(before) and is_known(after) and math.isfinite(lost)):
        return None
    early = 3 * place <= 2 * (len(history) - 1)
    learned = after < min(before, LEARNED * start)
    if not (early and learned and lost > LOST * (max(means) - scores[0])):
        return None
    at = history[place]["round"]
    shorter = f"set rounds = {at}, or " if config.split == "validation" else "set "
    return Finding(
        "overfitting",
        f"{judged(config)} was best in round {at} and fell by {lost:.2f}, while the training loss "
        f"fell from {before:.3g} to {after:.3g}",
        f'{shorter}eval.keep = "best" with validation data; or train with clients.input_dropout',
    )


def mirrored_classes(
    config: EvalConfig, history: Sequence[Record], references: Mapping[str, Reference]
) -> Finding | None:
    """Images were mirrored, and little was learnt that others find in them.

    Mirroring is the one choice that can make two classes one, which no training mends.
    """
    floors, known = trivial(config, references), central(config, references)
    if not floors or not known:
        return None
    (floor, _), (best, who) = max(floors), max(known)
    ours = goodness(config, history[shown_of(config, history)])
    if ours - floor >= LITTLE * (best - floor):
        return None
    sign = described(judged_by(config)[0]).sign
    return Finding(
        "mirrored classes",
        f"{judged(config)} is {sign * ours:.2f}, {who} in one place has {sign * best:.2f}",
        UNMIRRORED,
    )


def long_tails(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    examples: int = 0,
) -> Finding | None:
    """The best model in one place is better, and chose features whose long tails are shortened."""
    known = central(config, references)
    if not known:
        return None
    best, who = max(known)
    ours = goodness(config, history[shown_of(config, history)])
    form = references[who].form or ""
    if not form.startswith("roots") or not differ(config, best - ours, ours, examples):
        return None
    sign = described(judged_by(config)[0]).sign
    return Finding(
        "long tails",
        f"{judged(config)} is {sign * ours:.2f}, {who} in one place has {sign * best:.2f} with roots of "
        "features that have long tails",
        ROOTS,
    )


def inputs_unused(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    others: Sequence[Finding] = (),
    examples: int = 0,
    setting: Setting = UNKNOWN,
) -> Finding | None:
    """The model that is kept ranks by the prior alone (`evaluation/prior_alone.py`).

    Where a reference finds something in the inputs, there is more to try than where none does.
    """
    shown = history[shown_of(config, history)]
    if shown.get("prior") != ALONE:
        return None
    best, who = max(central(config, references), default=(-math.inf, ""))
    ours, remedy = goodness(config, shown), UNUSED
    gap = best - ours
    if who and setting.adam and setting.wide and differ(config, gap, ours, examples):
        remedy = simpler(setting, references[who].form)
    elif who and setting.alone and gap * examples >= 100 * ROWS:
        remedy = f"{COMPARE}; or {UNUSED}"
    remedy = others[0].remedy if others else remedy
    if hides_rare(config):
        remedy = f"{RARE}; else {remedy}"
    return Finding(
        "inputs unused",
        f"on validation examples the model is no better than {_always(references)}, beyond chance, so "
        "those are what it answers",
        remedy,
    )


def rare_unnamed(config: EvalConfig, only_answer: str | None) -> Finding | None:
    """One answer to all, which is hardly worse than anything by the score that is judged by.

    Balanced accuracy is shown where one class is far more frequent than others (`config/choices.py`).
    """
    if only_answer is None or not hides_rare(config):
        return None
    return the_same_answer(only_answer, f"{judged(config)} hardly shows it", RARE)


def hides_rare(config: EvalConfig) -> bool:
    """Whether balanced accuracy is shown, and the run is judged by something else."""
    return "balanced_accuracy" in config.metrics and "balanced_accuracy" not in judged_by(config)


def below_trivial(
    config: EvalConfig,
    history: Sequence[Record],
    references: Mapping[str, Reference],
    others: Sequence[Finding] = (),
    *,
    takes_prior: bool = False,
) -> Finding | None:
    """A prediction that looks at no input is better."""
    ours = goodness(config, history[shown_of(config, history)])
    better = [(theirs, name) for theirs, name in trivial(config, references) if theirs > ours]
    if not better:
        return None
    theirs, _ = max(better)
    sign = described(judged_by(config)[0]).sign
    with_prior = WITH_POPULARITY if POPULARITY in references else WITH_PRIOR
    return Finding(
        "below a trivial reference",
        f"{judged(config)} is {sign * ours:.2f}, {_always(references)} have {sign * theirs:.2f}",
        others[0].remedy if others else with_prior if takes_prior else AT_A_LOSS,
    )


def _always(references: Mapping[str, Reference]) -> str:
    """The prediction that looks at no input, in words."""
    return POPULAR if POPULARITY in references else ALWAYS
