"""Small sets: a few rows of a published training part to train on, its other rows to judge by.

    python -m benchmarks.defaults.small_sets --data ~/mulan --rows 200 --methods fedss,fedaws

`--data` names a folder with one folder for each set: one ARFF file, the published training part, and its
XML. A test part is never read. `--arms` are ways to find a prior over classes. Results are added to
`results/defaults/small-sets.json`, and what is there already is not run again.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common import record
from benchmarks.common.paths import RESULTS
from benchmarks.defaults.__main__ import add
from benchmarks.defaults.jobs import Job, parser_for, run_all

OUT = RESULTS / "defaults" / "small-sets.json"
ARMS: dict[str, tuple[str, ...]] = {
    "none": ("method.prior=0",),
    "validation": ("method.prior=validation",),
    "auto": ("method.prior=auto",),
    "likelihood": ("method.prior=likelihood",),
}
MOST = 2000  # rows to judge by


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, sets="", methods=("fedss",), seeds="0,1,2", out=OUT)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", default="200")
    parser.add_argument("--arms", default=",".join(ARMS))
    given = parser.parse_args(arguments)
    commit = record.commit()
    known = {_key(run) for run in record.read(given.out)["runs"]} if given.out.exists() else set()
    names = given.sets.split(",") if given.sets else sorted(one.name for one in given.data.iterdir())
    with tempfile.TemporaryDirectory() as place:
        jobs = [
            Job(f"{name}-{rows}", method, seed, ARMS[arm], device="cpu", data=data)
            for name in names
            for rows in map(int, given.rows.split(","))
            for seed in map(int, given.seeds.split(","))
            for data in [_data(given.data / name, rows, seed, Path(place))]
            for method in given.methods.split(",")
            for arm in given.arms.split(",")
        ]
        open_jobs = [job for job in jobs if _key(job.about) not in known]
        for _, found in run_all(open_jobs, given.workers, given.seconds):
            add(given.out, {**found, "commit": commit})


def _data(folder: Path, rows: int, seed: int, place: Path) -> dict[str, str]:
    return {"source": "mulan", "path": str(drawn(folder, rows, seed, place))}


def _key(run: dict[str, object]) -> tuple[object, ...]:
    return run["set"], run["method"], run["seed"], *run.get("changes", [])  # type: ignore[misc]


def drawn(folder: Path, rows: int, seed: int, place: Path) -> Path:
    """A folder with so many rows of the set as its training part and others as its test part."""
    (source,), (labels,) = folder.glob("*.arff"), folder.glob("*.xml")
    head, lines = _halves(source.read_text().splitlines())
    random.Random(f"{folder.name} {rows} {seed}").shuffle(lines)
    out = place / f"{folder.name}-{rows}-{seed}"
    out.mkdir(parents=True)
    for part, some in (("train", lines[:rows]), ("test", lines[rows : rows + MOST])):
        (out / f"{folder.name}-{part}.arff").write_text("\n".join([*head, *some, ""]))
    (out / f"{folder.name}.xml").write_bytes(labels.read_bytes())
    return out


def _halves(lines: list[str]) -> tuple[list[str], list[str]]:
    """The header with its @data, and the rows."""
    at = next(i for i, line in enumerate(lines) if line.strip().lower() == "@data") + 1
    return lines[:at], [line for line in lines[at:] if line.strip() and not line.startswith("%")]


def by_arm(runs: Sequence[dict[str, object]]) -> Iterator[tuple[tuple[object, ...], dict[str, float]]]:
    """For each set and method the mean P@1 of its arms over seeds."""
    found: dict[tuple[object, ...], dict[str, list[float]]] = {}
    for run in runs:
        arm = next(name for name, changes in ARMS.items() if list(changes) == run["changes"])
        cell = found.setdefault((run["set"], run["method"]), {})
        cell.setdefault(arm, []).append(run["metrics"]["P@1"])  # type: ignore[index]
    for key, arms in found.items():
        yield key, {arm: sum(scores) / len(scores) for arm, scores in arms.items()}


if __name__ == "__main__":
    main()
