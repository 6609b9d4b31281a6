"""The plain loop: clients one after another in one process, or dealt to two.

`python -m benchmarks.peers.plain A|B ROUNDS PROCESSES`. All parameters are views of one buffer:
sending, changing and averaging a model is one operation.
"""

from __future__ import annotations

import sys
import time
from multiprocessing.connection import Connection

import torch
import torch.multiprocessing as mp
from torch import Tensor

from benchmarks.peers.work import Data, finish, model_of


class Worker:
    """A model on one flat buffer, and the sum of what clients made of it."""

    def __init__(self, data: Data, rows: Tensor | None) -> None:
        self.data, self.rows, self.model = data, rows, model_of(data.work)
        start = {name: value for name, value in data.start.items() if name != "rows"}
        self.model.load_state_dict(start | ({} if rows is None else {"row": rows[0]}))
        self.params: list[Tensor] = list(self.model.parameters())
        self.flat = torch.cat([p.detach().reshape(-1) for p in self.params])
        first = 0
        for name, p in self.model.named_parameters():
            p.data = self.flat[first : first + p.numel()].view_as(p)
            if name == "row":
                self.row = self.flat[first : first + p.numel()]
            first += p.numel()

    def train(self, clients: list[int], start: Tensor, total: Tensor) -> int:
        """Add ω_c · (client c's model) to the total; the sum of the weights."""
        weights = 0
        for client in clients:
            self.flat.copy_(start)
            if self.rows is not None:
                self.row.copy_(self.rows[client])
            for batch in self.data.batches(client):
                gradients = torch.autograd.grad(self.model.loss(*batch), self.params)
                with torch.no_grad():
                    torch._foreach_add_(self.params, gradients, alpha=-self.model.rate)
            if self.rows is not None:
                self.rows[client] = self.row
            weight = self.data.examples(client) if self.rows is None else 1
            total.add_(self.flat, alpha=weight)
            weights += weight
        return weights


def serve(worker: Worker, start: Tensor, total: Tensor, told: Connection) -> None:
    torch.set_num_threads(1)
    while (clients := told.recv()) is not None:
        total.zero_()
        told.send(worker.train(clients, start, total))


def dealt(data: Data, clients: list[int], parts: int) -> list[list[int]]:
    """The largest clients first, each to whoever has least."""
    load, found = [0] * parts, [[] for _ in range(parts)]  # type: ignore[var-annotated]
    for client in sorted(clients, key=data.examples, reverse=True):
        least = load.index(min(load))
        found[least].append(client)
        load[least] += data.examples(client)
    return found


def main() -> None:
    work, rounds, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    data = Data(work)
    rows = data.start["rows"].clone().share_memory_() if work == "B" else None
    worker = Worker(data, rows)
    present = worker.flat.clone().share_memory_()
    totals = [torch.zeros_like(present).share_memory_() for _ in range(processes)]
    context = mp.get_context("fork")
    pipes = [context.Pipe() for _ in range(processes if processes > 1 else 0)]
    for total, (_, theirs) in zip(totals, pipes, strict=False):
        context.Process(target=serve, args=(worker, present, total, theirs), daemon=True).start()
    seconds = []
    for cohort in data.cohorts[:rounds]:
        begin = time.perf_counter()
        if pipes:
            for (mine, _), part in zip(pipes, dealt(data, cohort, processes), strict=True):
                mine.send(part)
            weight = sum(mine.recv() for mine, _ in pipes)
        else:
            totals[0].zero_()
            weight = worker.train(cohort, present, totals[0])
        present.copy_(torch.stack(totals).sum(0) / weight)
        seconds.append(time.perf_counter() - begin)
    worker.flat.copy_(present)
    params = {name: value for name, value in worker.model.state_dict().items() if name != "row"}
    if rows is not None:
        params["rows"] = rows
    finish(f"plain-{processes}", work, seconds, params)


if __name__ == "__main__":
    main()
