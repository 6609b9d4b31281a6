"""The command line `spreadout` in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def spreadout(*words: str, under: Sequence[str] = (), settings: Mapping[str, str] | None = None) -> str:
    """What a command prints; `under` goes between Python and the module, as a launcher does."""
    command = [sys.executable, *under, "-m", "spreadout", *words]
    environment = {**os.environ, **(settings or {})}
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def summary_of(
    *words: str, under: Sequence[str] = (), settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The summary of a run, with the loss of its last evaluation; its folder goes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        spreadout("run", *words, "--out", str(out), under=under, settings=settings)
        last = json.loads((out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        return {**json.loads((out / "summary.json").read_bytes()), "loss": last.get("loss")}
