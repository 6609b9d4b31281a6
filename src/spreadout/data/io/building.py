"""Sorting a stream of examples to their clients on disk, in memory that does not grow with it.

A counting sort in passes over the stream: count each client's examples, then put every chunk where its
clients' next free places are. What stays in memory is a few numbers per client, and one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.core.randomness import Ints
from spreadout.data.columns import Column, Dense, Lists, Sparse, ragged_places
from spreadout.data.dataset import FederatedDataset
from spreadout.data.io import stored

BLOCK = 1 << 20
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Chunk:
    """Some examples in any order: who holds each, and its columns; arrays (m, …) and `Ragged` lists
    stand for dense and list columns."""

    client: Ints  # (m,)
    columns: Mapping[str, Array | Ragged | Column]

    def compact(self) -> dict[str, Column]:
        """Its columns with nothing but its own values in them."""
        return {name: _as_column(values).compact() for name, values in self.columns.items()}


def build(
    folder: Path,
    stream: Callable[[], Iterable[Chunk]],
    *,
    clients: int,
    classes: int,
    row_columns: Mapping[str, str] | None = None,
) -> FederatedDataset:
    """Write a stream as a memory-mapped data set and open it.

    `stream` is called two or three times and must give the same chunks each time. A client's examples
    keep the stream's order.
    """
    if folder.exists():
        raise UserError(f"{folder}: exists already; choose another name or remove it")
    counts, like = _counted(stream(), clients)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    with stored.whole_folder(folder) as temporary:
        np.save(temporary / "offsets.npy", offsets)
        writer = _Writer(temporary, int(offsets[-1]))
        for chunk, at in _placed(stream(), offsets):
            writer.put_fixed(chunk, at)
        if any(not isinstance(column, Dense) for column in like.values()):
            writer.stage_chunk(like)
            for chunk, at in _placed(stream(), offsets):
                writer.put_lists(chunk, at)
        writer.close()
        meta = {"classes": classes, "row_columns": dict(row_columns or {"y": "classes"})}
        stored.write_index(temporary, {**meta, "columns": stored.columns_meta(like)})
    return stored.open_federated(folder)


def _as_column(values: Array | Ragged | Column) -> Column:
    if isinstance(values, Column):
        return values
    return Lists.of(values) if isinstance(values, Ragged) else Dense(torch.from_numpy(values))


def _counted(chunks: Iterable[Chunk], clients: int) -> tuple[Ints, dict[str, Column]]:
    """Examples per client, and the columns of the first chunk, which all others must be like."""
    counts = np.zeros(clients, dtype=np.int64)
    like: dict[str, Column] = {}
    for number, chunk in enumerate(chunks):
        outside = chunk.client[(chunk.client < 0) | (chunk.client >= clients)]
        if len(outside):
            raise UserError(f"chunk {number} names client {outside[0]}, but clients = {clients}")
        columns = chunk.compact()
        like = like or columns
        for name, column in columns.items():
            if len(column) != len(chunk.client):
                raise UserError(
                    f"chunk {number}: column {name} has {len(column)} examples, "
                    f"there are {len(chunk.client)} clients"
                )
        if _shape(columns) != _shape(like):
            raise UserError(
                f"chunk {number}: has columns {_shape(columns)}, the first chunk {_shape(like)}: "
                "they must agree"
            )
        counts += np.bincount(chunk.client, minlength=clients)
    if not like:
        raise UserError("the stream has no chunks: give at least one")
    if odd := [name for name in like if not name.isidentifier()]:
        raise UserError(f"column {odd[0]!r}: name it with letters, digits and underscores")
    return counts, like


def _shape(columns: Mapping[str, Column]) -> dict[str, Any]:
    """What must be the same in every chunk: kinds, options, and the tensors' types."""
    return {
        name: (
            column.kind,
            tuple(sorted(column.options().items())),
            tuple((part, str(t.dtype), tuple(t.shape[1:])) for part, t in column.tensors().items()),
        )
        for name, column in sorted(columns.items())
    }


