"""Who may answer for a client, and which rows a client may be sent: decided here, on the server.

A client belongs to one node, known by its key: to the one the operator's roster names, or else to the
first that claimed it. Where a method's clients request their own rows only, those are the ones the
roster names, or else those of the client's first request; a client that requests anything else gets
nothing. Where it gets others beside its own and sends its own back, its first update says which those
are. Where clients request the rows of a round's features, any client may have any of these: they change
from round to round.
"""

from __future__ import annotations

import hashlib
import secrets
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from pydantic import model_validator

from spreadout.core.chained_log import ChainedLog
from spreadout.core.errors import UserError
from spreadout.core.types import Tensors
from spreadout.core.written import Count, Written
from spreadout.flower.messages import client_number
from spreadout.methods.base import RowAccess
from spreadout.methods.class_counts import SetupMessage, is_row_list

NOT_ALLOWED = "rows not allowed"
ANOTHERS_CLIENT = "another node's client"
TOO_LATE = "not a client of this run"
LOG = "access.jsonl"


class Line(Written):
    """One of the log: that the run is closed, its name, a client's rows, or a client's node."""

    closed: bool = False
    run: str = ""
    client: Count | None = None
    rows: dict[str, list[Count]] | None = None
    node: str | None = None
    examples: Count | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Line:
        granted = self.rows is not None or (self.node is not None and self.examples is not None)
        if not (self.closed or self.run or (self.client is not None and granted)):
            raise ValueError("it names no run, and no client with its rows or its node")
        return self


def access_log(path: Path) -> ChainedLog:
    """What has been granted in a run, on disk."""
    return ChainedLog(path, Line)


@dataclass
class AccessControl:
    """What has been granted in a run. Written down as it happens, so that a resumed run keeps to it."""

    row_access: RowAccess
    tables: Mapping[str, int]  # rows there are of each
    most: int | None = None  # rows of a table a client may request in a round
    takeover: bool = False
    roster: Mapping[int, Entry] | None = None
    open_tables: frozenset[str] = frozenset()  # tables whose rows any client may have
    log: ChainedLog | None = None
    holders: dict[int, str] = field(default_factory=dict)  # the node of each client
    sizes: dict[int, int] = field(default_factory=dict)  # examples it reports
    own: dict[int, dict[str, list[int]]] = field(default_factory=dict)  # rows it may request
    closed: bool = False  # the run has begun: its clients may come back, others stay out
    run: str = ""  # what nodes know the run by, however often the server is started

    def close(self) -> None:
        """From now on the clients of the run are those that have been claimed."""
        if not self.closed:
            self.closed = True
            self._write({"closed": True})

    def name_run(self) -> None:
        """Give the run a name of its own, unless it has one."""
        if not self.run:
            self.run = secrets.token_hex(16)
            self._write({"run": self.run})

    def claim(self, client: int, size: int, node: str, online: Collection[str]) -> str | None:
        """Let a node answer for a client, or say why not."""
        if self.closed and client not in self.sizes:
            return TOO_LATE
        if self.roster is not None:
            entry = self.roster.get(client)
            if entry is None or (entry.node is not None and entry.node != node):
                return ANOTHERS_CLIENT
        before = self.holders.get(client)
        if before not in (None, node) and (before in online or not self.takeover):
            return ANOTHERS_CLIENT
        if before != node:
            size = self.sizes.setdefault(client, size)  # a run's weights do not change under it
            self.holders[client] = node
            self._write({"client": client, "node": node, "examples": size})
        return None

    def denial(self, client: int, request: Tensors) -> str | None:
        """Why a client may not have the rows it requests, or None. Its first request binds its rows."""
        if not request.keys() <= self.tables.keys():
            return NOT_ALLOWED
        for table, rows in request.items():
            too_many = self.most is not None and len(rows) > self.most
            if too_many or not is_row_list(rows.numpy(), self.tables[table]):
                return NOT_ALLOWED
        if self.row_access != "own":
            return None
        return self.not_its_own(client, request)

    def not_its_own(self, client: int, named: Tensors) -> str | None:
        """Why these cannot be a client's own rows, or None. The first that it names bind it."""
        if client not in self.own:
            self._bind(client, named)
        for table, rows in named.items():
            own = self.own[client].get(table, [])
            if table not in self.open_tables and not set(rows.tolist()) <= set(own):
                return NOT_ALLOWED
        return None

    def may_name(self, client: int, message: SetupMessage) -> bool:
        """Whether a setup message names only classes that the roster allows the client."""
        entry = self.roster.get(client) if self.roster is not None else None
        if entry is None or entry.classes is None:
            return True
        named = [message[name] for name in ("rows", "classes") if name in message]
        return all(np.isin(rows, entry.classes).all() for rows in named)

    def _bind(self, client: int, named: Tensors) -> None:
        own = {name: rows.tolist() for name, rows in named.items() if name not in self.open_tables}
        entry = self.roster.get(client) if self.roster is not None else None
        if entry is not None and entry.classes is not None and "classes" in self.tables:
            own["classes"] = list(entry.classes)
        self.own[client] = own
        self._write({"client": client, "rows": own})

    def _write(self, record: Mapping[str, Any]) -> None:
        if self.log is not None:
            self.log.append(record)

    def recall(self) -> None:
        """Take up what was granted before the server was stopped."""
        for record in [] if self.log is None else self.log.read():
            if record.get("closed"):
                self.closed = True
                continue
            if record.get("run"):
                self.run = record["run"]
                continue
            client = int(record["client"])
            if "rows" in record:
                self.own[client] = record["rows"]
            else:
                self.holders[client], self.sizes[client] = record["node"], record["examples"]


