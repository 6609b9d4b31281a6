"""What crosses the network: our tensors as Flower records, and back with suspicion.

Flower sends every array of a record as an object of its own, with kilobytes of protocol around each. So
all that a record holds travels as one array: a safetensors buffer, whose reading never runs code, never
allocates more than came, and fails with `Malformed` or not at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.rows import Rows, Update
from spreadout.core.types import Tensors
from spreadout.federated.checks import MALFORMED
from spreadout.methods.class_counts import SetupMessage

HELLO, REQUESTS, TRAIN = "query.hello", "query.requests", "train"  # what a server sends to a node
KEYS, SHARES, CONFIRM, REVEAL = (f"query.{s}" for s in ("keys", "shares", "confirm", "reveal"))
"""Steps of a secure sum; its numbers come with `TRAIN`, after the shares."""
STYPE, ONE = "safetensors", "all"
ROWS = ("ids.", "values.")
MOST_DIGITS = 18  # of a client's number
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
Requests = dict[int, Tensors]  # by client, per table, the rows it requests


class Malformed(ValueError):
    """Something that came is not what it should be."""

    reason = MALFORMED


class TooManyClients(Malformed):
    """A node names more clients than it may answer for."""

    reason = "too many clients"


def _suspicious(read: Callable[P, R]) -> Callable[P, R]:
    """Whatever goes wrong in reading what came is the sender's doing."""

    @wraps(read)
    def careful(*given: P.args, **named: P.kwargs) -> R:
        try:
            return read(*given, **named)
        except Malformed:
            raise
        except (ValueError, LookupError, TypeError, RuntimeError, ArithmeticError) as error:
            raise Malformed(f"{type(error).__name__}: {str(error)[:200]}") from None

    return careful


def packed(arrays: Mapping[str, Tensor | NDArray[Any]]) -> ArrayRecord:
    """Arrays as a record, in their order."""
    plain = dict(_plain(i, name, value) for i, (name, value) in enumerate(arrays.items()))
    data = save(plain)
    return ArrayRecord({ONE: Array("uint8", (len(data),), STYPE, data)})


