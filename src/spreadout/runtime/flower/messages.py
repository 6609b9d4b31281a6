"""What crosses the network: our tensors as Flower records, bytes for bytes, and back with suspicion.

Arrays travel as raw little-endian bytes beside their type and shape, without a file header each. Reading
them never runs code, never allocates more than came, and fails with `Malformed` or nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor

from spreadout.federated.rows import Rows, Tensors, Update
from spreadout.methods.base import Told
from spreadout.ragged import Ragged

HELLO, REQUESTS, TRAIN = "query.hello", "query.requests", "train"  # what a server asks of a node
STYPE = "spreadout.raw"
TYPES = ("float32", "float64", "int64", "int32", "uint8", "bool", "|V8", "|V32")
Requests = dict[int, Tensors]  # by client, per table, the rows it asks for


class Malformed(ValueError):
    """Something that came is not what it should be."""


def packed(arrays: Mapping[str, Tensor | NDArray[Any]]) -> ArrayRecord:
    """Arrays as a record."""
    return ArrayRecord({name: _array(value) for name, value in arrays.items()})


def _array(value: Tensor | NDArray[Any]) -> Array:
    own = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    return Array(_type(own.dtype), own.shape, STYPE, np.ascontiguousarray(own).tobytes())


def _type(dtype: np.dtype[Any]) -> str:
    return dtype.str if dtype.kind == "V" else dtype.name


def arrays_in(content: RecordDict, name: str) -> dict[str, NDArray[Any]]:
    """The arrays of a record; none if there is no such record."""
    record = content.get(name, ArrayRecord())
    if not isinstance(record, ArrayRecord):
        raise Malformed(f"{name} holds no arrays")
    return {key: _read(array) for key, array in record.items()}


def _read(array: Array) -> NDArray[Any]:
    if array.stype != STYPE or array.dtype not in TYPES:
        raise Malformed(f"an array of type {array.dtype} ({array.stype})")
    shape = tuple(int(side) for side in array.shape)
    dtype = np.dtype(array.dtype)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(array.data):
        raise Malformed(f"{len(array.data)} bytes for an array of shape {shape}")
    if not array.data:
        return np.empty(shape, dtype)
    return np.frombuffer(array.data, dtype).reshape(shape).copy()


def tensors_in(content: RecordDict, name: str) -> Tensors:
    """The same as tensors."""
    try:
        return {key: torch.from_numpy(array) for key, array in arrays_in(content, name).items()}
    except TypeError as error:  # a type torch does not have
        raise Malformed(str(error)) from None


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


def rows_in(content: RecordDict, name: str) -> dict[str, Rows]:
    return _rows(tensors_in(content, name))


def _rows(arrays: Mapping[str, Tensor]) -> dict[str, Rows]:
    tables = [key[4:] for key in arrays if key.startswith("ids.")]
    if any(f"values.{table}" not in arrays for table in tables):
        raise Malformed("row ids without their values")
    return {table: Rows(arrays[f"ids.{table}"], arrays[f"values.{table}"]) for table in tables}


def put_requests(numbers: Sequence[int], requests: Mapping[str, Ragged]) -> ArrayRecord:
    """What some clients ask for, one list of rows each per table."""
    lists = {
        **{f"offsets.{table}": asked.offsets for table, asked in requests.items()},
        **{f"rows.{table}": asked.values for table, asked in requests.items()},
    }
    return packed({"clients": torch.tensor(numbers, dtype=torch.int64), **lists})


def requests_in(content: RecordDict) -> Requests:
    """By client, what it asks for; whether it may is not judged here."""
    arrays = tensors_in(content, "requests")
    if not arrays:
        return {}
    clients = _whole(arrays, "clients")
    found: Requests = {client: {} for client in clients.tolist()}
    for table in (key[8:] for key in arrays if key.startswith("offsets.")):
        offsets, rows = _whole(arrays, f"offsets.{table}"), _whole(arrays, f"rows.{table}")
        lengths = offsets.diff()
        fit = len(lengths) == len(clients) and int(offsets[0]) == 0 and int(offsets[-1]) == len(rows)
        if not fit or bool((lengths < 0).any()):
            raise Malformed("requests that do not fit their clients")
        for client, own in zip(clients.tolist(), torch.split(rows, lengths.tolist()), strict=True):
            found[client][table] = own
    return found


def _whole(arrays: Mapping[str, Tensor], name: str) -> Tensor:
    """A flat array of whole numbers."""
    found = arrays.get(name)
    if found is None or found.dtype != torch.int64 or found.dim() != 1:
        raise Malformed(f"{name} is no list of whole numbers")
    return found


def put_update(content: RecordDict, update: Update) -> None:
    """Add one client's update to a reply."""
    content[f"about.{update.client}"] = ConfigRecord(
        {
            "client": update.client,
            "round": update.round,
            "examples": update.examples,
            "loss": update.loss,
        }
    )
    rows = put_rows(update.tables)
    dense = packed({f"dense.{name}": value for name, value in update.dense.items()})
    counts = packed({f"positives.{name}": value for name, value in update.positives.items()})
    content[f"update.{update.client}"] = ArrayRecord({**dense, **rows, **counts})


def update_in(content: RecordDict, client: int) -> Update | None:
    """The update a reply has for a client, if any; only `checks.refusal` says what it is worth."""
    if f"about.{client}" not in content:
        return None
    about = numbers_in(content, f"about.{client}")
    arrays = tensors_in(content, f"update.{client}")
    try:
        return Update(
            about["client"],
            about["round"],
            about["examples"],
            {key[6:]: value for key, value in arrays.items() if key.startswith("dense.")},
            _rows(arrays),
            float(about["loss"]),
            {key[10:]: value for key, value in arrays.items() if key.startswith("positives.")},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"an update without {error}") from None


def put_told(content: RecordDict, client: int, told: Told) -> None:
    """Add what one client says before the first round."""
    content[f"told.{client}"] = packed(told)


def told_in(content: RecordDict, client: int) -> Told:
    return arrays_in(content, f"told.{client}")
