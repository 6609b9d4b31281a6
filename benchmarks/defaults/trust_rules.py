"""When a model is trusted, and how far, that may be no better than the prior: rules on the same models.

    python -m benchmarks.defaults.trust_rules --npz heart=heart.npz --keep cosines

Each model is trained once, with `--keep` for its cosines at every evaluation (as `prior_rules` has it).
Then each rule ranks by the model's own τ, by the likeliest one, or by the prior alone. A rule is by
how many standard errors a model is to put more examples right to keep its τ, and by how much (twice the
log-likelihood) labels are to be likelier by the likeliest τ than by the prior; else the prior ranks.
Where the prior is right on fewer than a share of the validation rows, some rules take any gain.
The likeliest τ is found with n_c as it is, or with an exponent that is fitted. `--rules` names some.
`--share` holds out another part of the training rows for validation. Writes the mean P@1 over all sets
and seeds, how many runs are below always the most frequent label, and by how many points together; and
what each rule gains on the one in `BESIDE`: the mean over sets, its standard error, and the set that
loses most. `--made-up` adds tables whose inputs say little or nothing; with `--rows` each seed draws so
many rows of a set, test rows among them.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import record
from benchmarks.common.command import at_least_one, command, refuse_unknown
from benchmarks.common.paths import RESULTS
from benchmarks.defaults.cosines import PLAIN, cosines_of, is_over, kept_of, precision
from benchmarks.defaults.jobs import Job, own_sets, parser_for
from benchmarks.defaults.prior_rules import by_rank
from benchmarks.defaults.small_sets import some_rows
from spreadout.evaluation import cautious_prior, prior, prior_alone
from spreadout.evaluation.scoring import log_prior

OUT = RESULTS / "defaults" / "trust-rules.json"
NEVER = math.inf
HIDDEN = ("fedss", "fedavg")  # methods whose counts are those of the validation part
AS_IT_IS = (1.0,)  # exponents of n_c
FITTED = (0.0, 0.25, 0.5, 0.75, 1.0)


class Rule(NamedTuple):
    errors: float  # standard errors
    likelier: float  # twice the log-likelihood
    exponents: tuple[float, ...] = AS_IT_IS
    seldom: float = 0.0  # share of rows, below which any gain is enough


RULES = {
    "the model's own weight": Rule(-NEVER, 0.0),
    "the likeliest weight": Rule(NEVER, -NEVER),
    "1 error, else the prior": Rule(1.0, NEVER),
    "1.5 errors, else the prior": Rule(1.5, NEVER),
    "2 errors, else the prior": Rule(2.0, NEVER),
    "1 error, else likeliest beyond 3.84": Rule(1.0, 3.84),
    "2 errors, else likeliest beyond 0": Rule(2.0, 0.0),
    "2 errors, else likeliest beyond 2": Rule(2.0, 2.0),
    "2 errors, else likeliest beyond 3.84": Rule(2.0, 3.84),
    "2 errors, else likeliest beyond 6": Rule(2.0, 6.0),
    "3 errors, else likeliest beyond 3.84": Rule(3.0, 3.84),
    "likeliest beyond 0 where the prior has fewer than 0.4": Rule(2.0, 3.84, seldom=0.4),
    "likeliest beyond 0 where the prior has fewer than 0.5": Rule(2.0, 3.84, seldom=0.5),
    "likeliest beyond 0 where the prior has fewer than 0.6": Rule(2.0, 3.84, seldom=0.6),
    "exponent 0": Rule(2.0, 3.84, (0.0,)),
    "exponent 0.25": Rule(2.0, 3.84, (0.25,)),
    "exponent 0.5": Rule(2.0, 3.84, (0.5,)),
    "exponent 0.75": Rule(2.0, 3.84, (0.75,)),
    "exponent 0.5, beyond 2.71": Rule(2.0, 2.71, (0.5,)),
    "exponent 0.5, beyond 6": Rule(2.0, 6.0, (0.5,)),
    "exponent fitted": Rule(2.0, 3.84, FITTED),
    "exponent 0.5, beyond 0": Rule(2.0, 0.0, (0.5,)),
    "exponent 0.5, beyond 0 where the prior has fewer than 0.6": Rule(2.0, 3.84, (0.5,), seldom=0.6),
}
BESIDE = ("2 errors, else likeliest beyond 3.84", "exponent 0.5")  # of methods that tell counts, or hide


MANY = (0.35, 0.2, 0.15, 0.1, 0.08, 0.05, 0.04, 0.03)
MADE_UP = {  # rows, shares of the classes, how far these lie apart
    "noise-80-20": (160, (0.8, 0.2), 0.0),
    "noise-60-30-10": (200, (0.6, 0.3, 0.1), 0.0),
    "noise-three": (150, (1 / 3, 1 / 3, 1 / 3), 0.0),
    "noise-eight": (200, MANY, 0.0),
    "noise-45": (180, (0.45, 0.35, 0.2), 0.0),
    "weak-70-30": (200, (0.7, 0.3), 0.5),
    "weak-45": (180, (0.45, 0.35, 0.2), 0.5),
    "weak-eight": (200, MANY, 0.7),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, sets="", methods=("fedaws", "fedss"), seeds="0,1,2", out=OUT)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--rules", type=lambda text: text.split("; "), help='by name, parted by "; "')
    parser.add_argument("--rows", type=at_least_one, help="draw so many of each set")
    parser.add_argument("--made-up", action="store_true")
    given = parser.parse_args(arguments)
    refuse_unknown("--rules", given.rules or (), RULES)
    given.keep.mkdir(parents=True, exist_ok=True)
    sets = own_sets(given) | (made_up(given.keep) if given.made_up else {})
    rows: list[dict[str, Any]] = []
    for method in given.methods:
        scored: list[dict[str, float]] = []
        by_set: dict[str, list[dict[str, float]]] = {}
        for name, data in sets.items():
            for seed in given.seeds:
                path = _kept(given, Job(name, method, seed, data=data))
                scored.append(scores(torch.load(path), own=method in HIDDEN))
                by_set.setdefault(name, []).append(scored[-1])
        wanted = given.rules or list(RULES)
        for rule in wanted:
            gained = _gained(by_set, rule, BESIDE[method in HIDDEN])
            rows.append({"method": method, "rule": rule, **_summed(scored, rule), **gained})
        print(*rows[-len(wanted) :], sep="\n", flush=True)
    about = {"sets": sorted(sets), "rows": given.rows, "seeds": given.seeds, "share": given.share}
    record.write(given.out, {**about, "rules": rows})


def _kept(given: Namespace, job: Job) -> Path:
    """The file of a model's cosines; trained now, unless it was."""
    drawn = () if given.rows is None else (given.rows,)
    path: Path = (
        given.keep / f"{'-'.join(map(str, (job.set, *drawn, given.share, job.seed, job.method)))}.pt"
    )
    if not path.exists():
        data = dict(job.data)
        if given.rows is not None:
            data["path"] = str(some_rows(Path(data["path"]), given.rows, job.seed, given.keep))
        changes = (*PLAIN, f"data.validation_fraction={given.share}")
        torch.save(cosines_of(replace(job, changes=changes, data=data)), path)
    return path


