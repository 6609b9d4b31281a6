"""Time of a request to `spreadout serve`, and requests a second, by classes and clients.

    python -m benchmarks.serve          # needs the extras [serve] and [index]; results/serve/cpu.json

Clients and server share the machine. A request has one input of 64 numbers and is answered with ten
classes; every client asks again as soon as it has its answer. Ten classes are those of digits. A million
are rows around family centres, a hundred a family, as label spaces with near synonyms have them; inputs
lie as near to a class as that class to its family.
"""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import spreadout as so
from benchmarks.common.command import above_zero, command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import write
from benchmarks.common.timing import timed
from benchmarks.serve.load import bodies_of, serving, under_load
from spreadout.core.rows import project_to_sphere
from spreadout.use.index import ClassIndex

DIM, TOP, FAMILY, SPREAD = 64, 10, 100, 0.5


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "serve" / "cpu.json")
    parser.add_argument("--classes", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=above_zero, default=5.0)
    parser.add_argument("--probes", type=int, nargs="+", default=[8, 32])
    a = parser.parse_args()
    results: list[dict[str, Any]] = []

    def measure(folder: Path, inputs: Tensor, about: dict[str, Any], *options: str) -> None:
        bodies = bodies_of(inputs.tolist(), TOP)
        with serving(folder, *options) as address:
            under_load(address, bodies, clients=2, seconds=min(1.0, a.seconds))  # warm
            for clients in a.clients:
                made = under_load(address, bodies, clients=clients, seconds=a.seconds)
                results.append({**about, "clients": clients, **made})
                print(results[-1], flush=True)

    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as home:
        few = so.run({"rounds": 5, "data": {"source": "digits"}, "method": {"name": "fedaws"}})
        x = torch.rand(200, DIM, generator=torch.Generator().manual_seed(0)) * 2 - 1
        measure(few.save(Path(home) / "few"), x, {"classes": 10, "index": "exact"}, "--index", "exact")
        many = families(a.classes)
        folder = many.save(Path(home) / "many")
        x = near(many.class_vectors, 200)
        about: dict[str, Any] = {"classes": a.classes}
        measure(folder, x, {**about, "index": "exact"}, "--index", "exact")
        for probes in a.probes:
            found = by_index(many.predictor, x, probes)
            options = ("--index", "ivf", "--probes", str(probes))
            measure(folder, x, {**about, "index": "ivf", **found}, *options)
    setting = {
        "dim": DIM,
        "top": TOP,
        "seconds": a.seconds,
        "load_average_before": round(load_before, 1),
    }
    write(a.out, {"setting": setting, "results": results})


def families(classes: int) -> so.Result:
    """A model of so many classes whose encoder hands its input through."""
    y = np.arange(20)
    x = np.eye(20, DIM, dtype=np.float32)
    train = so.FederatedDataset.from_arrays(x, y, client=y, classes=classes)
    model = {"encoder": "mlp", "hidden": [], "dim": DIM, "input_scaling": "none"}
    settings = {"rounds": 1, "model": model, "method": {"name": "baseline-2", "prior": 0}}
    quick = {"eval": {"references": False}, "clients": {"local_steps": 1, "lr": 0.1}}
    data = so.Splits("families", train, so.Examples.from_arrays(x, y))
    result = so.run({**settings, **quick}, data=data)
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(-(-classes // FAMILY), DIM, generator=draw)
    rows = centres.repeat_interleave(FAMILY, 0)[:classes]
    rows = rows + SPREAD * torch.randn(classes, DIM, generator=draw)
    state = result.predictor.state
    table = state.tables["classes"]
    assert isinstance(table, Tensor)
    table.copy_(project_to_sphere(rows))
    for name, value in state.dense.items():
        value.copy_(torch.eye(DIM) if name.endswith("weight") else torch.zeros(DIM))
    return result


def near(vectors: Tensor, count: int) -> Tensor:
    """Inputs beside some of the classes."""
    draw = torch.Generator().manual_seed(1)
    at = torch.randint(0, len(vectors), (count,), generator=draw)
    away = torch.randn(count, DIM, generator=draw) * (SPREAD / math.sqrt(DIM))
    return vectors[at] + away


def by_index(predictor: so.Predictor, x: Tensor, probes: int) -> dict[str, Any]:
    """How long the index takes to make, and which share of the ten best classes it finds."""
    index, seconds = timed(lambda: ClassIndex.of(predictor, "ivf", probes))
    exact = [{g.id for g in each} for each in predictor.predict(x, TOP)]
    found = [{g.id for g in each} for each in replace(predictor, index=index).predict(x, TOP)]
    recall = sum(len(a & b) for a, b in zip(exact, found, strict=True)) / (TOP * len(x))
    made = {"probes": probes, "lists": index.index.nlist, "recall": round(recall, 4)}
    return {**made, "seconds_to_make": round(seconds, 1)}


if __name__ == "__main__":
    command(main)