def _plain(i: int, name: str, value: Tensor | NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """An array under a name that says its place, as safetensors sorts; digests as rows of bytes."""
    own = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    if own.dtype.kind == "V":
        own = own.view(np.uint8).reshape(*own.shape, own.dtype.itemsize)
        name = f"{name}|V"
    return f"{i} {name}", np.ascontiguousarray(own).reshape(own.shape)


@_suspicious
def arrays_in(content: RecordDict, name: str) -> dict[str, NDArray[Any]]:
    """The arrays of a record; none if there is no such record."""
    if name not in content:
        return {}
    record = content[name]
    if not isinstance(record, ArrayRecord) or record.keys() != {ONE} or record[ONE].stype != STYPE:
        raise Malformed(f"{name} holds no arrays of ours")
    try:
        found = load(record[ONE].data)
        places = {key: key.partition(" ") for key in found}
        ordered = sorted(found, key=lambda key: int(places[key][0]))
        named = dict(_named(places[key][2], found[key]) for key in ordered)
        if len(named) < len(found):
            raise Malformed(f"{name}: two arrays of one name")
        return named
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise Malformed(f"{name}: {error}") from None


def _named(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    if name.endswith("|V"):
        if array.dtype != np.uint8 or array.ndim != 2:
            raise Malformed(f"{name} are no digests")
        digests = np.frombuffer(array.tobytes(), f"V{array.shape[1]}") if array.size else array
        return name[:-2], digests if array.size else np.empty(len(array), f"V{max(array.shape[1], 1)}")
    return name, array.copy()


@_suspicious
def tensors_in(content: RecordDict, name: str) -> Tensors:
    """The same as tensors."""
    try:
        return {key: torch.from_numpy(array) for key, array in arrays_in(content, name).items()}
    except TypeError as error:  # a type torch does not have
        raise Malformed(str(error)) from None


@_suspicious
def numbers_in(content: RecordDict, name: str) -> dict[str, Any]:
    """The plain values of a record."""
    record = content.get(name, ConfigRecord())
    if not isinstance(record, ConfigRecord):
        raise Malformed(f"{name} holds no numbers")
    return dict(record)


def put_rows(rows: Mapping[str, Rows]) -> ArrayRecord:
    """Rows of several tables."""
    return packed(
        {
            **{f"ids.{table}": some.ids for table, some in rows.items()},
            **{f"values.{table}": some.values for table, some in rows.items()},
        }
    )


@_suspicious
def rows_in(content: RecordDict, name: str) -> dict[str, Rows]:
    arrays = tensors_in(content, name)
    _refuse_unknown(arrays, (), ROWS)
    return _rows(arrays)


def _rows(arrays: Mapping[str, Tensor]) -> dict[str, Rows]:
    ids, values = ({key[len(kind) :] for key in arrays if key.startswith(kind)} for kind in ROWS)
    if ids != values:
        raise Malformed("row ids without their values, or values without their ids")
    tables = [key[4:] for key in arrays if key.startswith("ids.")]
    return {table: Rows(arrays[f"ids.{table}"], arrays[f"values.{table}"]) for table in tables}


def _refuse_unknown(arrays: Iterable[str], known: Collection[str], kinds: tuple[str, ...]) -> None:
    """Arrays that nobody reads: whoever sends them means something else than the server does."""
    for name in arrays:
        if name not in known and not name.startswith(kinds):
            raise Malformed(f"an unknown array {name[:40]!r}")


def put_requests(numbers: Sequence[int], requests: Mapping[str, Ragged]) -> ArrayRecord:
    """The requests of some clients: one list of rows each per table."""
    lists = {
        **{f"offsets.{table}": requested.offsets for table, requested in requests.items()},
        **{f"rows.{table}": requested.values for table, requested in requests.items()},
    }
    return packed({"clients": torch.tensor(numbers, dtype=torch.int64), **lists})


@_suspicious
def requests_in(content: RecordDict) -> Requests:
    """By client, the rows it requests; whether it may have them is not checked here."""
    arrays = tensors_in(content, "requests")
    if not arrays:
        return {}
    _refuse_unknown(arrays, ("clients",), ("offsets.", "rows."))
    clients = whole(arrays, "clients")
    found: Requests = {client: {} for client in clients.tolist()}
    if {key[8:] for key in arrays if key.startswith("offsets.")} != {
        key[5:] for key in arrays if key.startswith("rows.")
    }:
        raise Malformed("rows without their offsets, or offsets without their rows")
    for table in (key[8:] for key in arrays if key.startswith("offsets.")):
        offsets, rows = whole(arrays, f"offsets.{table}"), whole(arrays, f"rows.{table}")
        lengths = offsets.diff()
        whole_lists = len(offsets) == len(clients) + 1
        fit = whole_lists and int(offsets[0]) == 0 and int(offsets[-1]) == len(rows)
        if not fit or bool((lengths < 0).any()):
            raise Malformed("requests that do not fit their clients")
        for client, own in zip(clients.tolist(), torch.split(rows, lengths.tolist()), strict=True):
            found[client][table] = own
    return found


@_suspicious
def whole(arrays: Mapping[str, Tensor], name: str) -> Tensor:
    """A flat array of whole numbers."""
    found = arrays.get(name)
    if found is None or found.dtype != torch.int64 or found.dim() != 1:
        raise Malformed(f"{name} is no list of whole numbers")
    return found


def refuse_wrong_numbers(numbers: Tensor) -> None:
    """Clients are numbered from 0, each once, in numbers that an update can name."""
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < 10**MOST_DIGITS:
        wrong = numbers[(numbers < 0) | (numbers >= 10**MOST_DIGITS)]
        raise Malformed(f"{int(wrong[0])} is no client's number: 0 to 10^{MOST_DIGITS} − 1 are")
    if len(torch.unique(numbers)) != len(numbers):
        raise Malformed("it names a client twice")


def put_updates(content: RecordDict, updates: Iterable[Update]) -> None:
    """Add the updates of a node's clients to its reply."""
    arrays: dict[str, Tensor] = {}
    for update in updates:
        about = torch.tensor([update.client, update.round, update.examples])
        named = {"about": about}
        if not math.isnan(update.loss):
            named["loss"] = torch.tensor(update.loss, dtype=torch.float64)
        for table, rows in update.tables.items():
            named |= {f"ids.{table}": rows.ids, f"values.{table}": rows.values}
        named |= {f"dense.{name}": value for name, value in update.dense.items()}
        named |= {f"positives.{table}": counts for table, counts in update.positives.items()}
        arrays |= {f"{update.client}/{name}": value for name, value in named.items()}
    content["updates"] = packed(arrays)


@_suspicious
def updates_in(content: RecordDict) -> dict[int, Tensors]:
    """By client, the arrays a reply has for it."""
    return _by_client(tensors_in(content, "updates"))


@_suspicious
def update_of(arrays: Tensors, *, private: bool = False) -> Update:
    """An update out of its arrays; `checks.validate_update` decides whether it is accepted.

    private: whether it may lack a loss.
    """
    _refuse_unknown(arrays, ("about", "loss"), (*ROWS, "dense.", "positives."))
    about, loss = arrays.get("about"), arrays.get("loss")
    if about is None or about.dtype != torch.int64 or about.shape != (3,):
        raise Malformed("an update that does not say whose it is")
    if (loss is None and not private) or (loss is not None and loss.numel() != 1):
        raise Malformed("an update without a loss")
    client, round, examples = about.tolist()
    return Update(
        client,
        round,
        examples,
        {key[6:]: value for key, value in arrays.items() if key.startswith("dense.")},
        _rows(arrays),
        float("nan") if loss is None else float(loss),
        {key[10:]: value for key, value in arrays.items() if key.startswith("positives.")},
    )


def put_setup(content: RecordDict, sent: Mapping[int, SetupMessage]) -> None:
    """Add the setup messages of a node's clients."""
    each = {f"{client}/{name}": a for client, arrays in sent.items() for name, a in arrays.items()}
    if each:
        content["setup"] = packed(each)


@_suspicious
def setup_in(content: RecordDict) -> Mapping[int, SetupMessage]:
    """By client, its setup message; whether it is valid is not checked here."""
    return _by_client(arrays_in(content, "setup"))


def _by_client(arrays: Mapping[str, T]) -> dict[int, dict[str, T]]:
    found: dict[int, dict[str, T]] = {}
    for key, value in arrays.items():
        client, _, name = key.partition("/")
        number = client_number(client)
        if number is None:
            raise Malformed(f"{key} is nobody's")
        found.setdefault(number, {})[name] = value
    return found


def client_number(text: str) -> int | None:
    """A client's number, written in the one way there is: 007 is not 7, which may be there too."""
    plain = re.fullmatch(r"0|[1-9][0-9]*", text) and len(text) <= MOST_DIGITS
    return int(text) if plain else None