def made_up(folder: Path) -> dict[str, dict[str, Any]]:
    """`[data]` of tables of twelve inputs, four of which know a little of the class, or nothing."""
    found = {}
    for seed, (name, (rows, shares, signal)) in enumerate(MADE_UP.items()):
        rng = np.random.default_rng(seed)
        y = rng.choice(len(shares), rows, p=shares)
        x = rng.normal(size=(rows, 12))
        x[:, :4] += signal * rng.normal(size=(len(shares), 4))[y]
        np.savez(folder / f"{name}.npz", x=x.astype(np.float32), y=y)
        found[name] = {"source": "npz", "path": str(folder / f"{name}.npz")}
    return found


def _summed(scored: Sequence[Mapping[str, float]], rule: str) -> dict[str, Any]:
    missing = [one["most frequent"] - one[rule] for one in scored]
    below = [some for some in missing if some > 1e-6]
    mean = sum(one[rule] for one in scored) / len(scored)
    return {"runs": len(scored), "P@1": round(mean, 2), "below": len(below), "by": round(sum(below), 1)}


def _gained(
    by_set: Mapping[str, Sequence[Mapping[str, float]]], rule: str, beside: str
) -> dict[str, Any]:
    """By how much a rule is better, a set in the mean of its seeds; left out, a set has no say in it."""
    means = {
        name: sum(one[rule] - one[beside] for one in some) / len(some) for name, some in by_set.items()
    }
    mean, worst = sum(means.values()) / len(means), min(means, key=means.__getitem__)
    spread = sum((some - mean) ** 2 for some in means.values()) / max(len(means) - 1, 1)
    return {
        "gain": round(mean, 2),
        "error": round(math.sqrt(spread / len(means)), 2),
        "worst": {"set": worst, "gain": round(means[worst], 1)},
        "gains": {name: round(some, 1) for name, some in sorted(means.items()) if abs(some) > 0.05},
    }


