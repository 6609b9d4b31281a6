"""How far a sampled softmax's gradient is from the full one's, by the size of the sample (FedSS, A.3).

    python -m benchmarks.papers.gradient_noise --out results/fedss/gradients.json --report gradients.html
    python -m benchmarks.papers.gradient_noise --rows --clients 32 --out results/fedss/row-gradients.json

With --rows: how far the class rows' change that the server makes of all clients is from that of the full
softmax, by how rows are merged, as in the paper's Fig. 9. Otherwise the gradients of single clients'
encoders. Both of the Omniglot federation at the start of training: the bias (of the mean over draws)
and the spread (of single draws around it), both relative to the full gradient, with and without the
correction of the logits. The chance error of a mean of so many draws is taken off the bias. With --rows
every point is written as it comes, and those that are there already are not made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS
from benchmarks.common.record import read, write
from benchmarks.common.start import start
from benchmarks.papers.drawing import chart
from spreadout.config.experiment import Experiment
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.types import Params
from spreadout.federated.aggregate import total
from spreadout.federated.cohort import draw_clients, request_rows
from spreadout.federated.federation import Federation
from spreadout.federated.robust.merging import merged
from spreadout.methods.fedss import FedSS
from spreadout.report.charts import Line
from spreadout.report.document import document
from spreadout.runs.build import pick_device
from spreadout.runtime.simulator.staging import stage_chunk, stage_round

MERGES = ("sum", "weighted-mean")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--config", default=str(CONFIGS / "fedss" / "omniglot-base.toml"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 10, 20, 40, 80, 160, 320, 640])
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--rows", action="store_true", help="the server's change of class rows")
    a = parser.parse_args()
    fixed = ["clients.image_shift=0", "clients.batch=full", "clients.local_steps=1"]
    experiment = Experiment.load(a.config, [*fixed, f"clients.per_round={a.clients}"])
    device = pick_device(a.device)
    base, state = start(experiment, device)
    assert isinstance(base.method, FedSS)
    scale = base.method.scale
    if a.rows:
        about = {"clients": a.clients, "draws": a.draws}
        before = read(a.out) if a.out.is_file() else {}
        found = list(before["results"]) if about.items() <= before.items() else []
        for point in rows_noise(base, state, a.sizes, a.draws, found):
            found.append(point)
            write(a.out, {**about, "results": sorted(found, key=_order)}, quiet=True)
        return
    full = gradients(base, state, FedSS(negatives=base.data.classes - 1, scale=scale), 0)
    length = full.norm(dim=1)
    found = []
    for correct in (True, False):
        for size in a.sizes:
            method = FedSS(negatives=size, correct=correct, scale=scale)
            drawn = torch.stack([gradients(base, state, method, turn) for turn in range(a.draws)])
            mean = drawn.mean(0)  # (clients, parameters)
            variance = (drawn - mean).square().sum(2).sum(0) / (a.draws - 1)  # (clients,)
            # The mean of some draws is off by chance too: that part is taken from its square.
            off = (mean - full).square().sum(1) - variance / a.draws
            bias = float((off.clamp_min(0).sqrt() / length).mean())
            spread = float((variance.sqrt() / length).mean())
            found.append({"negatives": size, "corrected": correct, "bias": bias, "spread": spread})
            print(found[-1], flush=True)
    write(a.out, {"clients": a.clients, "draws": a.draws, "results": found})
    if a.report:
        page = document("The noise of a sampled softmax", "FedSS, A.3, on Omniglot", [figure(found)])
        a.report.write_text(page, encoding="utf-8")


def rows_noise(
    base: Federation,
    state: ServerState,
    sizes: Sequence[int],
    draws: int,
    known: Sequence[Mapping[str, Any]] = (),
) -> Iterator[dict[str, Any]]:
    """For both merges: bias and spread of the merged class rows, relative to the full softmax's."""
    assert isinstance(base.method, FedSS)
    there = {(point["merge"], point["negatives"]) for point in known}
    for merge in MERGES:
        method = FedSS(negatives=base.data.classes - 1, scale=base.method.scale, merge=merge)
        full = row_change(base, state, method, 0)
        for size in sizes:
            if (merge, size) in there:
                continue
            some = method.model_copy(update={"negatives": size})
            drawn = torch.stack([row_change(base, state, some, turn) for turn in range(draws)])
            mean = drawn.mean(0)  # (C, d)
            variance = (drawn - mean).square().sum() / (draws - 1)
            off = ((mean - full).square().sum() - variance / draws).clamp_min(0)
            far = (drawn - full).flatten(1).norm(dim=1).mean()  # E‖ḡ_FedAvg − ḡ_FedSS‖ of the paper
            parts = {"bias": off.sqrt(), "spread": variance.sqrt(), "distance": far}
            relative = {name: round(float(value / full.norm()), 4) for name, value in parts.items()}
            point = {"merge": merge, "negatives": size, **relative}
            print(point, flush=True)
            yield point


def _order(point: Mapping[str, Any]) -> tuple[int, int]:
    return MERGES.index(point["merge"]), point["negatives"]


def row_change(base: Federation, state: ServerState, method: FedSS, turn: int) -> Tensor:
    """The change of the class table that one round of all clients comes to, under one draw: (C, d)."""
    f = replace(base, method=method)
    cohort = replace(request_rows(f, draw_clients(f, 0), turn), round=0)
    _, rows = merged(f, state, total(f.executor.train(f, state, cohort)))
    table = torch.zeros_like(local_of(state.tables["classes"]))
    table[rows["classes"].ids] = rows["classes"].values
    return table


def gradients(base: Federation, state: ServerState, method: FedSS, turn: int) -> Tensor:
    """Each client's gradient of the encoder on all its examples, under one draw: (clients, numbers)."""
    f = replace(base, method=method)
    drawn = request_rows(f, draw_clients(f, 0), turn)
    cohort = replace(drawn, round=0)  # other rows, the same examples
    rows = []
    for i in range(len(cohort.clients)):
        (planned,) = stage_round(f, state, cohort.select(np.array([i])), 1 << 40).chunks
        chunk = stage_chunk(f, planned)
        dense = {name: value.detach().requires_grad_() for name, value in state.dense.items()}
        held_rows = {name: state.tables[name][ids[0]] for name, ids in chunk.ids.items()}
        batch = {name: column[0, 0] for name, column in chunk.batches.items()}
        info = chunk.info.at(0)
        loss = f.objective()(Params(dense, held_rows), batch, info)
        slopes = torch.autograd.grad(loss, list(dense.values()))
        rows.append(torch.cat([slope.flatten() for slope in slopes]))
    return torch.stack(rows)


def figure(found: Sequence[Mapping[str, Any]]) -> str:
    """Bias and spread by the number of negatives."""
    lines: list[Line] = []
    for name in ("bias", "spread"):
        for corrected in (True, False):
            points = [point for point in found if point["corrected"] == corrected]
            values = [point[name] for point in points]
            label = f"{name}, {'corrected' if corrected else 'not corrected'}"
            at = [point["negatives"] for point in points]
            lines.append(Line(label, at, values))
    title = "A.3: the noise of sampled gradients"
    return chart(title, lines, "negatives sampled", "relative to the full gradient", x_log=True)


if __name__ == "__main__":
    command(main)
