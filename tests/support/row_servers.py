"""Row servers in processes of their own, and what somebody at the line of one of them sees."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@contextmanager
def row_servers(
    folder: Path, *options: str, count: int = 2, env: Mapping[str, str] | None = None
) -> Iterator[list[str]]:
    """The addresses of `spreadout rows-server`s on free ports; what they say goes to `folder`/rows*.log."""
    command = [sys.executable, "-m", "spreadout", "rows-server", "--port", "0", *options]
    running, found = [], []
    try:
        for i in range(count):
            with open(folder / f"rows{i}.log", "wb") as log:
                process = subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env={**os.environ, **(env or {})},
                )
            running.append(process)
        for i, process in enumerate(running):
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("listening on http"), said + (folder / f"rows{i}.log").read_text()
            found.append(said.split()[2])
        yield found
    finally:
        for process in running:
            process.terminate()
        for i, process in enumerate(running):
            rest = process.communicate(timeout=60)[0]
            with open(folder / f"rows{i}.log", "a") as log:
                log.write(rest)


def make_key(path: Path) -> Path:
    path.touch(0o600)
    path.write_bytes(os.urandom(32))
    return path


@dataclass
class Tap:
    """Stands before a server and writes down every byte that is sent to it, connection by connection."""

    target: str
    seen: list[bytes] = field(default_factory=list)

    def __enter__(self) -> Tap:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()

    def taken(self, connections: int) -> list[bytes]:
        """What has been sent in so many connections, which are over or soon will be."""
        until = time.monotonic() + 60
        while len(self.seen) < connections and time.monotonic() < until:
            time.sleep(0.001)
        seen, self.seen = self.seen, []
        return seen

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        host, port = self.target.removeprefix("http://").split(":")
        sent = bytearray()
        with client, socket.create_connection((host, int(port))) as server:
            back = threading.Thread(target=_copied, args=(server, client), daemon=True)
            back.start()
            while piece := client.recv(1 << 16):
                sent += piece
                server.sendall(piece)
            back.join(1)
        self.seen.append(bytes(sent))


def _copied(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    except OSError:
        return
