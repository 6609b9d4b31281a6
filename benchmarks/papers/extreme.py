"""Table 3 of FedAwS at three extreme shapes: every arm equally tuned, and tested once as chosen.

    python -m benchmarks.papers.extreme --jobs 8 --seconds 540        # on a GPU; results/extreme/arms-*
    python -m benchmarks.papers.extreme --sets amazon-670k --further  # four more points for every arm
    python -m benchmarks.papers.extreme --profile                     # what a round of each arm takes
    python -m benchmarks.papers.extreme --sets amazoncat-13k --rows   # the price of seeing nothing
    python -m benchmarks.papers.extreme --sets amazoncat-13k --draw   # its picture, from the file
    python -m benchmarks.papers.extreme --sets amazoncat-13k --neighbours --scale 0.1   # Table 4

Every arm has four points, trained on the same examples with a part held out; that part chooses the
point, the round and the weight of the prior. A prior only ranks, so an arm with one and its twin without
one are one training that is scored twice, and each chooses for itself. The chosen points are trained
again with other seeds while there is time. Runs are written down one by one, and those that are there
already are not made again.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

import torch

from benchmarks.common.command import at_least_one, command, duration, fraction, parser_of
from benchmarks.common.paths import RESULTS, ROOT
from benchmarks.common.record import commit, read, write
from benchmarks.common.start import start
from benchmarks.common.timing import time_rounds
from benchmarks.papers.extreme_arms import (
    ARMS,
    SAME,
    SETS,
    Arm,
    Made,
    Set,
    experiment,
    neighbour_arms,
    rows_arms,
)
from benchmarks.papers.seen_rows import draw_rows
from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.core.state import ServerState
from spreadout.data.held_out import Examples
from spreadout.data.load import DataConfig, load_data
from spreadout.data.splits import Splits
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.evaluate import evaluate, frequencies, needed_frequencies
from spreadout.evaluation.metrics import compute
from spreadout.runs.build import pick_device
from spreadout.runs.result import Result
from spreadout.runs.summary import peak_memory
from spreadout.runs.train import run

RANKED = ("P@1", "P@3", "P@5")
SCORED = (*RANKED, "PSP@1", "PSP@3", "PSP@5")
JUDGED = "P@1"  # on validation examples, by which points are chosen


@dataclass(frozen=True)
class Job:
    """One training."""

    shape: str
    of: Set
    arm: str
    point: str
    seed: int = 0

    @property
    def key(self) -> str:
        return f"{self.arm} {self.point} {self.seed}"

    def experiment(self, changes: Sequence[str]) -> Experiment:
        return experiment(self.shape, self.of, self.arm, self.point, self.seed, changes)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=sorted(SETS))
    parser.add_argument("--arms", nargs="+", help="these only")
    parser.add_argument("--rows", action="store_true", help="arms by rows beside a client's own")
    parser.add_argument("--neighbours", action="store_true", help="arms by how many push a row")
    parser.add_argument("--seconds", type=duration, default=1e9, help="after which no run is begun")
    parser.add_argument("--jobs", type=at_least_one, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS / "extreme")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="for a quick look")
    parser.add_argument("--scale", type=fraction, help="of the shape, instead of its own")
    parser.add_argument("--rounds", type=int, help="instead of the set's own")
    parser.add_argument("--points", type=int, help="so many of each arm, for a quick look")
    parser.add_argument("--further", action="store_true", help="try the further points of each arm too")
    parser.add_argument("--profile", action="store_true", help="time some rounds of each arm")
    parser.add_argument("--draw", action="store_true", help="only the pictures of what --rows has made")
    a = parser.parse_args()
    if a.draw:
        for shape in a.sets:
            draw(shape, read(_path(a.out, shape, "rows")))
        return
    table = "rows" if a.rows else "neighbours" if a.neighbours else "arms"
    known = {"rows": rows_arms(), "neighbours": neighbour_arms(), "arms": ARMS}[table]
    if a.further:
        known = {name: replace(arm, points=arm.every) for name, arm in known.items()}
    if unknown := [name for name in a.arms or [] if name not in known]:
        raise UserError(f"--arms {unknown[0]}: is none of {', '.join(known)}")
    most = 1 if a.profile else a.points or max(len(one.points) for one in known.values())
    arms = {
        name: replace(arm, points=dict(islice(arm.points.items(), most)))
        for name, arm in known.items()
        if name in (a.arms or known)
    }
    kept = {shape: _kept(_path(a.out, shape, table)) for shape in a.sets}
    if a.rows:
        for shape in a.sets:
            take_over(kept[shape], _kept(_path(a.out, shape, "arms")), arms)
    sets = {shape: SETS[shape].resized(a.scale, a.rounds) for shape in a.sets}
    # A point of every arm, then the next: oracles, which take most memory, are not all at once.
    first = [
        Job(shape, of, arm, list(one.points)[place])
        for place in range(most)
        for arm, one in arms.items()
        for shape, of in sets.items()
        if place < len(one.points)
    ]
    if a.profile:
        profile(first, a.device, a.set)
        return
    deadline = time.monotonic() + a.seconds
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(a.jobs, context) as pool:
        waiting, begun, seen = list(first), dict[Future[Made], Job](), set[Job]()
        while waiting or begun:
            while waiting and len(begun) < a.jobs and time.monotonic() < deadline:
                job = waiting.pop(0)
                if job in seen:
                    continue
                seen.add(job)
                if job.key in kept[job.shape]["runs"]:
                    waiting += again(job, kept[job.shape], arms, a.seeds)
                else:
                    begun[pool.submit(trained, job, a.device, a.set)] = job
            if not begun:
                break
            for done in wait(begun, return_when=FIRST_COMPLETED).done:
                job = begun.pop(done)
                keep(job, done, kept[job.shape], _path(a.out, job.shape, table))
                waiting += again(job, kept[job.shape], arms, a.seeds)
    for shape, made in kept.items():
        for line in lines(shape, made, arms):
            print(line)


def take_over(kept: Made, made: Made, arms: Mapping[str, Arm]) -> None:
    """Runs with no, ten or all rows beside one's own that an arm of the other table has made."""
    for rows, arm in SAME.items():
        for key, one in made["runs"].items():
            whose, point, seed = key.split(" ")
            if rows in arms and whose == arm and point in arms[rows].points:
                kept["runs"].setdefault(f"{rows} {point} {seed}", one)
    if "constant" in made:
        kept.setdefault("constant", made["constant"])