def scores(made: Mapping[str, Tensor], *, own: bool) -> dict[str, float]:
    """P@1 on the test part for each rule, and of always the most frequent label. One label only."""
    held, theirs = made["validation labels"], made["test labels"]
    seen = 1 + held.sum(0).float() if own else made["counts"]
    each = torch.log(seen - held.float()) if own else log_prior(seen).expand(len(held), -1)
    taus, chosen = list[float](), list[float]()
    for cosines in made["validation"]:
        few = own or len(held) < prior.FEW
        ranked = by_rank(cosines, held, seen)  # τ · log n_c
        best = float((ranked / log_prior(seen)).nan_to_num(0).max())
        taus.append(cautious_prior.weight(cosines, held.float(), each) if few else best)
        chosen.append(precision(cosines + taus[-1] * each, held))
        if is_over(chosen):
            break
    at = kept_of(chosen, len(held))
    cosines, tau = made["validation"][at], taus[at]
    right = [
        held.gather(1, (cosines + t * each).argmax(1, keepdim=True)).double()[:, 0]
        for t in (tau, prior_alone.ALONE)
    ]
    gained = right[0] - right[1]
    error = math.sqrt((float((gained - gained.mean()).square().sum()) + 1) / len(held) / (len(held) - 1))
    tests = made["test"][at]
    sure = len(held) < prior_alone.FEWEST or not prior_alone.may_replace(
        *(float(one.sum()) for one in right)
    )
    reached = {"most frequent": 100 * float(theirs[:, int(made["counts"].argmax())].double().mean())}
    for name, rule in RULES.items():
        keeps = sure or float(gained.mean()) > rule.errors * error
        gain, likeliest = _likeliest(cosines, held, each, rule.exponents)
        enough = 0.0 if float(right[1].mean()) < rule.seldom else rule.likelier
        weighed = max(tau, likeliest) if 2 * gain > enough else prior_alone.ALONE
        reached[name] = precision(tests + (tau if keeps else weighed) * log_prior(seen), theirs)
    return reached


def _likeliest(
    cosines: Tensor, held: Tensor, each: Tensor, exponents: Sequence[float]
) -> tuple[float, float]:
    """How much likelier labels are by the likeliest κ and exponent than by counts alone, and its τ."""
    found, none = [], []
    for exponent in {*exponents, *AS_IT_IS}:
        bias = exponent * each
        none.append(float(cautious_prior.log_likelihood(cosines, held.float(), bias, (0,)).sum()))
        if exponent in exponents:
            likely = cautious_prior.log_likelihood(cosines, held.float(), bias).sum(1)
            best = int(likely.argmax())
            found.append((float(likely[best]), exponent / cautious_prior.STEEPNESS[best]))
    likeliest, tau = max(found)
    return likeliest - max(none), tau


if __name__ == "__main__":
    command(main)
