"""What the small servers here do alike: read a body with suspicion, and refuse in one line of JSON."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from spreadout.use.serve.refused import Refused

LOG = logging.getLogger("spreadout.serve")


async def read_body(request: Request, most: int, seconds: float, remedy: str) -> bytes:
    """All of it, unless it is too long or too slow; what a sender says of its length is not believed.

    most: bytes; remedy: what whoever sent more can do.
    """
    too_long = Refused(413, f"the body is longer than {most:,} bytes; {remedy}")
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > most:
        raise too_long

    async def read() -> bytes:
        found = bytearray()
        async for part in request.stream():
            found += part
            if len(found) > most:
                raise too_long
        return bytes(found)

    try:
        return await asyncio.wait_for(read(), seconds)
    except ClientDisconnect:  # nobody will hear it
        raise Refused(400, "the body ended early") from None
    except TimeoutError:
        raise Refused(408, f"the body did not come within {seconds:g} seconds") from None


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(value), status, headers, "application/json")


def answer_errors(app: Starlette, *, tell: bool = True) -> None:
    """Whatever goes wrong is a line for whoever asked. tell: whether the log may quote an error."""

    async def failed(request: Request, error: Exception) -> Response:
        said = str(error)[:200] if tell else "not quoted"
        LOG.error("%s: %s: %s", request.url.path, type(error).__name__, said)
        return json_answer({"error": "the server failed; its log says why"}, 500)

    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, failed)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    again = {"Retry-After": "1"} if error.status == 503 else None
    return json_answer({"error": str(error)}, error.status, again)


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # FastAPI's own is one too
    return json_answer({"error": str(error.detail)}, error.status_code)