def _path(out: Path, shape: str, table: str) -> Path:
    return out / f"{table}-{shape}.json"


def _kept(path: Path) -> Made:
    return read(path) if path.exists() else {"runs": {}}


def keep(job: Job, done: Future[Made], kept: Made, path: Path) -> None:
    """A run's scores beside the others of its file; one that failed is said and left out."""
    try:
        found = done.result()
    except (UserError, RuntimeError) as error:
        print(f"{job.shape} {job.key}: {error}", flush=True)
        found = {"failed": str(error).splitlines()[0]}
    kept["runs"][job.key] = found
    if "constant" in found:
        kept["constant"] = found.pop("constant")
    write(
        path, {"shape": job.shape, **{k: kept[k] for k in ("constant", "runs") if k in kept}}, quiet=True
    )
    if "failed" not in found:
        scores = {way: found["validation"][way][JUDGED] for way in ("without", "prior")}
        print(
            f"{job.shape} {job.key}: {scores} {found['seconds']:.0f} s {found['peak_gb']} GB", flush=True
        )


def again(job: Job, kept: Made, arms: Mapping[str, Arm], seeds: int) -> list[Job]:
    """The chosen points of an arm with the other seeds, once all its points have been tried."""
    points = arms[job.arm].points
    if job.seed or any(f"{job.arm} {point} 0" not in kept["runs"] for point in points):
        return []
    wanted = dict.fromkeys(filter(None, (chosen(kept, job.arm, way) for way in ("prior", "without"))))
    return [replace(job, point=point, seed=seed) for point in wanted for seed in range(1, seeds)]


def chosen(kept: Made, arm: str, way: str) -> str | None:
    """The point of an arm that is best on validation examples, ranked with the prior or without.

    Further points count where all arms have theirs: else some would have had more to choose from.
    """
    found, tried = {}, {tuple(key.split(" ")[:2]) for key in kept["runs"]}
    further = {(name, point) for name, one in ARMS.items() for point in one.further}
    passed_over = set() if further <= tried else further
    for key, one in kept["runs"].items():
        whose, point, seed = key.split(" ")
        if (whose, point) in passed_over:
            continue
        if whose == arm and seed == "0" and "failed" not in one:
            found[point] = one["validation"][way][JUDGED]
    return max(found, key=lambda point: found[point]) if found else None


