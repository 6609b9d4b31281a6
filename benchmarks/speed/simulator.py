"""How much faster the simulator is than the sequential reference, and how its time grows with C.

    python -m benchmarks.speed.simulator [--out results/simulator/cpu.json]

Same work for both: 100 one-class clients, batch 32, MLP 64-128-64, one thread. Times are medians of
repetitions in turns; the ratios come from one run of this script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import spreadout as so
from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import write
from benchmarks.common.start import start
from benchmarks.common.timing import in_turns
from spreadout.core.state import ServerState
from spreadout.federated.aggregate import total
from spreadout.federated.cohort import request_rows
from spreadout.federated.federation import Federation
from spreadout.federated.round import repeatable
from spreadout.runtime.sequential import Sequential

CLIENTS, BATCH, FEATURES, HIDDEN, DIM = 100, 32, 64, 128, 64


def federation(classes: int, steps: int) -> tuple[Federation, ServerState]:
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
    return start(experiment, torch.device("cpu"), held)


def client_work(f: Federation, state: ServerState) -> None:
    """One round's client work: sub-models out, training, checks, and the sum of what comes back."""
    cohort = request_rows(f, torch.arange(CLIENTS), round=0)
    with repeatable(f.device):
        aggregate = total(f.executor.train(f, state, cohort))
    assert aggregate.clients == CLIENTS


def bare_loop(x: Tensor, dense: Sequence[Tensor], rows: Tensor, steps: int) -> None:
    """The least a loop over clients can do: copy, train by autograd, add up; no rows, checks or plan."""
    summed = [torch.zeros_like(value) for value in dense]
    for client in range(CLIENTS):
        before = [*dense, rows[client]]
        params = [value.clone() for value in before]
        for step in range(steps):
            leaves = [value.detach().requires_grad_() for value in params]
            w1, b1, w2, b2, row = leaves
            hidden = F.relu(F.linear(x[client, step * BATCH : (step + 1) * BATCH], w1, b1))
            s = F.normalize(F.linear(hidden, w2, b2), dim=1) @ F.normalize(row, dim=0)
            gradients = torch.autograd.grad(F.relu(0.9 - s).square().mean(), leaves)
            with torch.no_grad():
                params = [p.add_(g, alpha=-0.1) for p, g in zip(params, gradients, strict=True)]
        changes = zip(summed, params, before, strict=False)  # the row is its owner's own
        summed = [total_ + new - old for total_, new, old in changes]


def ratio(steps: int, repeats: int) -> dict[str, Any]:
    fast, state = federation(1000, steps)
    slow = replace(fast, executor=Sequential())
    x = fast.data.columns["x"].take(torch.arange(fast.data.examples)).view(CLIENTS, -1, FEATURES)
    dense, table = list(state.dense.values()), state.tables["classes"]
    rows = table[torch.linspace(0, len(table) - 1, CLIENTS).long()]
    contenders: dict[str, Callable[[], None]] = {
        "simulator": lambda: client_work(fast, state),
        "sequential": lambda: client_work(slow, state),
        "bare loop": lambda: bare_loop(x, dense, rows, steps),
    }
    median = in_turns(contenders, repeats)
    return {
        "local_steps": steps,
        "clients_per_second": {name: CLIENTS / value for name, value in median.items()},
        "ratio": median["sequential"] / median["simulator"],
        "ratio_to_bare_loop": median["bare loop"] / median["simulator"],
    }


def growth(sizes: list[int], repeats: int) -> list[dict[str, Any]]:
    """Client work at a fixed cohort for growing tables, in turns so that drift hits all alike."""
    works = {classes: partial(client_work, *federation(classes, steps=5)) for classes in sizes}
    median = in_turns(works, repeats)
    return [{"classes": c, "seconds": t, "relative": t / median[sizes[0]]} for c, t in median.items()]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=(RESULTS / "simulator/cpu.json"))
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
    command(main)
