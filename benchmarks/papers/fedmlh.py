"""FedMLH against FedAvg on the shapes of its Table 1: tune, run, keep; and decoding at the largest.

    python benchmarks/fedmlh.py --shapes eurlex wiki31 --jobs 4
    python benchmarks/fedmlh.py --shapes bibtex              # the real one
    python benchmarks/fedmlh.py --decode                     # 10,000 rows against 312,330 classes
    python benchmarks/fedmlh.py --time --examples 5000       # a round of both methods at every shape
    python benchmarks/fedmlh.py --curves RUNS --shapes amztitle   # the first stage as far as it came

For runs of another machine, `--made-on RESULT COMMIT` names a result file of that machine.

The number of rounds is chosen on a tenth of the training instances, as early stopping would; what was
sent until then is the communication to best. B and R are varied on the first shape. Writes
results/fedmlh/SHAPE.json, SHAPE-tuning.json, SHAPE-curves.json, decoding.json and rounds.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from record import write
from suite import add_running, command
from two_stage import Candidate, choose_and_run

from spreadout.config.experiment import Experiment, overlay, read_toml
from spreadout.core.hashing import HashFamily
from spreadout.core.rows import nbytes
from spreadout.core.state import ServerState
from spreadout.data.load import load_data
from spreadout.federated.round import draw_cohort, run_round
from spreadout.models.buckets import BucketModel, SideBySide
from spreadout.runs.build import build_federation, pick_device
from spreadout.runs.folder import RunFolder
from spreadout.runs.summary import peak_memory

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs" / "fedmlh"
SHAPES = ("eurlex", "wiki31", "amztitle", "wikititle")  # of the paper, synthetic
KEPT = ("P@1", "P@3", "P@5", "P@1 infrequent")
METHODS = {"fedmlh": "FedMLH", "fedavg-bce": "FedAvg"}


def arms(shape: str) -> dict[str, Candidate]:
    """Both methods, with the config's own R and B; other R and B where that is cheap."""
    found = {
        "fedmlh": Candidate("FedMLH", {}),
        "fedavg": Candidate("FedAvg", {"method": {"name": "fedavg-bce"}}),
    }
    others = {"eurlex": ((4, 125), (4, 500), (2, 250), (8, 250)), "bibtex": ((4, 20), (4, 80), (8, 40))}
    if shape in others:
        for tables, buckets in others[shape]:
            changed: dict[str, Any] = {
                "method": {"name": "fedmlh", "tables": tables, "buckets": buckets}
            }
            found[f"r{tables}-b{buckets}"] = Candidate(f"FedMLH, R = {tables}, B = {buckets}", changed)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shapes", nargs="+", choices=(*SHAPES, "bibtex"), default=list(SHAPES))
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "fedmlh")
    parser.add_argument("--seeds", type=int, default=3)
    add_running(parser)
    parser.add_argument("--examples", type=int, help="training instances, where there are too many")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--decode", action="store_true", help="only time decoding")
    parser.add_argument(
        "--time", nargs="?", const="rounds.json", metavar="FILE", help="only time rounds, one at a time"
    )
    parser.add_argument("--curves", type=Path, metavar="RUNS", help="only read a --runs folder")
    parser.add_argument("--made-on", nargs=2, metavar=("RESULT", "COMMIT"))
    a = parser.parse_args()
    if a.curves:
        for shape in a.shapes:
            keep_curves(shape, a.curves, a.made_on, a.out / f"{shape}-curves.json")
        return
    if a.decode:
        decode(a.out / "decoding.json", a.device)
        return
    if a.time:
        time_rounds(a.shapes, a.examples, a.device, a.out / a.time)
        return
    more: dict[str, Any] = {"rounds": a.rounds} if a.rounds else {}
    for shape in a.shapes:
        choose_and_run(
            shape,
            CONFIGS / f"{shape}.toml",
            arms(shape),
            a.out,
            seeds=a.seeds,
            device=a.device,
            jobs=a.jobs,
            runs=a.runs,
            fraction=0.1,
            more=more | (fewer(a.examples) if a.examples and shape in SHAPES else {}),
        )


