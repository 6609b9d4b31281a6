"""Benchmarks: `papers` makes the papers' tables, `speed` times, `peers` sets us beside others.

All are run from the repository root as modules, `python -m benchmarks.speed.simulator`, and write a file
below `results/`; `python -m benchmarks.quote` puts the numbers of those files into the documents.
"""
