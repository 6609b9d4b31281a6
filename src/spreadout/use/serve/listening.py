"""Where a small server listens."""

from __future__ import annotations

import importlib.util
import socket

from spreadout.core.errors import UserError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def refuse_without_libraries(command: str) -> None:
    for name in ("fastapi", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise UserError(f"{command} needs {name}: pip install 'spreadout[serve]'")


def listening(host: str, port: int) -> socket.socket:
    """A socket at which whoever connects waits, and is not refused."""
    if not isinstance(port, int) or not 0 <= port < 2**16:
        raise UserError(f"--port {port}: must lie between 0 and 65535")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}:{port} ({error.strerror}); take another --port"
        ) from None
    return listener


def address_of(listener: socket.socket, scheme: str = "http") -> str:
    """As a person or a program would call it."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