def fewer(examples: int) -> dict[str, Any]:
    made = {"name": "synthetic", "examples": examples, "test_examples": max(examples // 4, 1)}
    return {"data": {"source": made}}


def keep_curves(shape: str, runs: Path, made_on: Sequence[str] | None, out: Path) -> None:
    """Round by round, on held-out instances: of runs that were finished, or stopped for want of time."""
    found, examples = [], 0
    for arm, candidate in list(arms(shape).items())[:2]:
        folder = RunFolder.open(runs / f"{shape}-tuning" / f"{arm}-only" / "seed-0")
        records = [record for record in folder.history() if record["round"]]
        e = Experiment.load(folder.config)
        examples = getattr(e.data.source, "examples", 0)
        curve = {name: [record[name] for record in records] for name in ("round", *KEPT)}
        sent = [record["bytes_down"] + record["bytes_up"] for record in records]
        model = records[0]["bytes_up"] // records[0]["round"] // 4  # of as many clients
        made = {"arm": arm, "label": candidate.label, "model_bytes": model, "of_rounds": e.rounds}
        found.append({**made, "patience": e.eval.patience, "curve": {**curve, "bytes": sent}})
    stamp = {}
    if made_on:
        there = json.loads(Path(made_on[0]).read_text(encoding="utf-8"))
        stamp = {"commit": made_on[1], **{name: there[name] for name in ("hardware", "versions")}}
    write(out, {**stamp, "examples": examples, "fraction": 0.1, "arms": found})


def time_rounds(shapes: Sequence[str], examples: int | None, device: str, out: Path) -> None:
    """Seconds of a round without evaluation, and the most memory; every case in its own process."""
    found = []
    for shape in shapes:
        for method, label in METHODS.items():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                made = alone.submit(one_round, shape, method, examples, device).result()
            found.append({"shape": shape, "label": label, **made})
            print(found[-1], flush=True)
    write(out, {"examples": examples, "threads": torch.get_num_threads(), "results": found})


def one_round(shape: str, method: str, examples: int | None, device: str) -> dict[str, float]:
    config = overlay(read_toml(str(CONFIGS / f"{shape}.toml")), fewer(examples) if examples else {})
    hashed = config["method"] if method == "fedmlh" else {}
    e = Experiment.of({**config, "method": {**hashed, "name": method}})
    where = pick_device(device)
    f = build_federation(e, load_data(e.data, e.seed), where)
    state = ServerState(0, *f.model.initial(e.seed, where))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        run_round(f, state)
        seconds.append(time.perf_counter() - start)
    steps = f.schedule.steps_per_client(f.data.sizes[draw_cohort(f, 2).clients.numpy()])
    return {
        "seconds": round(statistics.median(seconds[1:]), 3),
        "local_steps": int(steps.sum()),
        "model_mb": round(nbytes(state.dense.values()) / 2**20, 2),
        "peak_gb": round(peak_memory(where) / 2**30, 2),
    }


@torch.no_grad()
def decode(out: Path, device: str, rows: int = 10_000, block: int = 1024) -> None:
    """Ten thousand rows at the shape of Wikititle, from logits to the five best classes."""
    where = pick_device(device)
    classes, tables, buckets = 312_330, 8, 5000
    hashes = HashFamily.drawn(tables, buckets, seed=0, use="labels").to(where)
    network = SideBySide(1, [1, 1])
    model = BucketModel(network, {}, fresh=lambda: network, classes=classes, hashes=hashes)
    logits = torch.randn(tables, block, buckets, device=where)
    model.rank(logits[:, :8], 5)
    if where.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for first in range(0, rows, block):
        found = model.rank(logits[:, : min(block, rows - first)], 5)
    float(found.scores.sum())  # waits for the device
    seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() / 2**30 if where.type == "cuda" else None
    made = {"rows": rows, "classes": classes, "tables": tables, "buckets": buckets}
    print({**made, "seconds": seconds, "peak_gb": peak})
    write(out, {**made, "seconds": round(seconds, 3), "peak_gb": peak})


if __name__ == "__main__":
    command(main)
