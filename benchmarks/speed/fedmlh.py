"""A round of FedMLH and of FedAvg at every shape of its Table 1, and decoding at the largest.

    python -m benchmarks.speed.fedmlh rounds --examples 5000
    python -m benchmarks.speed.fedmlh decoding               # 10,000 rows against 312,330 classes

Rounds are without evaluation, every case in a process of its own. Writes results/fedmlh/rounds.json or
results/fedmlh/decoding.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.common.record import write
from benchmarks.common.start import start
from benchmarks.common.timing import alone, time_rounds, timed
from benchmarks.papers.fedmlh import SHAPES, fewer
from spreadout.config.experiment import Experiment
from spreadout.config.values import overlay, read_toml
from spreadout.core.hashing import HashFamily
from spreadout.core.rows import nbytes
from spreadout.federated.cohort import draw_clients
from spreadout.models.buckets import BucketModel, SideBySide
from spreadout.runs.build import pick_device
from spreadout.runs.summary import peak_memory

METHODS = {"fedmlh": "FedMLH", "fedavg-bce": "FedAvg"}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=("rounds", "decoding"))
    parser.add_argument("--shapes", nargs="+", choices=(*SHAPES, "bibtex"), default=list(SHAPES))
    parser.add_argument("--examples", type=int, help="training instances, where there are too many")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    a = parser.parse_args()
    out = a.out or RESULTS / "fedmlh" / f"{a.what}.json"
    if a.what == "decoding":
        decode(out, a.device)
    else:
        each_alone(a.shapes, a.examples, a.device, out)


def each_alone(shapes: Sequence[str], examples: int | None, device: str, out: Path) -> None:
    found = []
    for shape in shapes:
        for method, label in METHODS.items():
            made = alone(one_round, shape, method, examples, device)
            found.append({"shape": shape, "label": label, **made})
            print(found[-1], flush=True)
    write(out, {"examples": examples, "threads": torch.get_num_threads(), "results": found})


def one_round(shape: str, method: str, examples: int | None, device: str) -> dict[str, float]:
    """Median seconds, the steps of all its clients, and the most memory."""
    some = fewer(examples) if examples and shape in SHAPES else {}
    config = overlay(read_toml(str(CONFIGS / "fedmlh" / f"{shape}.toml")), some)
    hashed = config["method"] if method == "fedmlh" else {}
    where = pick_device(device)
    f, state = start(Experiment.of({**config, "method": {**hashed, "name": method}}), where)
    rounds = time_rounds(f, state, 2, skip=1)
    steps = f.clients.schedule.steps_per_client(f.data.sizes[draw_clients(f, 2).numpy()])
    return {
        "seconds": round(rounds.median, 3),
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

    def all_rows() -> None:
        for first in range(0, rows, block):
            model.rank(logits[:, : min(block, rows - first)], 5)

    model.rank(logits[:, :8], 5)
    if where.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    _, seconds = timed(all_rows, where)
    peak = torch.cuda.max_memory_allocated() / 2**30 if where.type == "cuda" else None
    made = {"rows": rows, "classes": classes, "tables": tables, "buckets": buckets}
    print({**made, "seconds": seconds, "peak_gb": peak})
    write(out, {**made, "seconds": round(seconds, 3), "peak_gb": peak})


if __name__ == "__main__":
    command(main)
