"""The command line, in a process of its own or in this one."""

import subprocess
import sys
from pathlib import Path

import pytest


def spreadout(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spreadout", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


def invoke(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """The same entry point without a new process."""
    from spreadout.cli import main as cli

    monkeypatch.setattr(sys, "argv", ["spreadout", *args])
    try:
        cli.main()
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0
