"""The correlation-weighted spreadout at the size of Amazon-670K: seconds and memory on this machine.

    python -m benchmarks.speed.correlations --out results/fedalc/scale.json

Labels meet at random, in more than five million pairs. Timed are the server's step in its mined form,
for one round's classes, and the pull of Eq. 12 over all pairs that meet.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from benchmarks.common.command import command, parser_of
from benchmarks.common.record import write
from benchmarks.common.timing import timed
from spreadout.core.ragged import Ragged
from spreadout.core.rows import project_to_sphere
from spreadout.objectives.cooccurrence import CoOccurrence
from spreadout.objectives.regularizers import HingePenalty, NearPenalty, mined_pairs, stored_pairs


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--classes", type=int, default=670_091)
    parser.add_argument("--instances", type=int, default=900_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--anchors", type=int, default=512, help="classes of one round")
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--budget-mb", type=int, default=256)
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    rng = np.random.default_rng(0)
    lengths = torch.from_numpy(rng.integers(1, 7, size=a.instances))  # 3.5 labels in the mean
    values = torch.from_numpy(rng.integers(0, a.classes, size=int(lengths.sum())))
    owner = torch.repeat_interleave(torch.arange(a.instances), lengths)
    labels = Ragged.from_pairs(owner, values, a.instances)
    table = project_to_sphere(torch.randn(a.classes, a.dim))
    reset_peak()
    base = peak()
    budget = a.budget_mb << 20
    counts, count_s = timed(lambda: CoOccurrence.of(labels, a.classes))
    weights, weigh_s = timed(lambda: counts.weights(normalize=True))
    anchors = torch.from_numpy(np.sort(rng.choice(a.classes, size=a.anchors, replace=False)))
    _, mined_s = timed(
        lambda: mined_pairs(table, anchors, a.k, HingePenalty(1.0), weight=weights, budget=budget)
    )
    mined_peak = peak() - base
    _, pull_s = timed(lambda: stored_pairs(table, weights, NearPenalty(), budget=budget))
    made = {
        "classes": a.classes,
        "dim": a.dim,
        "pairs": len(counts.first) // 2,  # each is stored both ways
        "table_gb": round(table.numel() * 4 / 2**30, 2),
        "anchors": a.anchors,
        "k": a.k,
        "budget_mb": a.budget_mb,
        "seconds": {
            "count": round(count_s, 2),
            "weigh": round(weigh_s, 2),
            "mined step": round(mined_s, 2),
            "pull": round(pull_s, 2),
        },
        "extra_gb": {
            "counts and mined step": round(mined_peak, 2),
            "with the pull": round(peak() - base, 2),
        },
    }
    print(made)
    write(a.out, made)


def reset_peak() -> None:
    """Let the kernel count the most memory from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> float:
    """Most memory this process has had since then, in GiB."""
    status = Path("/proc/self/status").read_text().splitlines()
    (line,) = [one for one in status if one.startswith("VmHWM")]
    return int(line.split()[1]) / 2**20


if __name__ == "__main__":
    command(main)
