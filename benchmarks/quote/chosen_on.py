"""Which rows each rule of the defaults was compared on: what decided, and what was looked at later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.quote.tables import Made, read, table

FEW = 6  # sets that are named; of more, their number is
JUDGED = "rows held out of each set to judge by; these decided, so they test nothing"
ROWS = {  # of files whose runs do not say it
    "prior-rules": JUDGED,
    "trust-rules": JUDGED,
    "trust-learnt": JUDGED,
    "trust-fresh": "the same sets, other rows held out to judge by; changed nothing",
    "trust-seldom": JUDGED,
    "trust-seldom-made-up": JUDGED,
    "trust-seldom-drawn": "150 of each, other ones for each seed, a third to judge by; changed nothing",
    "mirror": "training images; no score was looked at",
}
SPLITS = {"validation": "validation rows", "test": "test rows"}


@dataclass(frozen=True)
class Comparison:
    """What a rule of the defaults rests on."""

    rule: str
    file: str  # below results/defaults
    more: str = ""  # what a reader has to know of it
    only: str = ""  # the one set of the file that was used


COMPARISONS = (
    Comparison(
        "hidden layers, rates, dropped features and rounds, first",
        "first-search",
        "showed what was wrong with earlier defaults",
    ),
    Comparison(
        "the same, as chosen",
        "search",
        "the rule by size for softmaxes was made by looking at these rows; left out, a set chooses "
        "another rule for FedSS nine times in twelve",
    ),
    Comparison("Adam at one rate on the server", "rates"),
    Comparison(
        "cohorts of 20,000 clients, prior and weights of softmaxes, next items",
        "trials",
        "0.01 on the server for `dual_encoder` is the largest of three rates",
    ),
    Comparison(
        "whether images are moved",
        "mirror",
        "of the 28, eleven were first looked at when a rule stood; how far images are moved was "
        "tried on images in no file",
    ),
    Comparison(
        "images that are moved for 4,000 rounds",
        "tuned",
        "beside three or four other points; the mirror and the rounds were not tried apart",
        only="cifar-10",
    ),
    Comparison("who takes part in a step on images", "cohorts"),
    Comparison(
        "a prior from few validation rows",
        "prior-rules",
        "looked for because FedSS scored low on the test rows of flags and foodtruck",
    ),
    Comparison(
        "how far a model is trusted",
        "trust-rules",
        "looked for because test rows of haberman and flags were scored low; some fifty rules were "
        "tried, most in no file",
    ),
    Comparison("the same after a softmax", "trust-learnt"),
    Comparison("the same once more", "trust-fresh"),
    Comparison(
        "trust where the frequent are seldom right",
        "trust-seldom",
        "looked for because FedAwS scored low on test rows of flags and tae; the rule before was chosen "
        "on 14 of them",
    ),
    Comparison("the same, on made-up tables", "trust-seldom-made-up"),
    Comparison(
        "the same, looked at once",
        "trust-seldom-drawn",
        "eleven are among the next 18, the others have more rows; the rule before was chosen on 12",
    ),
    Comparison(
        "the same in whole default runs, looked at once",
        "seldom-fresh",
        "every score is as it was before; the earlier rule was chosen on 13 of them",
    ),
    Comparison(
        "numbers in 4,000 rows or more are kept",
        "dropout",
        "looked for because FedAwS and FedSS scored low on the test rows of letter",
    ),
    Comparison(
        "dropped features and rounds of tables",
        "tables",
        "credit.g, glass, ionosphere, letter, pendigits, segment and vowel are on the "
        "[other page](defaults.md#what-the-defaults-reach), too",
    ),
    Comparison(
        "the same, looked at once",
        "fresh-tables",
        "six of the eight had been scored with an earlier form; rows of all eight are among "
        "those that trust was chosen on",
    ),
    Comparison(
        "rare words move less",
        "rare-words",
        "looked for because FedAwS was behind ridge on made-up texts; sms-spam and airline-tweets had "
        "been scored by test rows; synthetic-100 is why the rule is for more words than texts",
    ),
    Comparison("the same, looked at once", "rare-words-fresh", "bbc had been scored before"),
    Comparison("longer or wider runs of tables", "length", "changed nothing"),
    Comparison("linear networks and plain steps for wide tables", "wide", "changed nothing"),
    Comparison(
        "roots of features with long tails",
        "roots",
        "the limit was to be chosen on every second set and judged on the others; changed nothing",
    ),
    Comparison("the same, on made-up tables", "roots-made-up"),
    Comparison(
        "the same where a quarter of the quantities have long tails",
        "roots-fresh",
        "the share was chosen on the sets of `roots`; steel, with less than that share, is here too; "
        "changed nothing",
    ),
    Comparison(
        "popularity where a dual encoder is not surely better",
        "popularity",
        "the rule is that of classes; it was looked for because test users of logs scored low",
    ),
)


def compared(comparisons: Sequence[Comparison] = COMPARISONS) -> str:
    """A line for every comparison: its sets, which of their rows, seeds and methods."""
    rows = [
        [one.rule, _file(one), *_rows_of(one, read(f"results/defaults/{one.file}.json")), one.more]
        for one in comparisons
    ]
    return table(("rule", "file", "sets", "rows", "seeds", "methods", ""), rows)


def _file(one: Comparison) -> str:
    return f"[`{one.file}`](/results/defaults/{one.file}.json)"


def _rows_of(one: Comparison, made: Made) -> list[str]:
    runs = [run for run in made.get("runs", []) if one.only in ("", run["set"])]
    sets = sorted({run["set"] for run in runs}) or [_name(found) for found in made["sets"]]
    splits = dict.fromkeys(run.get("split", "test") for run in runs)
    rows = ROWS.get(one.file) or ", ".join(SPLITS[split] for split in splits)
    seeds = _most_seeds(made, runs)
    methods = dict.fromkeys(run["method"] for run in (runs or made.get("rules", [])) if "method" in run)
    named = ", ".join(sets) if len(sets) <= FEW else str(len(sets))
    return [named, rows, seeds, ", ".join(f"`{method}`" for method in methods)]


def _name(found: str | Made) -> str:
    return found if isinstance(found, str) else str(found["set"])


def _most_seeds(made: Made, runs: Sequence[Made]) -> str:
    """Of the rules' own count, or as many as any set has; some sets may have fewer."""
    if isinstance(made.get("seeds"), list):
        return str(len(made["seeds"]))
    if runs and "seeds" in runs[0]:
        return str(runs[0]["seeds"])
    by_set: dict[str, set[int]] = {}
    for run in runs:
        by_set.setdefault(run["set"], set()).add(run["seed"])
    counts = sorted({len(seeds) for seeds in by_set.values()})
    return " or ".join(map(str, counts)) if counts else ""
