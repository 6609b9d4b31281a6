"""A comparison of forty runs, killed or interrupted ten times, ends as one that was left alone.

    python -m benchmarks.soak.comparison   # writes results/soak/comparison.json; minutes

Four methods under ten seeds on digits. Moments are drawn as counts of evaluations on disk; every other
one is Ctrl-C, the rest kill the process outright. Weights are compared byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import write
from spreadout.core.errors import UserError

METHODS = ("fedaws", "fedss", "fedavg", "baseline-2")
SUITE = """
name = "soak"
[common]
rounds = {rounds}
model = {{ hidden = [16], dim = 8 }}
clients = {{ per_round = 5, local_steps = 2, batch = 8, lr = 0.05 }}
eval = {{ every = 1, metrics = ["P@1"] }}
"""
CHANGES = {"seconds", "peak_memory_bytes", "crc"}  # what may differ from run to run; crc: of a line


def suite(rounds: int) -> str:
    named = (f'[variants.{name}]\nmethod = {{ name = "{name}" }}\n' for name in METHODS)
    return SUITE.format(rounds=rounds) + "".join(named)


def start(config: Path, out: Path, seeds: int, *more: str) -> subprocess.Popen[str]:
    call = ["compare", str(config), "--out", str(out), "--seeds", ",".join(map(str, range(seeds)))]
    return subprocess.Popen(
        [sys.executable, "-m", "spreadout", *call, *more],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def evaluations(out: Path) -> int:
    """How many are on disk so far."""
    return sum(path.read_bytes().count(b"\n") for path in out.rglob("metrics.jsonl"))


def finished(process: subprocess.Popen[str], codes: Sequence[int]) -> None:
    _, said = process.communicate()
    if process.returncode not in codes:
        raise UserError(f"spreadout compare ended with {process.returncode}: {said.strip()}")


def interrupted(config: Path, out: Path, seeds: int, at: Sequence[int]) -> list[dict[str, Any]]:
    """Run with an interruption whenever so many evaluations are there; what was done, and when."""
    done: list[dict[str, Any]] = []
    for number, count in enumerate(at):
        process = start(config, out, seeds, *(["--resume"] if number else []))
        while evaluations(out) < count and process.poll() is None:
            time.sleep(0.002)
        if process.poll() is not None:
            finished(process, [])
        number_of = signal.SIGINT if number % 2 else signal.SIGKILL
        process.send_signal(number_of)
        finished(process, [130, -signal.SIGINT] if number % 2 else [-signal.SIGKILL])
        done.append({"signal": number_of.name, "evaluations": evaluations(out)})
        print(done[-1], flush=True)
    finished(start(config, out, seeds, "--resume"), [0])
    return done


def lasting(value: Any) -> Any:
    """What a file says, without what may differ from run to run, at any depth."""
    if isinstance(value, dict):
        return {key: lasting(one) for key, one in value.items() if key not in CHANGES}
    return [lasting(one) for one in value] if isinstance(value, list) else value


def contents(out: Path) -> dict[str, str]:
    """By run: a digest of its weights, of its whole history and of its summary, without times."""
    found = {}
    for folder in sorted(path.parent for path in out.rglob("summary.json")):
        weights = (folder / "model" / "weights.safetensors").read_bytes()
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        summary = json.loads((folder / "summary.json").read_bytes())
        told = json.dumps(lasting([*records, summary]), sort_keys=True)
        digest = hashlib.sha256(weights + told.encode())
        found[str(folder.relative_to(out))] = digest.hexdigest()
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "soak" / "comparison.json")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=10, help="runs of each of the four methods")
    parser.add_argument("--interruptions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of interruption")
    a = parser.parse_args()
    runs = len(METHODS) * a.seeds
    total = runs * (a.rounds + 1)
    at = sorted(random.Random(a.seed).sample(range(1, total), a.interruptions))
    with tempfile.TemporaryDirectory() as made:
        config = Path(made) / "suite.toml"
        config.write_text(suite(a.rounds), encoding="utf-8")
        began = time.perf_counter()
        finished(start(config, Path(made) / "whole", a.seeds), [0])
        middle = time.perf_counter()
        stops = interrupted(config, Path(made) / "cut", a.seeds, at)
        ended = time.perf_counter()
        whole, cut = (contents(Path(made) / name) for name in ("whole", "cut"))
    equal = sum(whole[name] == cut.get(name) for name in whole)
    print(f"{equal} of {runs} runs are bit-identical after {len(stops)} interruptions")
    results = {
        "runs": runs,
        "rounds": a.rounds,
        "seed": a.seed,
        "suite": suite(a.rounds),
        "interruptions": stops,
        "identical": equal,
        "seconds": {"whole": round(middle - began, 1), "interrupted": round(ended - middle, 1)},
    }
    write(a.out, results)
    if equal < runs or len(cut) != runs:
        raise UserError(f"{a.out}: {runs - equal} of {runs} runs differ from those left alone")


if __name__ == "__main__":
    command(main)
