"""How much faster the simulator is than the sequential reference, and how its time grows with C.

    python benchmarks/simulator.py [--out results/simulator/cpu.json]

Same work for both: 100 one-class clients, batch 32, MLP 64-128-64, one thread. Times are medians of
interleaved repetitions; the ratios come from one run of this script.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import write
from torch.nn import functional as F

import spreadout as so
from spreadout.core.state import ServerState
from spreadout.federated.aggregate import total
from spreadout.federated.round import Cohort, Federation, repeatable
from spreadout.runs.build import build_federation
from spreadout.runtime.sequential import sequential

CLIENTS, BATCH, FEATURES, HIDDEN, DIM = 100, 32, 64, 128, 64


def federation(classes: int, steps: int) -> Federation:
    """One client per class, `CLIENTS` of them, their classes spread over a table of `classes` rows."""
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(CLIENTS), BATCH * 5)
    label = np.linspace(0, classes - 1, CLIENTS).astype(int)[client]
    x = rng.normal(size=(len(client), FEATURES)).astype(np.float32)
    train = so.FederatedDataset.from_arrays(x, label, client, classes=classes)
    held = so.Splits("random", train, so.Examples.from_arrays(x[:1], label[:1]))
    experiment = so.Experiment.of(
        {
            "model": {"hidden": [HIDDEN], "dim": DIM},
            "method": {"name": "baseline-1"},
            "clients": {"local_steps": steps, "batch": BATCH, "lr": 0.1},
        }
    )
    return build_federation(experiment, held, torch.device("cpu"))


def seconds(f: Federation, state: ServerState) -> float:
    """One round's client work: sub-models out, training, checks, and the sum of what comes back."""
    clients = torch.arange(CLIENTS)
    started = time.perf_counter()
    cohort = Cohort(clients, f.method.request(f.data, clients, seed=0, round=0))
    with repeatable(f.device):
        aggregate = total(f.executor(f, state, cohort))
    assert aggregate.clients == CLIENTS
    return time.perf_counter() - started


def bare_seconds(f: Federation, state: ServerState, steps: int) -> float:
    """The least a loop over clients can do: copy, train by autograd, add up; no rows, checks or plan."""
    x = f.data.columns["x"].take(torch.arange(f.data.examples)).view(CLIENTS, -1, FEATURES)
    table = state.tables["classes"][torch.linspace(0, len(state.tables["classes"]) - 1, CLIENTS).long()]
    started = time.perf_counter()
    summed = [torch.zeros_like(value) for value in state.dense.values()]
    for client in range(CLIENTS):
        start = [*state.dense.values(), table[client]]
        params = [value.clone() for value in start]
        for step in range(steps):
            leaves = [value.detach().requires_grad_() for value in params]
            w1, b1, w2, b2, row = leaves
            hidden = F.relu(F.linear(x[client, step * BATCH : (step + 1) * BATCH], w1, b1))
            s = F.normalize(F.linear(hidden, w2, b2), dim=1) @ F.normalize(row, dim=0)
            gradients = torch.autograd.grad(F.relu(0.9 - s).square().mean(), leaves)
            with torch.no_grad():
                params = [p.add_(g, alpha=-0.1) for p, g in zip(params, gradients, strict=True)]
        changes = zip(summed, params, start, strict=False)  # the row is its owner's own
        summed = [total_ + new - old for total_, new, old in changes]
    return time.perf_counter() - started


def ratio(steps: int, repeats: int) -> dict[str, Any]:
    fast = federation(1000, steps)
    slow = replace(fast, executor=sequential)
    state = ServerState(0, *fast.model.initial(0, fast.device))
    contenders: dict[str, Callable[[], float]] = {
        "simulator": lambda: seconds(fast, state),
        "sequential": lambda: seconds(slow, state),
        "bare loop": lambda: bare_seconds(fast, state, steps),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()  # warm up
    for _ in range(repeats):
        for name, run in contenders.items():
            times[name].append(run())
    median = {name: statistics.median(values) for name, values in times.items()}
    return {
        "local_steps": steps,
        "clients_per_second": {name: CLIENTS / value for name, value in median.items()},
        "ratio": median["sequential"] / median["simulator"],
        "ratio_to_bare_loop": median["bare loop"] / median["simulator"],
    }


def growth(sizes: list[int], repeats: int) -> list[dict[str, Any]]:
    """Client work at a fixed cohort for growing tables, interleaved so that drift hits all alike."""
    runs = []
    for classes in sizes:
        f = federation(classes, steps=5)
        state = ServerState(0, *f.model.initial(0, f.device))
        seconds(f, state)
        runs.append((classes, f, state))
    times: dict[int, list[float]] = {classes: [] for classes in sizes}
    for _ in range(repeats):
        for classes, f, state in runs:
            times[classes].append(seconds(f, state))
    first = statistics.median(times[sizes[0]])
    return [
        {"classes": c, "seconds": statistics.median(t), "relative": statistics.median(t) / first}
        for c, t in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("results/simulator/cpu.json"))
    parser.add_argument("--repeats", type=int, default=21)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    speed = [ratio(steps, arguments.repeats) for steps in (5, 1)]
    print("local steps   simulator   sequential   bare loop  clients/s     ratios")
    for s in speed:
        each = s["clients_per_second"]
        rates = f"{each['simulator']:9.0f}   {each['sequential']:10.0f}   {each['bare loop']:9.0f}"
        print(f"{s['local_steps']:>11}   {rates}   {s['ratio']:10.1f}x {s['ratio_to_bare_loop']:.1f}x")
    grown = growth([10**3, 10**4, 10**5, 10**6], arguments.repeats)
    print("classes        seconds a round     relative")
    for g in grown:
        print(f"{g['classes']:>9,}      {g['seconds']:.4f}              {g['relative']:.3f}")
    setting = {
        "clients": CLIENTS, "batch": BATCH, "mlp": [FEATURES, HIDDEN, DIM], "threads": 1,
        "seed": 0, "repeats": arguments.repeats,
    }  # fmt: skip
    write(arguments.out, {"setting": setting, "speed": speed, "growth": grown})


if __name__ == "__main__":
    main()
