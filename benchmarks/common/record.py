"""What every result file says about where it comes from."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.paths import ROOT
from spreadout import __version__
from spreadout.core.errors import UserError
from spreadout.core.files import write_atomic


def write(path: Path, results: Mapping[str, Any], *, quiet: bool = False) -> None:
    """Write results with the commit, hardware and versions that made them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made_by = {"commit": commit(), "hardware": hardware(), "versions": versions()}
    write_atomic(path, (json.dumps({**made_by, **results}, indent=1) + "\n").encode())
    if not quiet:
        print(f"wrote {path}")


def read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except (ValueError, TypeError):
        raise UserError(f"{path}: is no file of results") from None


def hardware() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return f"{len(names)} x {names[0]}"
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    return {"spreadout": __version__, "torch": torch.__version__, "python": platform.python_version()}


def commit() -> str:
    """The commit the working tree stands on, with a + where it differs from it.

    A tree copied without its history is told through SPREADOUT_COMMIT.
    """
    if told := os.environ.get("SPREADOUT_COMMIT"):
        return told
    git = ["git", "-C", str(ROOT)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        dirty = subprocess.run(
            [*git, "status", "--porcelain", "--", "src"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + ("+" if dirty.stdout.strip() else "")
