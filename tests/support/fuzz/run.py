"""`make fuzz`: every target in turn for its share of the time; what is found is kept in the corpus."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from importlib.util import find_spec

from fuzz import every_target
from fuzz.target import FoundError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--only", default="", help="Targets whose name has this in it.")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    told = parser.parse_args()
    targets = [target for target in every_target() if told.only in target.name]
    guided = find_spec("atheris") is not None
    share, found = told.seconds / len(targets) / (1 + guided), 0
    for target in targets:
        try:
            ran, done = target.long(share, told.seed)
        except FoundError as error:
            found += 1
            print(f"{target.name}: FOUND, kept as {target.keep(error.case)}", flush=True)
            for line in traceback.format_exception(error.__cause__, limit=-5)[-14:]:
                print(line[:400].rstrip())
        else:
            print(
                f"{target.name}: {ran} cases, {done} read or run, the rest refused in one line",
                flush=True,
            )
    if guided:
        found += _guided(told)
    print(f"{len(targets)} targets, {found} found (--seed {told.seed})")
    return 1 if found else 0


def _guided(told: argparse.Namespace) -> int:
    """The other half of the time, guided by coverage; how many cases were found: it ends with one."""
    command = [sys.executable, "-W", "ignore", "-m", "fuzz.guided", "--seconds", str(told.seconds / 2)]
    command += ["--only", told.only, "--seed", str(told.seed)]
    done = subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        print(f"guided by coverage: the process ended with {done.returncode}")
    return int(done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
