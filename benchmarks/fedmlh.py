"""FedMLH against FedAvg on the shapes of its Table 1: tune, run, keep; and decoding at the largest.

    python benchmarks/fedmlh.py --shapes eurlex wiki31 --jobs 4
    python benchmarks/fedmlh.py --decode                     # 10,000 rows against 312,330 classes

The number of rounds is chosen on a tenth of the training instances, as early stopping would; what was
sent until then is the communication to best. B and R are varied on the first shape. Writes
results/fedmlh/SHAPE.json, SHAPE-tuning.json and decoding.json.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from record import write
from suite import add_running, command
from two_stage import Candidate, choose_and_run

from spreadout.assembly import pick_device
from spreadout.hashing import HashFamily
from spreadout.models.buckets import BucketModel, SideBySide

ROOT = Path(__file__).resolve().parent.parent
SHAPES = ("eurlex", "wiki31", "amztitle", "wikititle")


def arms(shape: str) -> dict[str, Candidate]:
    """Both methods, with the config's own R and B; other R and B where that is cheap."""
    found = {
        "fedmlh": Candidate("FedMLH", {}),
        "fedavg": Candidate("FedAvg", {"method": {"name": "fedavg-bce"}}),
    }
    if shape == "eurlex":
        for tables, buckets in ((4, 125), (4, 500), (2, 250), (8, 250)):
            changed: dict[str, Any] = {
                "method": {"name": "fedmlh", "tables": tables, "buckets": buckets}
            }
            found[f"r{tables}-b{buckets}"] = Candidate(f"FedMLH, R = {tables}, B = {buckets}", changed)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "fedmlh")
    parser.add_argument("--seeds", type=int, default=3)
    add_running(parser)
    parser.add_argument("--examples", type=int, help="training instances, where there are too many")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--decode", action="store_true", help="only time decoding")
    a = parser.parse_args()
    if a.decode:
        decode(a.out / "decoding.json", a.device)
        return
    more: dict[str, Any] = {}
    if a.examples:
        more["data"] = {"source": {"name": "synthetic", "examples": a.examples}}
    if a.rounds:
        more["rounds"] = a.rounds
    for shape in a.shapes:
        choose_and_run(
            shape,
            ROOT / "configs" / "fedmlh" / f"{shape}.toml",
            arms(shape),
            a.out,
            seeds=a.seeds,
            device=a.device,
            jobs=a.jobs,
            runs=a.runs,
            fraction=0.1,
            more=more,
        )


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
