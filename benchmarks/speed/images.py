"""What a FedAwS round on images costs beside a plain PyTorch loop of the same network and batch.

    python -m benchmarks.speed.images --out results/simulator/images.json

Both train a ResNet in bf16 with channels last on random 32x32 images that lie on the device as bytes:
ten clients of one class with 51 images each, against one batch of 510, shifted and mirrored alike, SGD
with momentum. The plain loop has torch's own norms and optimiser and no federation; "replayed" is the
same loop as one CUDA graph, the floor. Then where a round's time goes: what the device does, and what
the host does meanwhile.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import spreadout as so
from benchmarks.common.command import command, parser_of
from benchmarks.common.record import write
from benchmarks.common.timing import timed, wait
from spreadout.core.state import ServerState
from spreadout.data.splits import Splits
from spreadout.federated.cohort import draw_cohort
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round
from spreadout.models.nn.cohort_norm import CohortNorm
from spreadout.models.nn.images import NORMS, ResNet
from spreadout.runs.build import build_federation
from spreadout.runtime.simulator.staging import stage_chunk, stage_round

CLASSES, DIM, SHIFT = 10, 64, 4
WAYS = ("plain", "replayed", "round", "round, no graph")
Step = Callable[[], object]


def pictures(count: int) -> Splits:
    """Random ones, equally many of every class."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    y = np.arange(count) * CLASSES // count
    train = so.FederatedDataset.from_arrays(x, y, client=y)
    return Splits("random pictures", train, so.Examples.from_arrays(x[:CLASSES], np.arange(CLASSES)))


def federation(data: Splits, net: str, norm: str, batch: int, device: str, graphs: bool) -> Federation:
    values = {
        "rounds": 10_000,
        "model": {"encoder": net, "norm": norm, "dim": DIM},
        "method": {"name": "fedaws"},
        "clients": {
            **{"local_steps": 1, "batch": batch, "lr": 1.0, "row_lr": 0.1},
            **{"image_shift": SHIFT, "image_flip": True},
        },
        "server": {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4},
        "run": {"memory_gb": 64, "graphs": graphs, "precision": "bf16"},
    }
    return build_federation(so.Experiment.of(values), data, torch.device(device))


class PlainLoop:
    """The same step as everybody writes it."""

    def __init__(self, data: Splits, net: str, norm: str, batch: int, device: str) -> None:
        column: Any = data.train.columns["x"]
        self.x = column.values.to(device)
        self.y = torch.arange(len(self.x), device=device) * CLASSES // len(self.x)
        self.device, self.batch, self.cuda = device, CLASSES * batch, device == "cuda"
        network = ResNet(int(net.removeprefix("resnet")), 3, DIM, NORMS[norm])
        for name, module in list(network.named_modules()):
            if isinstance(module, CohortNorm):
                place, _, last = name.rpartition(".")
                setattr(network.get_submodule(place), last, nn.BatchNorm2d(len(module.weight)))
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.net = network.to(device)
        self.rows = nn.Parameter(F.normalize(torch.randn(CLASSES, DIM, device=device), dim=-1))
        self.optimizer = torch.optim.SGD(
            [*self.net.parameters(), self.rows], lr=0.1, momentum=0.9, weight_decay=5e-4
        )
        self.at = torch.empty(self.batch, dtype=torch.int64, device=device)

    def __call__(self) -> Tensor:
        torch.randint(len(self.x), (self.batch,), device=self.device, out=self.at)
        return self.step()

    def step(self) -> Tensor:
        x = moved(self.x[self.at].float() / 255)
        x = x.contiguous(memory_format=torch.channels_last)
        self.optimizer.zero_grad()
        with torch.autocast(self.device, torch.bfloat16, cache_enabled=False):
            found = self.net(x)
        cosine = (
            F.normalize(found.float(), dim=-1) * F.normalize(self.rows, dim=-1)[self.y[self.at]]
        ).sum(-1)
        loss = (0.9 - cosine).clamp_min(0).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def replayed(self) -> Step:
        """The whole step as one graph."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()

        def step() -> None:
            torch.randint(len(self.x), (self.batch,), device=self.device, out=self.at)
            graph.replay()

        return step


def moved(x: Tensor) -> Tensor:
    """Shifted and mirrored at random, on the device: (B, 3, 32, 32)."""
    n, _, high, wide = x.shape
    by = torch.randint(-SHIFT, SHIFT + 1, (2, n, 1), device=x.device)
    rows = (torch.arange(high, device=x.device) + by[0]).clamp(0, high - 1)
    columns = (torch.arange(wide, device=x.device) + by[1]).clamp(0, wide - 1)
    columns = torch.where(torch.rand(n, 1, device=x.device) < 0.5, columns, wide - 1 - columns)
    x = x.gather(-2, rows[:, None, :, None].expand_as(x))
    return x.gather(-1, columns[:, None, None, :].expand_as(x))


def milliseconds(step: Step, device: str, steps: int, repeats: int = 3) -> float:
    """Of one step, in the median of several rows of them; the first steps do not count."""
    for _ in range(5):
        step()
    spent = []
    for _ in range(repeats):
        wait(torch.device(device))
        _, seconds = timed(lambda: [step() for _ in range(steps)], torch.device(device))
        spent.append(1000 * seconds / steps)
    return statistics.median(spent)


def parts_of_a_round(f: Federation, steps: int) -> dict[str, float]:
    """Milliseconds that parts of a round take one after another, each waited for."""
    state = ServerState(0, *f.model.initial(f.seed, f.device))
    run_round(f, state)
    cohort = draw_cohort(f, 1)
    staged = stage_round(f, state, cohort, 64 << 30, fuses=True)
    device = f.device.type
    return {
        "cohort and plan": milliseconds(
            lambda: stage_round(f, state, draw_cohort(f, 1), 64 << 30, fuses=True), device, steps
        ),
        "batches, shifted": milliseconds(
            lambda: stage_chunk(f, staged.chunks[0], fuses=True), device, steps
        ),
    }


def profiled(f: Federation, steps: int) -> list[str]:
    """The host's functions that take longest in rounds, as lines."""
    state = ServerState(0, *f.model.initial(f.seed, f.device))
    for _ in range(5):
        run_round(f, state)
    with cProfile.Profile() as profile:
        for _ in range(steps):
            run_round(f, state)
    text = StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(14)
    return [line for line in text.getvalue().splitlines() if line.strip()]


