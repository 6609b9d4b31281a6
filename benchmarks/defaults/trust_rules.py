"""When a model is trusted, and how far, that may be no better than the prior: rules on the same models.

    python -m benchmarks.defaults.trust_rules --npz heart=heart.npz --keep cosines

Each model is trained once, with `--keep` for its cosines at every evaluation (as `prior_rules` has it).
Then each rule ranks by the model's own τ, by the likeliest one, or by the prior alone. A rule is by
how many standard errors a model is to put more examples right to keep its τ, and by how much (twice the
log-likelihood) labels are to be likelier by the likeliest τ than by the prior; else the prior ranks.
The likeliest τ is found with n_c as it is, or with an exponent that is fitted. `--rules` names some.
`--share` holds out another part of the training rows for validation. Writes the mean P@1 over all sets
and seeds, how many runs are below always the most frequent label, and by how many points together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import record
from benchmarks.common.command import command, refuse_unknown
from benchmarks.common.paths import RESULTS
from benchmarks.defaults.cosines import PLAIN, cosines_of, is_over, kept_of, precision
from benchmarks.defaults.jobs import Job, own_sets, parser_for
from benchmarks.defaults.prior_rules import by_rank
from spreadout.evaluation import cautious_prior, prior, prior_alone
from spreadout.evaluation.scoring import log_prior

OUT = RESULTS / "defaults" / "trust-rules.json"
NEVER = math.inf
HIDDEN = ("fedss", "fedavg")  # methods whose counts are those of the validation part
AS_IT_IS = (1.0,)  # exponents of n_c
FITTED = (0.0, 0.25, 0.5, 0.75, 1.0)
RULES = {  # standard errors; twice the log-likelihood; exponents
    "the model's own weight": (-NEVER, 0.0, AS_IT_IS),
    "the likeliest weight": (NEVER, -NEVER, AS_IT_IS),
    "1 error, else the prior": (1.0, NEVER, AS_IT_IS),
    "1.5 errors, else the prior": (1.5, NEVER, AS_IT_IS),
    "2 errors, else the prior": (2.0, NEVER, AS_IT_IS),
    "1 error, else likeliest beyond 3.84": (1.0, 3.84, AS_IT_IS),
    "2 errors, else likeliest beyond 0": (2.0, 0.0, AS_IT_IS),
    "2 errors, else likeliest beyond 2": (2.0, 2.0, AS_IT_IS),
    "2 errors, else likeliest beyond 3.84": (2.0, 3.84, AS_IT_IS),
    "2 errors, else likeliest beyond 6": (2.0, 6.0, AS_IT_IS),
    "3 errors, else likeliest beyond 3.84": (3.0, 3.84, AS_IT_IS),
    "exponent 0": (2.0, 3.84, (0.0,)),
    "exponent 0.25": (2.0, 3.84, (0.25,)),
    "exponent 0.5": (2.0, 3.84, (0.5,)),
    "exponent 0.75": (2.0, 3.84, (0.75,)),
    "exponent 0.5, beyond 2.71": (2.0, 2.71, (0.5,)),
    "exponent 0.5, beyond 6": (2.0, 6.0, (0.5,)),
    "exponent fitted": (2.0, 3.84, FITTED),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, sets="", methods=("fedaws", "fedss"), seeds="0,1,2", out=OUT)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--rules", type=lambda text: text.split("; "), help='by name, parted by "; "')
    given = parser.parse_args(arguments)
    refuse_unknown("--rules", given.rules or (), RULES)
    given.keep.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for method in given.methods:
        scored: list[dict[str, float]] = []
        for name, data in own_sets(given).items():
            for seed in given.seeds:
                path = given.keep / f"{name}-{given.share}-{seed}-{method}.pt"
                if not path.exists():
                    changes = (*PLAIN, f"data.validation_fraction={given.share}")
                    torch.save(cosines_of(Job(name, method, seed, changes, data=data)), path)
                scored.append(scores(torch.load(path), own=method in HIDDEN))
        wanted = given.rules or list(RULES)
        rows += [{"method": method, "rule": rule, **_summed(scored, rule)} for rule in wanted]
        print(*rows[-len(wanted) :], sep="\n", flush=True)
    about = {"sets": sorted(own_sets(given)), "seeds": given.seeds, "share": given.share}
    record.write(given.out, {**about, "rules": rows})


def _summed(scored: Sequence[Mapping[str, float]], rule: str) -> dict[str, Any]:
    missing = [one["most frequent"] - one[rule] for one in scored]
    below = [some for some in missing if some > 1e-6]
    mean = sum(one[rule] for one in scored) / len(scored)
    return {"runs": len(scored), "P@1": round(mean, 2), "below": len(below), "by": round(sum(below), 1)}


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
    for rule, (errors, likelier, exponents) in RULES.items():
        keeps = sure or float(gained.mean()) > errors * error
        gain, likeliest = _likeliest(cosines, held, each, exponents)
        weighed = max(tau, likeliest) if 2 * gain > likelier else prior_alone.ALONE
        reached[rule] = precision(tests + (tau if keeps else weighed) * log_prior(seen), theirs)
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