def test_scores(kept: Made, arm: str, point: str | None, way: str) -> list[Made]:
    """Of a point of an arm, on the test part, by seed."""
    ours = (one for key, one in kept["runs"].items() if key.rpartition(" ")[0] == f"{arm} {point}")
    return [one["test"][way] for one in ours if "failed" not in one]


def draw(shape: str, kept: Made) -> None:
    """P@k by the rows that a client gets beside its own, each with its chosen point."""

    def score(rows: str, way: str, metric: str) -> float:
        found = test_scores(kept, rows, chosen(kept, rows, way), way)
        return statistics.fmean(one[metric] for one in found)

    path = ROOT / "docs" / "images" / f"seen-rows-{shape}.svg"
    draw_rows(shape, [rows for rows in rows_arms() if chosen(kept, rows, "prior")], score, path)


@cache
def loaded(config: str) -> Splits:
    """A set is read once by every process: the split of a run does not depend on its seed."""
    return load_data(DataConfig.model_validate_json(config), 0)


def trained(job: Job, device: str, changes: Sequence[str] = ()) -> Made:
    """A run to its end, and the scores of its best round on both held-out parts."""
    torch.set_num_threads(1)  # the others are at work too
    made = job.experiment(changes)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    data = loaded(made.data.model_dump_json())
    result = run(made, data=data, device=device, progress=False)
    found: Made = {
        "seconds": round(result.summary["seconds"], 1),
        "peak_gb": round(peak_memory(result.federation.device) / 2**30, 1),
        "tau": result.history[-1].get("prior"),
        "curve": {key: [one[key] for one in result.history] for key in ("round", *RANKED)},
        "bytes": _moved(result),
        "config": made.model_dump(mode="json", exclude_defaults=True),
        "commit": commit(),
    }
    assert data.validation is not None
    for part, examples in (("validation", data.validation), ("test", data.test)):
        found[part] = {
            "prior": _scores(result, result.state, examples),
            "without": _scores(result, replace(result.state, scoring={}), examples),
        }
    often = frequencies(data.train, 1).counts.argsort(descending=True)[:5]
    ranking = often.expand(len(data.test), -1)
    found["constant"] = {name: compute(name, ranking, data.test.labels) for name in RANKED}
    return found


def _scores(result: Result, state: ServerState, examples: Examples) -> dict[str, float]:
    seen = needed_frequencies(result.federation.data, EvalConfig(metrics=list(SCORED)))
    found = evaluate(result.federation.model, state, examples, SCORED, seen=seen).metrics
    return {name: round(value, 3) for name, value in found.items()}


def _moved(result: Result) -> dict[str, float]:
    """Bytes a client and round; of data in one place none."""
    told = result.summary["bytes"]
    return {way: told[way] / max(told["participations"], 1) for way in ("down", "up")}


def lines(shape: str, kept: Made, arms: Mapping[str, Arm]) -> Iterator[str]:
    """What is known so far, by arm: validation scores of the chosen point."""
    for name, arm in arms.items():
        for way in ("without", "prior"):
            if point := chosen(kept, name, way):
                scores = kept["runs"][f"{name} {point} 0"]["validation"][way]
                shown = " / ".join(f"{scores[metric]:.1f}" for metric in RANKED)
                yield f"{shape:16} {arm.label:36} {way:8} {point:16} {shown}"


def profile(jobs: Sequence[Job], device: str, changes: Sequence[str]) -> None:
    """Milliseconds a round, memory, and how long data, start and evaluation take."""
    where = pick_device(device)
    for job in sorted(jobs, key=lambda one: one.shape):
        made = job.experiment(changes)
        began = time.perf_counter()
        data = loaded(made.data.model_dump_json())
        there = time.perf_counter() - began
        if where.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        federation, state = start(made, where, data)
        rounds = time_rounds(federation, state, 20, skip=5)
        assert data.validation is not None
        began = time.perf_counter()
        evaluate(federation.model, state, data.validation, RANKED)
        judged = time.perf_counter() - began
        print(
            f"{job.shape} {job.arm}: {1000 * rounds.median:.1f} ms a round, {rounds.clients} clients, "
            f"{peak_memory(where) / 2**30:.1f} GB; data {there:.0f} s, evaluation {judged:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    command(main)
