"""The HTTP application of one row server: it holds one version of a table and answers queries of it.

Nothing is written down about a query, and no answer depends on who asks. A table is taken from whoever
has the key, and checked before it is read: a stranger cannot make the server read one.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import numpy as np
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spreadout.privacy.retrieval import Bytes, RowServer
from spreadout.use.rows.table import VERSION, Form, Table, bytes_of, signature
from spreadout.use.serve.batching import Batcher
from spreadout.use.serve.http import answer_errors, json_answer, read_body
from spreadout.use.serve.refused import Refused

BYTES = "application/octet-stream"
Query = tuple[RowServer, Bytes]


@dataclass(frozen=True)
class RowLimits:
    """What is more is refused before anything is computed."""

    rows: int = 1024  # queries in a request
    waiting: int = 8192  # queries that wait, of all requests
    table: int = 1 << 30  # bytes of a table
    seconds: float = 30.0  # in which a request's queries must have come
    table_seconds: float = 600.0  # in which a table must have come
    connections: int = 256  # at a time


@dataclass(frozen=True)
class Held:
    """The table that a server answers from."""

    version: str
    form: Form
    server: RowServer

    @classmethod
    def of(cls, table: Table) -> Held:
        form = Form.of(table)
        return cls(form.version(bytes_of(table)), form, RowServer(table, form.layout))


class RowApp:
    """One server's table, and the requests it takes."""

    def __init__(self, held: Held | None, key: bytes | None, limits: RowLimits) -> None:
        """held: what it begins with. key: of whoever may hand over other tables; None: nobody."""
        self.held, self._key, self._limits = held, key, limits
        self.name = secrets.token_hex(8)  # tells one process from another
        self._takes_one = False
        self.batcher: Batcher[Query, Bytes] = Batcher(
            _answered, lambda query: len(query[1]), batch=1, waiting=limits.waiting
        )

    async def health(self, _: Request) -> Response:
        return json_answer({"status": "ok", "waiting": self.batcher.waiting})

    async def about(self, _: Request) -> Response:
        """The version that it has, and its form: nothing else is needed to ask."""
        if self.held is None:
            raise Refused(409, "there is no table yet")
        held, most = self.held, self._limits.rows
        return json_answer(
            {"server": self.name, "version": held.version, "most": most, **asdict(held.form)}
        )

    async def take(self, request: Request) -> Response:
        """Another table in place of this one; until all of it has come the old one answers."""
        version = _version(request)
        try:
            form = Form.read(request.query_params)
        except ValueError as error:
            raise Refused(422, str(error)) from None
        shown = request.headers.get("authorization", "").encode()
        right = b"" if self._key is None else signature(self._key, form, version).encode()
        if not right or not hmac.compare_digest(shown, right):
            raise Refused(403, "a table is taken from whoever has the key alone")
        if form.nbytes > self._limits.table:
            raise Refused(413, f"the table is longer than {self._limits.table:,} bytes")
        if self._takes_one:
            raise Refused(503, "another table is on its way; try again later")
        self._takes_one = True
        try:
            remedy = "send the table that the address names"
            body = await read_body(request, form.nbytes, self._limits.table_seconds, remedy)
            self.held = await asyncio.to_thread(_checked, body, form, version)
        finally:
            self._takes_one = False
        return json_answer({"server": self.name, "version": version})

    async def answers(self, request: Request) -> Response:
        """The exclusive ors of the blocks that each query names, one after another."""
        version, held = _version(request), self.held
        if held is None or held.version != version:
            raise Refused(409, "it has another version of the table; look which, and ask again")
        length = held.form.layout.query_bytes
        most = self._limits.rows * length
        body = await read_body(request, most, self._limits.seconds, "ask for fewer rows at a time")
        if not body or len(body) % length:
            raise Refused(422, f"{len(body):,} bytes are no queries: each has {length:,}")
        asked = np.frombuffer(body, np.uint8).reshape(-1, length)
        found = await self.batcher.ask((held.server, asked))
        return Response(found.tobytes(), media_type=BYTES)


def create_app(
    table: Table | None,
    key: bytes | None,
    limits: RowLimits | None = None,
    *,
    hosts: Sequence[str] = ("*",),
) -> Starlette:
    """The application. hosts: names under which it answers."""
    rows = RowApp(None if table is None else Held.of(table), key, limits or RowLimits())

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        rows.batcher.close()

    app = Starlette(
        routes=[
            Route("/health", rows.health),
            Route("/table", rows.about),
            Route("/table/{version}", rows.take, methods=["PUT"]),
            Route("/answers/{version}", rows.answers, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
        lifespan=lifespan,
    )
    answer_errors(app, tell=False)
    return app


def _version(request: Request) -> str:
    said = str(request.path_params["version"])
    if len(said) != VERSION or not set(said) <= set("0123456789abcdef"):
        raise Refused(422, "no version of a table: those are 64 letters of 0-9 and a-f")
    return said


def _checked(body: bytes, form: Form, version: str) -> Held:
    if len(body) != form.nbytes or form.version(body) != version:
        raise Refused(422, "what came is not the table that the address names; send it again")
    return Held(version, form, RowServer(form.table(body), form.layout))


def _answered(queries: Sequence[Query]) -> list[Bytes]:
    return [server.answers(asked) for server, asked in queries]
