"""The same targets driven by coverage: atheris chooses what Hypothesis draws, towards lines not run yet.

`make fuzz` spends half of its time so where atheris is installed. All targets are one to libFuzzer, which
does not return: `fuzz.run` starts this module as a process of its own. What is found is kept in the corpus.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

with atheris.instrument_imports(include=["spreadout"]):
    from fuzz import every_target

    TARGETS = every_target()  # it imports all that is fuzzed

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.target import Target

SEEDS, LONGEST = 60, 8192  # inputs to begin with; bytes of an input: too few are no case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--only", default="", help="Targets whose name has this in it.")
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    targets = [target for target in TARGETS if told.only in target.name]
    with tempfile.TemporaryDirectory(prefix="fuzz-seen-") as seen:
        for i in range(SEEDS):
            start = random.Random(f"{told.seed} {i}").randbytes(LONGEST // 2)
            (Path(seen) / str(i)).write_bytes(start)
        flags = [f"-seed={told.seed}", f"-max_len={LONGEST}", "-len_control=0", "-timeout=0",
                 "-rss_limit_mb=0", "-verbosity=0"]  # fmt: skip
        atheris.Setup([sys.argv[0], *flags, seen], tried(targets, time.monotonic() + told.seconds))
        atheris.Fuzz()


def tried(targets: Sequence[Target], end: float) -> Callable[[bytes], None]:
    """What libFuzzer calls with bytes, each time with others; at the end it ends the process."""
    by_name = {target.name: target for target in targets}
    last: list[Any] = []
    tally: Counter[str] = Counter()

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(sorted(by_name)).flatmap(lambda n: st.tuples(st.just(n), by_name[n].cases)))
    def one(named: tuple[str, Any]) -> None:
        last[:] = named
        tally[by_name[named[0]].run(named[1])[:4]] += 1

    def call(data: bytes) -> None:
        code = 0
        try:
            one.hypothesis.fuzz_one_input(data)  # type: ignore[attr-defined]
        except BaseException:
            name, case = last
            print(f"{name}: FOUND, kept as {by_name[name].keep(case)}")
            traceback.print_exc(limit=-5, file=sys.stdout)
            code = 1
        if code or time.monotonic() > end:
            print(f"guided by coverage: {tally.total()} cases, {tally['done']} read or run", flush=True)
            os._exit(code)

    return call


if __name__ == "__main__":
    main()
