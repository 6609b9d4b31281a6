"""Sound by default: every method on every set with nothing but data and method named.

    python -m benchmarks.defaults --sets digits,bibtex --methods fedaws,fedss --seeds 0,1,2

Results are added to `results/defaults/table.json` one by one; what is there already is not run again,
unless `--again` says so: then the new result takes its place. Processes that run side by side write to
files of their own (`--out`), which `benchmarks.defaults.merge` puts together. With `--runs FOLDER` a run
that is cut short, by `--seconds` or by a kill, goes on when the same command is called again.
`--folder NAME=PATH` adds a folder in one of the published formats (Mulan's ARFF, xc text) as a set, and
`--npz NAME=PATH` a file of arrays.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.common import record
from benchmarks.common.command import command
from benchmarks.common.paths import RESULTS
from benchmarks.defaults.jobs import METHODS, Job, own_sets, pairs_of, parser_for, run_all
from benchmarks.defaults.run_file import add, key_of, runs_in

OUT = RESULTS / "defaults" / "table.json"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, sets="digits,bibtex,delicious", methods=METHODS, seeds="0", out=OUT)
    told = (
        "keep runs here until they end: what --seconds or a kill cuts short goes on with the next call"
    )
    parser.add_argument("--runs", type=Path, help=told)
    given = parser.parse_args(arguments)
    commit = record.commit()  # of the code that runs, not of what the tree holds when a run ends
    known = set() if given.again else {key_of(run) for run in runs_in(given.out)}
    jobs = [replace(job, device=given.device) for job in _jobs(given) if key_of(job.about) not in known]
    for _, found in run_all(jobs, given.workers, given.seconds, given.runs):
        add(given.out, {**found, "commit": commit})


def _jobs(given: argparse.Namespace) -> Iterator[Job]:
    own = own_sets(given)
    for seed in given.seeds:
        for name, method in pairs_of(given, own):
            yield Job(name, method, seed, data=own.get(name, {}))


if __name__ == "__main__":
    command(main)
