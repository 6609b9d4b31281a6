"""What a machine has that matters here."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

EXTRAS = {
    "images": "pillow",
    "parquet": "pyarrow",
    "index": "faiss-cpu",
    "export": "onnx",
    "serve": "fastapi",
    "flower": "flwr",
}


@dataclass(frozen=True)
class Finding:
    """One thing looked at; `ok` is False only where runs would fail."""

    name: str
    found: str
    ok: bool = True


def examine() -> list[Finding]:
    """All findings, the most important first."""
    return [
        Finding("spreadout", _version("spreadout")),
        Finding("python", platform.python_version(), sys.version_info >= (3, 11)),
        Finding("torch", f"{torch.__version__}, {torch.get_num_threads()} threads"),
        _cuda(),
        Finding("memory", _memory()),
        _computes(),
        _writes(),
        _data(),
        *(Finding(f"extra [{extra}]", _version(package)) for extra, package in EXTRAS.items()),
    ]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cuda() -> Finding:
    if not torch.cuda.is_available():
        return Finding("cuda", "none; runs use the CPU")
    free, total = torch.cuda.mem_get_info()
    return Finding("cuda", f"{torch.cuda.get_device_name()}, {free >> 30} of {total >> 30} GiB free")


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 30} GiB"
    except (ValueError, OSError):
        return "unknown"


def _computes() -> Finding:
    """The simulator rests on vmap under autograd: try it rather than trust a version number."""
    w = torch.ones(3, 2, requires_grad=True)
    torch.vmap(lambda row: (row * row).sum())(w).sum().backward()
    right = w.grad is not None and bool((w.grad == 2).all())
    return Finding("vmap + autograd", "works" if right else "gives wrong gradients", right)


def _writes() -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir="."):
            return Finding("this folder", f"{Path.cwd()} can be written")
    except OSError as error:
        return Finding("this folder", f"{Path.cwd()} cannot be written ({error.strerror})", False)


def _data() -> Finding:
    home = os.environ.get("SPREADOUT_DATA")
    if not home:
        return Finding("SPREADOUT_DATA", "not set; only digits and your own files are at hand")
    if not Path(home).is_dir():
        return Finding("SPREADOUT_DATA", f"{home} is not a folder", False)
    return Finding("SPREADOUT_DATA", home)
