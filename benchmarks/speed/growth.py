"""How a round grows: with the classes, with the clients that take part, with the rows a client holds.

    python -m benchmarks.speed.growth --out results/growth/cpu.json

One client per class, a 64-32 encoder and rows of 32; FedAwS mines 10 near rows of every class that took
part, among all rows or among 2,000 drawn ones ("drawn candidates"). Clients' work and the server's step
are timed apart, every point in a process of its own, and a slope is fitted to the logarithms of the last
points: 0 is flat, 1 is proportional.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import spreadout as so
from benchmarks.common.command import command, parser_of
from benchmarks.common.record import write
from benchmarks.common.start import start
from benchmarks.common.timing import alone, time_rounds, timed
from spreadout.core.ragged import Ragged
from spreadout.core.state import ServerState
from spreadout.core.tables import table_bytes
from spreadout.data.columns import Dense
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits
from spreadout.federated.aggregate import Aggregate, total
from spreadout.federated.executor import Executor
from spreadout.federated.federation import Federation
from spreadout.runs.build import pick_device
from spreadout.runs.summary import peak_memory

STORED = 1000  # distinct inputs; every example is one of them
AXES: dict[str, dict[str, Any]] = {
    "classes": {"classes": [10**k for k in range(3, 8)], "clients": [100], "rows": [1]},
    "classes, drawn candidates": {
        "classes": [10**k for k in range(3, 8)],
        "clients": [100],
        "rows": [1],
        "candidates": 2000,
    },
    "clients a round": {
        "classes": [10**5],
        "clients": [10**k for k in range(1, 6)],
        "rows": [1],
        "candidates": 2000,
    },
    "rows a client": {
        "classes": [10**5],
        "clients": [100],
        "rows": [1, 10, 100, 1000],
        "candidates": 2000,
    },
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--most", type=int, default=10**7, help="classes at most")
    parser.add_argument("--device", default="auto")
    a = parser.parse_args()
    found = {}
    for axis in a.axes:
        points = [one for one in points_of(AXES[axis]) if one["classes"] <= a.most]
        table = []
        for one in points:
            made = alone(measure, **one, device=a.device)
            print(one, {name: round(value, 1) for name, value in made.items()}, flush=True)
            table.append({**one, **made})
        along = next(name for name in ("classes", "clients", "rows") if len(AXES[axis][name]) > 1)
        slopes = {
            part: slope([row[along] for row in table], [row[part] for row in table])
            for part in ("clients_ms", "server_ms", "memory_mb")
        }
        found[axis] = {"along": along, "points": table, "slopes": slopes}
        print(axis, *(f"{name} {value:.2f}" for name, value in slopes.items()))
    if a.out:
        write(a.out, {"axes": found})


def points_of(axis: dict[str, Any]) -> list[dict[str, Any]]:
    rest = {"candidates": axis["candidates"]} if "candidates" in axis else {}
    return [
        {"classes": classes, "clients": clients, "rows": rows, **rest}
        for classes in axis["classes"]
        for clients in axis["clients"]
        for rows in axis["rows"]
    ]


def measure(
    classes: int, clients: int, rows: int, device: str, candidates: int | None = None
) -> dict[str, float]:
    where = pick_device(device)
    f, state = federation(classes, clients, rows, candidates, where)
    spent: dict[str, list[float]] = {"clients": [], "server": []}
    executor, method = f.executor, f.method

    def clocked(part: str, work: Callable[[], Any]) -> Any:
        made, seconds = timed(work, where)
        spent[part].append(1000 * seconds)
        return made

    class TimedExecutor(Executor):
        def train(self, *given: Any) -> Iterable[Aggregate]:
            return [clocked("clients", lambda: total(executor.train(*given)))]

    class TimedMethod(type(method)):  # type: ignore[misc]
        def server_step(self, *given: Any) -> None:
            clocked("server", lambda: method.server_step(*given))

    step_by_step = replace(
        f, executor=TimedExecutor(), method=TimedMethod.model_construct(**dict(method))
    )
    before = peak_memory(where)
    rounds = time_rounds(step_by_step, state, 4, skip=1)
    return {
        "clients_ms": statistics.median(spent["clients"][1:]),
        "server_ms": statistics.median(spent["server"][1:]),
        "round_ms": 1000 * rounds.median,
        "memory_mb": (peak_memory(where) - before) / 2**20,
        "table_mb": table_bytes(state.tables["classes"]) / 2**20,
    }


def federation(
    classes: int, clients: int, rows: int, candidates: int | None, device: torch.device
) -> tuple[Federation, ServerState]:
    """As many clients as classes; client i holds `rows` classes from i on, an example of each."""
    each = 4 * rows
    owners = min(classes, 10**7 // each)
    x = torch.randn(STORED, 64)
    label = (
        torch.arange(owners).repeat_interleave(each) + torch.arange(each).repeat(owners) // 4
    ) % classes
    index = torch.randint(STORED, (owners * each,))
    columns = {"x": Dense(x, index=index), "y": Dense(label)}
    held = FederatedDataset(columns, torch.arange(owners + 1) * each, classes)
    nothing = Examples({"x": Dense(x[:0])}, Ragged.from_lists([]))
    method: dict[str, Any] = {"name": "fedaws", "spreadout_form": "topk", "k": 10}
    if candidates is not None and candidates < classes:
        method["candidates"] = candidates
    config = {
        "model": {"hidden": [32], "dim": 32},
        "method": method,
        "clients": {"per_round": min(clients, owners), "batch": 4, "local_steps": 2, "lr": 0.1},
    }
    return start(so.Experiment.of(config), device, Splits("growth", held, nothing))


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of log y over log x, by least squares over the upper half of the points, three at least."""
    last = max(3, (len(x) + 1) // 2)
    xs = [math.log(value) for value in x[-last:]]
    ys = [math.log(max(value, 1e-3)) for value in y[-last:]]
    middle, height = statistics.fmean(xs), statistics.fmean(ys)
    across = sum((one - middle) ** 2 for one in xs)
    up = sum((one - middle) * (other - height) for one, other in zip(xs, ys, strict=True))
    return round(up / across, 3)


if __name__ == "__main__":
    command(main)
