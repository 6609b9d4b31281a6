"""Runs of several files into one: processes that write side by side each have a file of their own.

    python -m benchmarks.defaults.merge results/defaults/table.json gpu-1.json gpu-2.json

A run takes the place of one of the same set, method, seed, part and changes in a file before it.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.command import command
from benchmarks.defaults.run_file import key_of, merge, runs_in


def main(arguments: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("into", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    for file in given.files:
        if not file.is_file():
            parser.error(f"{file}: no such file")
        known, runs = {key_of(run) for run in runs_in(given.into)}, runs_in(file)
        again = sum(key_of(run) in known for run in runs)
        merge(given.into, runs, quiet=True)
        print(f"{file}: {len(runs) - again} runs added, {again} replaced")


if __name__ == "__main__":
    command(main)
