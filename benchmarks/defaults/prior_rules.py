"""Ways to find a prior over classes on few validation examples, compared on the same trained models.

    python -m benchmarks.defaults.prior_rules --data ~/mulan --keep scores --rows 200

Training does not depend on the prior of FedSS and FedAwS. So each model is trained once, its cosines
with all classes are kept at every evaluation (in `--keep`), and each rule chooses its τ, the kept round
and the end of training by them, as a run would. "Cautiously" is the package's own choice; unguarded is
what it was before it looked at first places. `--data` names a folder with one folder for each set: one
ARFF file, the published training part, and its XML. Of its rows some are drawn to train on, and the
others are to judge by: a test part is never read. Writes `results/defaults/prior-rules.json`: the mean
P@1 over seeds by set, method and rule.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import record
from benchmarks.common.command import at_least_one, command, refuse_unknown
from benchmarks.common.paths import RESULTS
from benchmarks.defaults.cosines import PLAIN, cosines_of, is_over, kept_of, precision
from benchmarks.defaults.jobs import Job, parser_for
from benchmarks.defaults.small_sets import drawn
from spreadout.core.errors import UserError
from spreadout.evaluation import cautious_prior, prior
from spreadout.evaluation.cautious_prior import STEEPNESS
from spreadout.evaluation.scoring import log_prior

OUT = RESULTS / "defaults" / "prior-rules.json"
Choice = Callable[[Tensor, Tensor, Tensor], float]  # cosines, labels and log n_c of each example to τ
Rule = Callable[[Tensor, Tensor, Tensor], Tensor]  # cosines, labels and clients' counts to τ · log n_c


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, sets="", methods=("fedss", "fedaws"), seeds="0,1,2", out=OUT)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--rows", type=at_least_one, default=200)
    given = parser.parse_args(arguments)
    if not given.data.is_dir():
        raise UserError(f"--data {given.data}: no such folder")
    there = sorted(one.name for one in given.data.iterdir())
    refuse_unknown("--sets", given.sets, there)
    given.keep.mkdir(parents=True, exist_ok=True)
    rows = []
    for method in given.methods:
        for name in given.sets or there:
            found = []
            for seed in given.seeds:
                path = given.keep / f"{name}-{given.rows}-{seed}-{method}.pt"
                if not path.exists():
                    torch.save(trained(given.data / name, given.rows, seed, method), path)
                found.append(scores(torch.load(path)))
            means = {arm: round(sum(one[arm] for one in found) / len(found), 2) for arm in found[0]}
            rows.append(
                {"set": f"{name}-{given.rows}", "method": method, "seeds": len(found), "P@1": means}
            )
            print(rows[-1], flush=True)
    record.write(given.out, {"runs": rows})


def trained(folder: Path, rows: int, seed: int, method: str) -> dict[str, Any]:
    """Cosines of a model of so many rows, in half of the bits."""
    with tempfile.TemporaryDirectory() as place:
        data = {"source": "mulan", "path": str(drawn(folder, rows, seed, Path(place)))}
        return cosines_of(Job(folder.name, method, seed, PLAIN, data=data), torch.half)


def scores(made: Mapping[str, Tensor]) -> dict[str, float]:
    """P@1 on the test part for each rule, and of always the most frequent label."""
    right = made["test labels"]
    trivial = 100 * float(right[:, int(made["counts"].argmax())].double().mean())
    return {"most frequent": trivial, **{name: _kept(made, rule) for name, rule in RULES.items()}}


def _kept(made: Mapping[str, Tensor], rule: Rule) -> float:
    """Of the model that a run keeps."""
    held, chosen, reached = made["validation labels"], list[float](), list[float]()
    labelled = held.any(1)
    for ours, theirs in zip(made["validation"].float(), made["test"].float(), strict=True):
        bias = rule(ours[labelled], held[labelled], made["counts"])
        chosen.append(precision(ours + bias, held))
        reached.append(precision(theirs + bias, made["test labels"]))
        if is_over(chosen):
            break
    return reached[kept_of(chosen, len(held))]


def _none(cosines: Tensor, right: Tensor, counts: Tensor) -> Tensor:
    return torch.zeros(len(counts))


def by_rank(cosines: Tensor, right: Tensor, counts: Tensor) -> Tensor:
    found = [float(_ranked(cosines + tau * log_prior(counts), right).mean()) for tau in prior.TRIED]
    return prior.TRIED[found.index(max(found))] * log_prior(counts)


def _by_likelihood(cosines: Tensor, right: Tensor, counts: Tensor) -> Tensor:
    owner, label = right.nonzero(as_tuple=True)
    return log_prior(counts) / prior.steepness(cosines, owner, label, log_prior(counts))


def _held_out_by_rank(cosines: Tensor, right: Tensor, counts: Tensor) -> Tensor:
    """The smallest τ as good as the best, as far as chance can tell."""
    seen = 1 + right.sum(0).float()
    bias = torch.log(seen - right.float())  # no example votes for itself
    tried = sorted((*prior.TRIED, 1.0, 2.0), reverse=True)
    values = torch.stack([_ranked(cosines + tau * bias, right) for tau in tried])
    return tried[cautious_prior.last_as_good(values)] * log_prior(seen)


def _held_out(cosines: Tensor, right: Tensor, counts: Tensor, choose: Choice) -> Tensor:
    seen = 1 + right.sum(0).float()
    return choose(cosines, right.float(), torch.log(seen - right.float())) * log_prior(seen)


def _clients(cosines: Tensor, right: Tensor, counts: Tensor, choose: Choice) -> Tensor:
    return choose(cosines, right.float(), log_prior(counts).expand_as(cosines)) * log_prior(counts)


def _likely(cosines: Tensor, right: Tensor, bias: Tensor) -> float:
    """What the package chose before it looked at first places."""
    values = cautious_prior.log_likelihood(cosines, right, bias)
    return 1 / STEEPNESS[cautious_prior.last_as_good(values)]


def _ranked(ranking: Tensor, right: Tensor) -> Tensor:
    """The mean of P@1, P@3 and P@5 of each example: (n,)."""
    depths = [k for k in prior.LOOKS_AT if k <= ranking.shape[1]]
    hits = right.gather(1, ranking.topk(max(depths), 1).indices).double().cumsum(1)
    return torch.stack([hits[:, k - 1] / k for k in depths]).mean(0)


RULES: dict[str, Rule] = {
    "no prior": _none,
    "clients' counts, by rank": by_rank,
    "clients' counts, by likelihood": _by_likelihood,
    "clients' counts, cautiously, unguarded": partial(_clients, choose=_likely),
    "clients' counts, cautiously": partial(_clients, choose=cautious_prior.weight),
    "validation counts, by rank": _held_out_by_rank,
    "validation counts, cautiously, unguarded": partial(_held_out, choose=_likely),
    "validation counts, cautiously": partial(_held_out, choose=cautious_prior.weight),
}


if __name__ == "__main__":
    command(main)
