"""Top-k mined spreadout (Eq. 8) at the size of Amazon-670K: time, memory, and agreement with float64.

    python benchmarks/mining.py [--out results/mining/h200.json]       # wants a CUDA device

4,096 participating classes against C = 670,091 rows of 512, k = 100: the whole regulariser, mining
and gradient, as the server computes it in a round.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch
from record import write
from torch import Tensor

from spreadout.core.rows import project_to_sphere
from spreadout.objectives.neighbours import nearest
from spreadout.objectives.regularizers import FarPenalty, mined_pairs

ANCHORS, K = 4096, 100


def timed(table: Tensor, anchors: Tensor, repeats: int, **how: Any) -> dict[str, Any]:
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
    hits = torch.isin(found.ids + some[:, None] * len(table), exact.ids + some[:, None] * len(table))
    reference = mined_pairs(table.double(), some, K, FarPenalty("euclidean")).gradient
    ours = mined_pairs(table, some, K, FarPenalty("euclidean"), **how).gradient
    whole = torch.zeros_like(table, dtype=torch.float64)
    whole[reference.ids] = reference.values
    norm = whole.norm()
    whole[ours.ids] -= ours.values.double()
    return {"recall": float(hits.double().mean()), "gradient_error": float(whole.norm() / norm)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("results/mining/h200.json"))
    parser.add_argument("--classes", type=int, nargs="+", default=[13_330, 325_056, 670_091])
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks/mining.py wants a CUDA device, and there is none here")
    torch.backends.cuda.matmul.allow_tf32 = False
    results = []
    for classes in arguments.classes:
        generator = torch.Generator("cuda").manual_seed(0)
        table = project_to_sphere(torch.randn(classes, 512, generator=generator, device="cuda"))
        anchors = torch.randperm(classes, generator=generator, device="cuda")[:ANCHORS].sort().values
        for name, how in {"float32": {}, "bf16": {"low_precision": True}}.items():
            made = {
                "classes": classes,
                "precision": name,
                **timed(table, anchors, arguments.repeats, **how),
            }
            made |= agreement(table, anchors, **how)
            results.append(made)
            print({k: round(v, 5) if isinstance(v, float) else v for k, v in made.items()}, flush=True)
        del table
        torch.cuda.empty_cache()
    write(
        arguments.out,
        {"setting": {"anchors": ANCHORS, "k": K, "dim": 512, "seed": 0}, "results": results},
    )


if __name__ == "__main__":
    main()
