"""Processes that end with the block they were started in, and all that they have started themselves."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from spreadout.core.errors import UserError
from spreadout.core.private import UMASK

MARK = "SPREADOUT_DEPLOYMENT"  # in the environment of every process of a rehearsal …
STARTER = "SPREADOUT_DEPLOYMENT_STARTER"  # … with the process that has started it
COLOURS = re.compile("\x1b\\[[0-9;]*m")
PATIENCE = 5.0  # seconds between SIGTERM and SIGKILL


class Processes:
    """A group for each process, a log for each, and an end for all of them."""

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.logs = logs
        self.mark = secrets.token_hex(8)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        self.environment = {**os.environ, "PATH": path, **environment, MARK: self.mark}
        self.environment[STARTER] = str(os.getpid())
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def start(self, name: str, *command: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a program of this environment; what it says goes to `logs/<name>.log`."""
        program = shutil.which(command[0], path=self.environment["PATH"])
        if program is None:
            raise UserError(f"{command[0]}: not found; pip install 'spreadout[flower]'")
        with open(self.logs / f"{name}.log", "ab", opener=_private) as log:
            process = subprocess.Popen(
                [program, *command[1:]],
                env=self.environment,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us to pass on
                umask=UMASK if os.name == "posix" else -1,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
            )
        self.running[name] = process
        return process

    def call(self, name: str, *command: str, cwd: Path | None = None, patience: float = 600) -> None:
        """Run a program to its end; one that fails says why in its log."""
        process = self.start(name, *command, cwd=cwd)
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            raise UserError(
                f"{command[0]} takes longer than {patience:g} s; {self.last(name)}"
            ) from None
        if code != 0:
            raise UserError(f"{command[0]} failed: {self.last(name)}")

    def ended(self, name: str) -> bool:
        return self.running[name].poll() is not None

    def how(self, name: str) -> str:
        """In what way one that has ended did."""
        code = self.running[name].poll()
        return f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def last(self, name: str) -> str:
        """The last line of a log, and where to read the rest."""
        log = self.logs / f"{name}.log"
        plain = COLOURS.sub("", log.read_text("utf-8", "replace"))
        lines = [line.strip() for line in plain.splitlines()]
        said = next((line for line in reversed(lines) if line.strip("─╭╮╰╯│ ")), "it said nothing")
        return f"{said} ({log})"

    def kill(self, name: str) -> None:
        """End one at once, with all it has started."""
        process = self.running.pop(name)
        _signal(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        """Ask all to end, then end those that do not; at once, if the user has no patience left."""
        try:
            for process in self.running.values():
                _signal(process.pid, signal.SIGTERM)
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until and self.survivors():
                time.sleep(0.05)
        finally:
            for process in self.running.values():
                _signal(process.pid, signal.SIGKILL)
            for pid in self.survivors():  # those that left their group
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self.running.values():
                process.wait()
            self.running.clear()
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until and self.survivors():  # no children of ours to wait for
                time.sleep(0.01)

    def survivors(self) -> list[int]:
        """Processes of this deployment that are still there."""
        if sys.platform == "linux":
            return list(marked(self.mark))
        return [process.pid for process in self.running.values() if process.poll() is None]


def marked(mark: str) -> Iterator[int]:
    """Every process that has this mark in its environment and is not yet dead."""
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            mine = wanted in (entry / "environ").read_bytes().split(b"\0")
            dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            continue
        if mine and not dead:
            yield int(entry.name)


def free_port() -> int:
    """A port nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _private(path: str, flags: int) -> int:
    """Open a file that, if it is new, only its owner may read."""
    return os.open(path, flags, 0o600)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _end_with_parent() -> None:
    """Should we be killed outright, the kernel ends what we started."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def end_with_starter() -> None:
    """In a server of a rehearsal: end when whoever started it is gone; Flower would try for ever."""
    starter = os.environ.get(STARTER)
    if starter is None:
        return

    def watch() -> None:
        while True:
            try:
                os.kill(int(starter), 0)
            except (ProcessLookupError, PermissionError):  # gone, or its number is another's
                os._exit(1)
            time.sleep(1)

    threading.Thread(target=watch, daemon=True).start()