def _placed(chunks: Iterable[Chunk], offsets: Ints) -> Iterable[tuple[dict[str, Column], Ints]]:
    """Each chunk's columns, and where its examples go: the next free places of their clients."""
    free = offsets[:-1].copy()
    for chunk in chunks:
        order = np.argsort(chunk.client, kind="stable")
        clients, start, count = np.unique(chunk.client[order], return_index=True, return_counts=True)
        rank = np.arange(len(order)) - np.repeat(start, count)
        at = np.empty(len(order), dtype=np.int64)
        at[order] = free[chunk.client[order]] + rank
        free[clients] += count
        yield chunk.compact(), at


class _Writer:
    """The files of a data set while they are filled."""

    def __init__(self, folder: Path, examples: int) -> None:
        self._folder, self._examples = folder, examples
        self._files: dict[str, Array] = {}
        self._lengths: dict[str, Array] = {}

    def put_fixed(self, columns: Mapping[str, Column], at: Ints) -> None:
        """Dense values, and for lists how long each is."""
        for name, column in columns.items():
            if isinstance(column, Dense):
                values = column.values.numpy()
                file = self._file(f"{name}.values", self._examples, values.dtype, values.shape[1:])
                file[at] = values
            else:
                self._length(name)[at] = _lengths(column)

    def stage_chunk(self, like: Mapping[str, Column]) -> None:
        """Where each list begins, block by block, now that all lengths are known."""
        for name, column in like.items():
            if isinstance(column, Dense):
                continue
            lengths, end = self._length(name), 0
            if isinstance(column, Sparse):
                bounds = self._file(f"{name}.offsets", self._examples + 1, np.int64)
            else:
                bounds = self._file(f"{name}.first", self._examples, np.int64)
                self._files[f"{name}.length"] = lengths
            for start in range(0, self._examples, BLOCK):
                block = lengths[start : start + BLOCK]
                bounds[start : start + len(block)] = end + np.cumsum(block) - block
                end += int(block.sum())
            if isinstance(column, Sparse):
                bounds[self._examples] = end
            for part, tensor in _entries(column).items():
                self._file(f"{name}.{part}", end, tensor.dtype)

    def put_lists(self, columns: Mapping[str, Column], at: Ints) -> None:
        for name, column in columns.items():
            if isinstance(column, Dense):
                continue
            bounds = self._files[f"{name}.{'offsets' if isinstance(column, Sparse) else 'first'}"]
            places = ragged_places(torch.from_numpy(bounds[at]), torch.from_numpy(_lengths(column)))
            for part, values in _entries(column).items():
                self._files[f"{name}.{part}"][places.numpy()] = values

    def close(self) -> None:
        for array in [*self._files.values(), *self._lengths.values()]:
            array.flush()  # type: ignore[attr-defined]
        for name in self._lengths:
            if f"{name}.length" not in self._files:  # of a sparse column: its offsets say it all
                (self._folder / f"column.{name}.length.npy").unlink()

    def _length(self, name: str) -> Array:
        if name not in self._lengths:
            path = self._folder / f"column.{name}.length.npy"
            self._lengths[name] = np.lib.format.open_memmap(
                path, mode="w+", dtype=np.dtype(np.int64), shape=(self._examples,)
            )
        return self._lengths[name]

    def _file(self, key: str, rows: int, dtype: npt.DTypeLike, shape: tuple[int, ...] = ()) -> Array:
        if key not in self._files:
            self._files[key] = np.lib.format.open_memmap(
                self._folder / f"column.{key}.npy",
                mode="w+",
                dtype=np.dtype(dtype),
                shape=(rows, *shape),
            )
        return self._files[key]


def _lengths(column: Column) -> Ints:
    found = column.offsets.diff() if isinstance(column, Sparse) else _lists(column).length
    return np.asarray(found.numpy(), dtype=np.int64)


def _entries(column: Column) -> dict[str, Array]:
    """The entries of a compact column's lists, one list after another."""
    if isinstance(column, Sparse):
        return {"ids": column.ids.numpy(), "weights": column.weights.numpy()}
    lists = _lists(column)
    places = ragged_places(lists.first, lists.length)  # windows overlap in a timeline, not here
    return {"values": lists.values[places].numpy()}


def _lists(column: Column) -> Lists:
    assert isinstance(column, Lists)
    return column
