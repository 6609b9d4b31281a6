"""Ten rows of other classes beside one's own, at small parts of three extreme shapes, on a CPU.

    python -m benchmarks.papers.ten_rows     # writes results/extreme/ten-rows-small.json

Five arms of `benchmarks.papers.extreme`: the softmax in one place, FedAwS, FedSS with ten rows, FedAwS
with ten rows that are trained (`fedaws-softmax`), and FedAwS with ten rows that the encoder sees. Each
has three points and one seed; validation examples choose the point, the round and the weight of the
prior. Runs are written down one by one, and those that are there already are not made again.
"""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import read, write
from benchmarks.papers.extreme import Job, chosen, test_scores, trained
from benchmarks.papers.extreme_arms import ARMS, SETS, Made
from spreadout.core.errors import UserError

SMALL = {"amazon-670k": 0.01, "wikilshtc-325k": 0.01, "amazoncat-13k": 0.02}  # parts of the shapes
# The three of an arm's four points that validation examples liked best at the large parts, in the mean
# over shapes (`results/extreme/arms-*.json`). The last arm was not tried there: it has FedAwS's.
SPREAD = ("0.01-0.5", "0.03-0.5", "0.005-0.5")
POINTS = {
    "softmax": ("0.02-10", "0.02-20", "0.005-10"),
    "fedaws": SPREAD,
    "ten": ("0.02-10", "0.005-10", "0.02-20"),
    "fedaws-ten": ("0.02-0.002-0.003", "0.02-0.0005-0.003", "0.02-0.0005-0.001"),
    "fedaws-sees-ten": SPREAD,
}
ON_CPU = ("run.precision=float32", "run.memory_gb=1.0")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "extreme" / "ten-rows-small.json")
    parser.add_argument("--rounds", type=int, help="instead of each shape's own, for a quick look")
    a = parser.parse_args()
    sets = read(a.out)["sets"] if a.out.exists() else {}
    for job in jobs(a.rounds):
        kept = sets.setdefault(job.shape, {"scale": job.of.scale, "runs": {}})
        if job.key not in kept["runs"]:
            kept["runs"][job.key] = attempted(job, kept)
            write(a.out, {"seeds": 1, "threads": 1, "sets": sets}, quiet=True)
    for shape, kept in sets.items():
        for arm in POINTS:
            if point := chosen(kept, arm, "prior"):
                scores = test_scores(kept, arm, point, "prior")[0]
                print(f"{shape:16} {ARMS[arm].label:40} {point:18} {scores['P@1']:.1f}")


def jobs(rounds: int | None = None) -> list[Job]:
    """A point of every arm at all shapes, then the next: what is cut short compares equally many."""
    return [
        Job(shape, SETS[shape].resized(scale, rounds), arm, points[place])
        for place in range(len(POINTS["fedaws"]))
        for shape, scale in SMALL.items()
        for arm, points in POINTS.items()
    ]


def attempted(job: Job, kept: Made) -> Made:
    """A run's scores, or why it has none."""
    torch.set_num_threads(1)
    try:
        found = trained(job, "cpu", ON_CPU)
    except (UserError, RuntimeError) as error:
        print(f"{job.shape} {job.key}: {error}", flush=True)
        return {"failed": str(error).splitlines()[0]}
    kept["constant"] = found.pop("constant")
    told = " / ".join(f"{found[part]['prior']['P@1']:.1f}" for part in ("validation", "test"))
    print(f"{job.shape} {job.key}: {told}, {found['seconds']:.0f} s", flush=True)
    return found


if __name__ == "__main__":
    command(main)
