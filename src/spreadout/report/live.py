"""The report page of runs in progress, served on loopback: drawn again with every checkpoint."""

from __future__ import annotations

import html
import secrets
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from spreadout.core.errors import UserError
from spreadout.report.document import document
from spreadout.report.page import page
from spreadout.runs.arms import COMPARISON, Arm, arms_of, with_distinct_labels
from spreadout.runs.files import SUMMARY

HOST = "127.0.0.1"
EVERY = 1.0  # seconds between two looks at the folders
LIVE = "<script>new EventSource('events').onmessage = () => location.reload()</script>"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; frame-ancestors 'none'",
}
WATCHED = (SUMMARY, COMPARISON, "checkpoint/state.json")
Seen = tuple[tuple[str, int, int], ...]


def arms_now(folders: Sequence[Path]) -> list[Arm]:
    """The runs as far as they are."""
    found = [(arm, folder) for folder in folders for arm in arms_of(folder)]
    return with_distinct_labels([arm for arm, _ in found], [folder for _, folder in found])


def changes_of(folders: Sequence[Path]) -> Seen:
    """What is different whenever there is something new to show."""
    seen = []
    for folder in folders:
        for name in WATCHED:
            for path in sorted((*folder.glob(name), *folder.glob(f"*/seed-*/{name}"))):
                try:
                    found = path.stat()
                except OSError:  # it is being replaced
                    continue
                seen.append((str(path), found.st_mtime_ns, found.st_size))
    return tuple(seen)


def page_now(folders: Sequence[Path]) -> str:
    """The page, which loads itself again when something has changed."""
    title = folders[0].resolve().name if len(folders) == 1 else "runs in progress"
    try:
        drawn = page(arms_now(folders), title)
    except UserError as error:  # nothing evaluated yet, or a file is being replaced
        drawn = document(title, "waiting", [f"<p class=warning>{html.escape(str(error))}</p>"])
    return drawn.replace("</body>", f"{LIVE}</body>")


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
        _, token, *rest = [*self.path.split("/"), ""]
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            return self._answer(404, "no such page")
        if rest[:1] == ["events"]:
            return self._events()
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

    def _events(self) -> None:
        """One event for each change, until the reader leaves."""
        self.send_response(200)
        for name, value in {"Content-Type": "text/event-stream", **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        before = changes_of(self.server.folders)
        try:
            self.wfile.write(b": watching\n\n")
            while not self.server.ended.wait(EVERY):
                now = changes_of(self.server.folders)
                self.wfile.write(b": nothing new\n\n" if now == before else b"data: changed\n\n")
                self.wfile.flush()
                before = now
        except OSError:  # the reader has left
            return

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a token would stand in the log."""
