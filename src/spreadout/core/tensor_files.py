"""Tensors in a file of the safetensors format, written piece by piece.

No copy of them is made in memory, and an error of the file system names the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from spreadout.core.files import write_atomic

TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write them atomically; the file's SHA-256."""
    return write_atomic(path, _pieces(tensors))


def tensor_file_bytes(tensors: Mapping[str, Tensor]) -> int:
    """How long the file will be."""
    return len(_header(tensors)) + sum(value.nbytes for value in tensors.values())


def _pieces(tensors: Mapping[str, Tensor]) -> Iterator[memoryview | bytes]:
    yield _header(tensors)
    for name in _order(tensors):
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data


def _order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Wide types first, as the format's own library does: every tensor is aligned."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    """Eight bytes with the length of the JSON that follows: type, shape and place of each tensor."""
    about, at = {}, 0
    for name in _order(tensors):
        value = tensors[name]
        end = at + value.nbytes
        about[name] = {
            "dtype": TYPES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(about, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
