"""Mining the nearest rows of classes: by precision at the size of Amazon-670K, or from an index.

    python -m benchmarks.speed.mining precision   # wants a CUDA device; results/mining/h200.json
    python -m benchmarks.speed.mining index       # needs extra [index]; results/mining/index-cpu.json

`precision`: 4,096 participating classes against C = 670,091 rows of 512, k = 100: the whole top-k mined
spreadout (Eq. 8), mining and gradient, as the server computes it in a round, with its time, memory, and
agreement with float64.

`index`: neighbours from an approximate index beside looking at all rows. 512 participating classes,
k = 100, d = 128; tables of rows around family centres, a hundred a family, as label spaces with near
synonyms have them, and of rows at random, where nothing is near anything. Rows move a little between the
making of the index and the search, as they do in the rounds between.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import write
from benchmarks.common.timing import timed
from spreadout.core.errors import UserError
from spreadout.core.rows import project_to_sphere
from spreadout.objectives.approximate_neighbours import approximately_nearest, lists_for, snapshot
from spreadout.objectives.neighbours import Nearest, nearest
from spreadout.objectives.regularizers import FarPenalty, mined_pairs

K = 100
PRECISE = {"anchors": 4096, "k": K, "dim": 512}
INDEXED = {"anchors": 512, "k": K, "dim": 128}


def main() -> None:
    parser = parser_of(__doc__)
    ways = parser.add_subparsers(dest="what", required=True)
    precision = ways.add_parser("precision", help="float32 and bfloat16 on a GPU")
    precision.add_argument("--out", type=Path, default=RESULTS / "mining" / "h200.json")
    precision.add_argument("--classes", type=int, nargs="+", default=[13_330, 325_056, 670_091])
    precision.add_argument("--repeats", type=int, default=20)
    index = ways.add_parser("index", help="an approximate index beside all rows")
    index.add_argument("--out", type=Path, default=RESULTS / "mining" / "index-cpu.json")
    index.add_argument("--classes", type=int, nargs="+", default=[100_000, 1_000_000])
    index.add_argument("--probes", type=int, nargs="+", default=[4, 16, 64])
    a = parser.parse_args()
    if min(a.classes) <= K:
        parser.error(f"--classes {min(a.classes)}: must be above the {K} neighbours looked for")
    if a.what == "precision":
        by_precision(a.classes, a.repeats, a.out)
    else:
        by_index(a.classes, a.probes, a.out)


def recall(found: Nearest, exact: Nearest) -> float:
    """The share of true neighbours that were found."""
    return float((found.ids[:, :, None] == exact.ids[:, None]).any(-1).double().mean())


def by_precision(sizes: Sequence[int], repeats: int, out: Path) -> None:
    if not torch.cuda.is_available():
        raise UserError("mining precision: wants a CUDA device, and there is none here")
    torch.backends.cuda.matmul.allow_tf32 = False
    results = []
    for classes in sizes:
        generator = torch.Generator("cuda").manual_seed(0)
        shape = (classes, PRECISE["dim"])
        table = project_to_sphere(torch.randn(shape, generator=generator, device="cuda"))
        order = torch.randperm(classes, generator=generator, device="cuda")
        anchors = order[: PRECISE["anchors"]].sort().values
        for name, how in {"float32": {}, "bf16": {"low_precision": True}}.items():
            made = {
                "classes": classes,
                "precision": name,
                **by_events(table, anchors, repeats, **how),
                **agreement(table, anchors, **how),
            }
            results.append(made)
            print({k: round(v, 5) if isinstance(v, float) else v for k, v in made.items()}, flush=True)
        del table
        torch.cuda.empty_cache()
    write(out, {"setting": {**PRECISE, "seed": 0}, "results": results})


def by_events(table: Tensor, anchors: Tensor, repeats: int, **how: Any) -> dict[str, Any]:
    """Median milliseconds by CUDA events, and the most memory above what was held before."""
    for _ in range(2):
        mined_pairs(table, anchors, K, FarPenalty("euclidean"), **how)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times, parts = [], []
    for _ in range(repeats):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]  # type: ignore[no-untyped-call]
        events[0].record()
        nearest(table[anchors], table, K, exclude=anchors, **how)
        events[1].record()
        mined_pairs(table, anchors, K, FarPenalty("euclidean"), **how)
        events[2].record()
        torch.cuda.synchronize()
        parts.append(events[0].elapsed_time(events[1]))
        times.append(events[1].elapsed_time(events[2]))
    return {
        "milliseconds": statistics.median(times),
        "of_it_mining": statistics.median(parts),
        "extra_gigabytes": (torch.cuda.max_memory_allocated() - before) / 2**30,
    }


def agreement(table: Tensor, anchors: Tensor, **how: Any) -> dict[str, float]:
    """Against float64: the share of true neighbours found, and the relative error of the gradient."""
    some = anchors[:64]
    exact = nearest(table[some].double(), table.double(), K, exclude=some)
    found = nearest(table[some], table, K, exclude=some, **how)
    reference = mined_pairs(table.double(), some, K, FarPenalty("euclidean")).gradient
    ours = mined_pairs(table, some, K, FarPenalty("euclidean"), **how).gradient
    whole = torch.zeros_like(table, dtype=torch.float64)
    whole[reference.ids] = reference.values
    norm = whole.norm()
    whole[ours.ids] -= ours.values.double()
    return {"recall": recall(found, exact), "gradient_error": float(whole.norm() / norm)}


def by_index(sizes: Sequence[int], probes: Sequence[int], out: Path) -> None:
    results = []
    for classes in sizes:
        for kind in ("families", "random"):
            results += beside_exact(kind, classes, probes)
    write(out, {"setting": {**INDEXED, "threads": torch.get_num_threads()}, "results": results})


def beside_exact(kind: str, classes: int, several: Sequence[int]) -> list[dict[str, Any]]:
    table = rows_of(kind, classes)
    copy = snapshot(table)
    table = project_to_sphere(table + 0.02 * torch.randn(table.shape))  # they have moved since
    anchors = torch.linspace(0, classes - 1, INDEXED["anchors"]).long()

    def search(probes: int) -> Nearest:
        return approximately_nearest(table[anchors], table, K, copy, probes=probes, exclude=anchors)

    exact, all_of_them = timed(lambda: nearest(table[anchors], table, K, exclude=anchors))
    _, made = timed(partial(search, 1))  # makes the index too
    results = []
    for probes in several:
        found, took = timed(partial(search, probes))
        results.append(
            {
                "classes": classes,
                "rows": kind,
                "lists": lists_for(classes),
                "probes": probes,
                "milliseconds": round(1000 * took, 1),
                "exact_milliseconds": round(1000 * all_of_them, 1),
                "recall": round(recall(found, exact), 4),
                "seconds_to_make": round(made, 1),
            }
        )
        print(results[-1], flush=True)
    return results


def rows_of(kind: str, count: int) -> Tensor:
    torch.manual_seed(0)
    rows = torch.randn(count, INDEXED["dim"])
    if kind == "families":
        centres = torch.randn(max(count // 100, 1), INDEXED["dim"])
        rows = centres[torch.randint(len(centres), (count,))] + 0.5 * rows
    return project_to_sphere(rows)


if __name__ == "__main__":
    command(main)
