"""Convolutions with a kernel for every client: one by one, vmapped (grouped), or as matrix products.

    python -m benchmarks.speed.convolutions --out results/fedss/convolutions-cpu.json

Milliseconds of one forward and backward pass over all clients, for the layers of the Omniglot network
with 64 channels.
The simulator trains through `torch.vmap`, which turns such a convolution into a grouped one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.common.command import command, parser_of
from benchmarks.common.record import write
from benchmarks.common.timing import timed

LAYERS = ((1, 28, 64), (64, 14, 64), (64, 7, 64))  # channels in, pixels a side, channels out


def one_by_one(x: Tensor, w: Tensor) -> Tensor:
    return torch.stack([F.conv2d(a, b, padding=1) for a, b in zip(x, w, strict=True)])


def vmapped(x: Tensor, w: Tensor) -> Tensor:
    return torch.vmap(lambda a, b: F.conv2d(a, b, padding=1))(x, w)


def as_products(x: Tensor, w: Tensor) -> Tensor:
    def product(a: Tensor, b: Tensor) -> Tensor:
        patches = F.unfold(a, 3, padding=1)  # (B, channels · 9, pixels)
        return (b.flatten(1) @ patches).view(len(a), len(b), *a.shape[-2:])

    return torch.vmap(product)(x, w)


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "one after another": one_by_one,
    "vmapped": vmapped,
    "matrix products": as_products,
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    found = []
    for channels, side, wide in LAYERS:
        x = torch.randn(a.clients, a.batch, channels, side, side, device=a.device)
        w = torch.randn(a.clients, wide, channels, 3, 3, device=a.device) / 10
        reference = one_by_one(x, w)
        for name, way in WAYS.items():
            # Ten bits of mantissa, where convolutions run on tensor cores
            torch.testing.assert_close(way(x, w), reference, rtol=1e-2, atol=1e-2)
            took = min(milliseconds(way, x, w) for _ in range(5))
            layer = f"{channels}x{side}x{side} to {wide}"
            found.append({"layer": layer, "way": name, "milliseconds": round(took, 2)})
            print(found[-1])
    write(a.out, {"clients": a.clients, "batch": a.batch, "results": found})


def milliseconds(way: Callable[[Tensor, Tensor], Tensor], x: Tensor, w: Tensor) -> float:
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    _, seconds = timed(lambda: way(x, w).square().sum().backward(), x.device)  # type: ignore[no-untyped-call]
    return 1000 * seconds


if __name__ == "__main__":
    command(main)