def kernels(f: Federation, steps: int) -> list[str]:
    """The device's kernels that take longest in rounds, as lines."""
    from torch.profiler import ProfilerActivity, profile

    state = ServerState(0, *f.model.initial(f.seed, f.device))
    for _ in range(5):
        run_round(f, state)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            run_round(f, state)
        wait(f.device)
    rows = [one for one in seen.key_averages() if one.self_device_time_total > 0]
    rows = sorted(rows, key=lambda one: -one.self_device_time_total)
    whole = sum(one.self_device_time_total for one in rows) / steps / 1000
    lines = [f"device busy {whole:.2f} ms a round"]
    for one in rows[:14]:
        each = one.self_device_time_total / steps / 1000
        lines.append(f"{each:7.3f} ms {one.count / steps:6.1f} x {one.key[:90]}")
    return lines


def measured(
    data: Splits, net: str, norm: str, ways: Sequence[str], batch: int, device: str, steps: int
) -> dict[str, float]:
    found = {}
    for way in ways:
        if way in ("plain", "replayed"):
            loop = PlainLoop(data, net, norm, batch, device)
            step: Step = loop if way == "plain" else loop.replayed()
        else:
            f = federation(data, net, norm, batch, device, graphs=way == "round")
            state = ServerState(0, *f.model.initial(f.seed, f.device))

            def step(f: Federation = f, state: ServerState = state) -> object:
                return run_round(f, state)

        found[way] = round(milliseconds(step, device, steps), 3)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--nets", nargs="+", default=["resnet8", "resnet32", "resnet56"])
    parser.add_argument("--norms", nargs="+", default=["batch", "group"])
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=51, help="images of each of ten clients")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--profile", default="resnet32", help="network whose rounds are looked into")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    data = pictures(a.images)
    ways = [way for way in WAYS if a.device == "cuda" or way in ("plain", "round, no graph")]
    about, results = {"clients": CLASSES, "batch": a.batch, "steps": a.steps}, []
    print(f"{'ms a step':<18}" + "".join(f"{way:>17}" for way in ways) + f"{'round / plain':>15}")
    for net in a.nets:
        for norm in a.norms:
            found = measured(data, net, norm, ways, a.batch, a.device, a.steps)
            ratio = round(found[ways[-1 if a.device != "cuda" else 2]] / found["plain"], 2)
            results.append({"net": net, "norm": norm, "milliseconds": found, "round / plain": ratio})
            print(f"{net} {norm:<9}" + "".join(f"{found[way]:17.2f}" for way in ways) + f"{ratio:15.2f}")
            write(a.out, {**about, "results": results}, quiet=True)
    f = federation(data, a.profile, a.norms[0], a.batch, a.device, graphs=True)
    parts, host = parts_of_a_round(f, a.steps), profiled(f, a.steps)
    device = kernels(f, 10) if a.device == "cuda" else []
    print({name: round(value, 2) for name, value in parts.items()})
    print("\n".join([*host, *device]))
    write(a.out, {**about, "results": results, "parts": parts, "host": host, "device": device})


if __name__ == "__main__":
    command(main)
