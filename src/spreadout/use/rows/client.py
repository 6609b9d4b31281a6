"""Rows from two servers that do not learn which: both are asked, and their answers combined.

As many queries are sent as were agreed, whatever is wanted: those beyond it fetch a row nobody needs. A
try that fails is made again with queries that owe nothing to the first. Whether one fails follows from
versions and connections alone, never from the rows: a server that could make a client complain about
*some* rows would learn which it asked for. For the same reason a wrong row is not looked for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from spreadout.core.errors import UserError
from spreadout.privacy.retrieval import Bytes, Ints, Layout, queries, retrieved
from spreadout.use.rows.link import Address, Again
from spreadout.use.rows.table import VERSION, Form, Table, bytes_of, signature

ABOUT = 4096  # bytes of what a server says of its table
TRIES, PAUSE = 5, 0.3  # seconds, longer from try to try
T = TypeVar("T")


@dataclass(frozen=True)
class About:
    """What a server says it has."""

    server: str
    version: str
    form: Form

    @classmethod
    def read(cls, address: Address, body: bytes) -> About:
        try:
            said = json.loads(body)
            server, version = said["server"], said["version"]
            form = Form.read(said)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UserError(f"{address}: is no row server") from None
        if not isinstance(server, str) or not isinstance(version, str) or len(version) != VERSION:
            raise UserError(f"{address}: is no row server")
        return cls(server, version, form)


class TwoServers:
    """The two servers of a federation, which must not be run by the same people."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        seconds: float = 60.0,
        tries: int = TRIES,
        pause: float = PAUSE,
    ) -> None:
        """seconds: for one answer."""
        if len(addresses) != 2:
            raise UserError(f"{len(addresses)} row servers: two are needed, one says which rows")
        self._both = tuple(Address.parse(text) for text in addresses)
        if self._both[0] == self._both[1]:
            raise UserError(f"{self._both[0]}: is named twice; one server alone would learn the rows")
        self._seconds, self._tries, self._pause = seconds, tries, pause

    def fetch(
        self, rows: Ints, count: int, *, version: str | None = None, form: Form | None = None
    ) -> Table:
        """The rows with these numbers, (m, width), out of `count` that are asked for.

        version, form: of the table that they must be of; None: whichever both have.
        """
        if len(rows) > count:
            raise UserError(f"{len(rows)} rows are wanted, and {count} are asked for at a time")
        return self._patiently(lambda: self._fetched(rows, count, version, form))

    def publish(self, table: Table, key: bytes) -> str:
        """Hand the table to both; its version, which both have then."""
        form, data = Form.of(table), bytes_of(table)
        version = form.version(data)
        path = f"/table/{version}?rows={form.rows}&width={form.width}&dtype={form.dtype}"
        shown = {"Authorization": signature(key, form, version)}

        def hand_over(i: int) -> bytes:
            return self._ask(i, "PUT", path, data, most=ABOUT, headers=shown)

        self._patiently(lambda: self._of_both(hand_over))
        return version

    def _fetched(self, rows: Ints, count: int, version: str | None, form: Form | None) -> Table:
        one, other = self._of_both(self._about)
        if one.server == other.server:
            raise UserError(
                f"{self._both[0]} and {self._both[1]}: lead to one server, which would learn the rows"
            )
        wanted = version or one.version
        if not one.version == other.version == wanted or one.form != other.form:
            raise Again(
                f"{self._both[0]} has table {one.version[:8]}, {self._both[1]} {other.version[:8]}, "
                f"and {wanted[:8]} is wanted"
            )
        if form not in (None, one.form):
            raise UserError(f"{self._both[0]}: has a table of {one.form}, not {form}")
        layout = one.form.layout
        padded = np.zeros(count, np.int64)  # which row fills up does not show in any query
        padded[: len(rows)] = rows
        asked = _asked(layout, padded)
        answers = self._of_both(lambda i: self._answer(i, wanted, layout, asked[i]))
        found = np.ascontiguousarray(retrieved(layout, padded, *answers)[: len(rows)])
        return found.view(one.form.dtype).reshape(len(rows), one.form.width)

    def _about(self, i: int) -> About:
        return About.read(self._both[i], self._ask(i, "GET", "/table", most=ABOUT))

    def _answer(self, i: int, version: str, layout: Layout, asked: Bytes) -> Bytes:
        length = len(asked) * layout.answer_bytes
        body = self._ask(i, "POST", f"/answers/{version}", asked.tobytes(), most=length)
        if len(body) != length:
            raise UserError(f"{self._both[i]}: answers with {len(body):,} bytes, not {length:,}")
        return np.frombuffer(body, np.uint8).reshape(len(asked), layout.answer_bytes)

    def _ask(self, i: int, method: str, path: str, *body: Any, **more: Any) -> bytes:
        return self._both[i].ask(method, path, *body, seconds=self._seconds, **more)

    def _of_both(self, question: Callable[[int], T]) -> tuple[T, T]:
        """Both at the same time; an error of either only once both have ended."""
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.submit(question, 0), pool.submit(question, 1)
        return one.result(), other.result()

    def _patiently(self, attempt: Callable[[], T]) -> T:
        for tried in range(self._tries):
            try:
                return attempt()
            except Again as error:
                if tried + 1 == self._tries:
                    raise UserError(f"{error}, tried {self._tries} times") from None
            time.sleep(self._pause * 2**tried)
        raise AssertionError("at least one try")


def _asked(layout: Layout, rows: Ints) -> tuple[Bytes, Bytes]:
    try:
        from spreadout.privacy.keystream import KeyStream
    except ImportError:
        raise UserError("cryptography is not installed: pip install 'spreadout[flower]'") from None
    return queries(layout, rows, KeyStream())
