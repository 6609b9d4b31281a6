"""One request to one row server, with suspicion: a length and a time that its answer may not exceed."""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from spreadout.core.errors import UserError

ERROR = 4096  # bytes of an answer that says what is wrong
PIECE = 1 << 16
AGAIN = (408, 409, 503)  # statuses after which the same question may be answered


class Again(UserError):
    """No answer just now; another try may have one."""


@dataclass(frozen=True)
class Address:
    """Where a row server listens."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`https://host:port`; without TLS on this machine alone."""
        try:
            found = urlsplit(text.strip())
            port = found.port
        except ValueError:
            found, port = urlsplit(""), None
        host = found.hostname or ""
        plain = not (found.username or found.password or found.query or found.fragment)
        if found.scheme not in ("http", "https") or not host or not plain or found.path not in ("", "/"):
            raise UserError(f"{text!r}: is no row server's address, as https://rows.example:8100 is")
        if found.scheme == "http" and not _is_here(host):
            raise UserError(
                f"{text}: is not encrypted, and whoever listens on the way to both servers learns the "
                "rows; give https://"
            )
        return cls(found.scheme, host, port or (443 if found.scheme == "https" else 80))

    def __str__(self) -> str:
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | memoryview | None = None,
        *,
        most: int,
        seconds: float,
        headers: dict[str, str] | None = None,
    ) -> bytes:
        """The answer's body. most: bytes of it; seconds: for all of it."""
        until = time.monotonic() + seconds
        connection = self._connection(seconds)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            found = self._read(connection, answer, most if answer.status == 200 else ERROR, until)
        except ssl.SSLError as error:
            raise UserError(f"{self}: no TLS that can be trusted ({error.reason or error})") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Again(f"{self}: does not answer ({type(error).__name__}: {error})") from None
        finally:
            connection.close()
        if answer.status != 200:
            kind = Again if answer.status in AGAIN else UserError
            raise kind(f"{self}: {_said(found)} ({answer.status})")
        return found

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        if self.scheme == "http":
            return http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        context = ssl.create_default_context()  # SSL_CERT_FILE names a CA of one's own
        return http.client.HTTPSConnection(self.host, self.port, timeout=seconds, context=context)

    def _read(
        self,
        connection: http.client.HTTPConnection,
        answer: http.client.HTTPResponse,
        most: int,
        until: float,
    ) -> bytes:
        found = bytearray()
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("its answer takes too long")
            if connection.sock is not None:  # http.client lets go of it with the last answer
                connection.sock.settimeout(left)
            piece = answer.read1(PIECE)
            if not piece:
                break
            found += piece
            if len(found) > most:
                raise UserError(f"{self}: answers with more than the {most:,} bytes asked for")
        if answer.length:  # http.client does not mind an answer that is cut off, if it is read in pieces
            raise http.client.IncompleteRead(b"", answer.length)
        return bytes(found)


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _said(body: bytes) -> str:
    """What a server says is wrong; its words are not ours, and are cut."""
    try:
        return str(json.loads(body)["error"])[:200]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no row server's answer"