@dataclass(frozen=True)
class Entry:
    """What an operator's roster says of one client."""

    node: str | None  # the fingerprint of its node's key; None: any node's
    classes: tuple[int, ...] | None  # None: those of its first request, or update


def read_roster(path: Path) -> dict[int, Entry]:
    """`[clients.NUMBER]` with `key`, a public key file seen from the roster, and `classes`."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))["clients"]
        return {_number(path, name): _entry(path, name, about) for name, about in values.items()}
    except FileNotFoundError:
        raise UserError(f"deploy.roster: {path}: no such file") from None
    except (tomllib.TOMLDecodeError, KeyError, ValueError, AttributeError, TypeError) as error:
        raise UserError(f"deploy.roster: {path}: is no roster ({error!r})") from None


def _number(path: Path, name: str) -> int:
    number = client_number(name)
    if number is None:
        raise UserError(f"deploy.roster: {path}: clients.{name}: is no client's number, as clients.7 is")
    return number


def _entry(path: Path, number: str, about: Mapping[str, Any]) -> Entry:
    unknown = about.keys() - {"key", "classes"}
    if unknown:
        raise UserError(
            f"deploy.roster: {path}: clients.{number}.{min(unknown)}: unknown; known: key, classes"
        )
    key, classes = about.get("key"), about.get("classes")
    if not isinstance(key, str | None):
        raise UserError(f"deploy.roster: {path}: clients.{number}.key: must be the name of a key file")
    if classes is not None and not _are_rows(classes):
        raise UserError(
            f"deploy.roster: {path}: clients.{number}.classes: must be a list of classes' numbers"
        )
    return Entry(
        None if key is None else fingerprint_of(path.parent / key),
        None if classes is None else tuple(classes),
    )


def _are_rows(value: object) -> bool:
    """Whole numbers from 0; true and 1.0 are none."""
    return isinstance(value, list) and all(type(row) is int and 0 <= row < 2**63 for row in value)


def fingerprint_of(path: Path) -> str:
    """What a public key file, as `ssh-keygen` writes it, is known by."""
    try:
        return fingerprint(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{path}: is no public key; `ssh-keygen -t ecdsa -b 384` makes one") from None


def fingerprint(key: bytes) -> str:
    """The same key has the same, whether it comes from a file or from the SuperLink.

    ValueError: it is no key, or of a kind that cannot be read.
    """
    load = (
        serialization.load_pem_public_key
        if key.startswith(b"-----")
        else serialization.load_ssh_public_key
    )
    try:
        plain = load(key).public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    except (UnsupportedAlgorithm, NotImplementedError) as error:
        raise ValueError(str(error)) from None
    return hashlib.sha256(plain).hexdigest()[:32]
