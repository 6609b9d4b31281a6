"""The report page of runs in progress, served on loopback: drawn again with every checkpoint."""

from __future__ import annotations

import html
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from spreadout.core.checksums import sha256
from spreadout.core.errors import UserError
from spreadout.report.deployment_view import deployment
from spreadout.report.document import asset, document
from spreadout.report.page import page
from spreadout.runs.arms import COMPARISON, Arm, arms_of, with_distinct_labels
from spreadout.runs.claim import COMPARISON_MARK, CONFIG
from spreadout.runs.deployed import EVENTS, Deployed, deployed_of
from spreadout.runs.files import SUMMARY

HOST = "127.0.0.1"
EVERY = 1.0  # seconds between two looks at the folders
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; frame-ancestors 'none'",
}
WATCHED = (SUMMARY, COMPARISON, "checkpoint/state.json", EVENTS)


def arms_now(folders: Sequence[Path]) -> tuple[list[Arm], dict[Path, str]]:
    """The runs as far as they are, and why others have nothing to show yet."""
    found: list[tuple[Arm, Path]] = []
    waiting = {}
    for folder in folders:
        if not any((folder / mark).is_file() for mark in (CONFIG, COMPARISON, COMPARISON_MARK)):
            waiting[folder] = f"{folder}: no run has begun here yet"
            continue
        try:
            found += [(arm, folder) for arm in arms_of(folder)]
        except UserError as error:  # nothing evaluated yet, or a file is being replaced
            waiting[folder] = str(error)
    arms, where = [arm for arm, _ in found], [folder for _, folder in found]
    return with_distinct_labels(arms, where), waiting


def nodes_now(folder: Path) -> Deployed | None:
    """What the server of a deployment has told by now."""
    with suppress(UserError):
        return deployed_of(folder)
    return None


def state_of(folders: Sequence[Path]) -> str:
    """A digest that is different whenever there is something new to show."""
    seen = []
    for folder in folders:
        for name in WATCHED:
            for path in sorted((*folder.glob(name), *folder.glob(f"*/seed-*/{name}"))):
                try:
                    found = path.stat()
                except OSError:  # it is being replaced
                    continue
                seen.append((str(path), found.st_mtime_ns, found.st_size))
    return sha256(repr(seen).encode())


def page_now(folders: Sequence[Path]) -> str:
    """The page, which loads itself again when something has changed since it was drawn."""
    state = state_of(folders)  # before anything is read: what changes meanwhile is news
    title = folders[0].resolve().name if len(folders) == 1 else "runs in progress"
    arms, waiting = arms_now(folders)
    try:
        drawn = page(arms, title, list(waiting.values())) if arms else _waiting(waiting, title)
    except UserError as error:  # runs that cannot stand on one page
        drawn = _waiting(waiting | {folders[0]: str(error)}, title)
    script = asset("live.js").replace("STATE", state)
    return drawn.replace("</body>", f"<script>{script}</script></body>")


def _waiting(why: Mapping[Path, str], title: str) -> str:
    """A page of runs that have no evaluation yet: their nodes, if they have any."""
    parts = []
    for folder, said in why.items():
        parts.append(f"<p class=warning>{html.escape(said)}</p>")
        if (found := nodes_now(folder)) is not None:
            parts.append(deployment(found))
    return document(title, "Waiting for the first evaluation", parts)


class LiveServer(ThreadingHTTPServer):
    """Answers on loopback, and only to who has the address with its token."""

    daemon_threads = True

    def __init__(self, folders: Sequence[Path], port: int = 0) -> None:
        self.folders, self.token = list(folders), secrets.token_urlsafe(24)
        self.ended = threading.Event()
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/{self.token}/"

    def shutdown(self) -> None:
        self.ended.set()
        super().shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            return self._answer(404, "no such page")  # a name of somebody else's that leads here
        path, _, seen = self.path.partition("?")
        _, token, *rest = [*path.split("/"), ""]
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            return self._answer(404, "no such page")
        if rest[:1] == ["events"]:
            return self._events(seen)
        if rest[:1] == [""]:
            return self._answer(200, page_now(self.server.folders), "text/html; charset=utf-8")
        return self._answer(404, "no such page")

    def _answer(self, status: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        payload = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(payload)),
            **HEADERS,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def _events(self, seen: str) -> None:
        """One event for each change from what the reader has seen, until it leaves."""
        self.send_response(200)
        for name, value in {"Content-Type": "text/event-stream", **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(b": watching\n\n")
            while not self.server.ended.wait(EVERY):
                now = state_of(self.server.folders)
                self.wfile.write(b": nothing new\n\n" if now == seen else b"data: changed\n\n")
                self.wfile.flush()
                seen = now
        except OSError:  # the reader has left
            return

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a token would stand in the log."""
