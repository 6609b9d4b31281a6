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
from torch import Tensor

from spreadout.data import stored
from spreadout.data.columns import Column, Dense, Lists, ragged_places
from spreadout.data.federated import FederatedDataset
from spreadout.errors import UserError
from spreadout.ragged import Ragged
from spreadout.randomness import Ints


@dataclass(frozen=True)
class Chunk:
    """Some examples in any order: who holds each, and its columns, arrays (m, …) or m id lists."""

    client: Ints  # (m,)
    columns: Mapping[str, npt.NDArray[Any] | Ragged]


def build(
    folder: Path,
    stream: Callable[[], Iterable[Chunk]],
    *,
    clients: int,
    classes: int,
    refers: Mapping[str, str] | None = None,
) -> FederatedDataset:
    """Write a stream as a memory-mapped data set and open it.

    `stream` is called two or three times and must give the same chunks each time. A client's examples
    keep the stream's order.
    """
    if folder.exists():
        raise UserError(f"{folder}: exists already; choose another name or remove it")
    refers = {"y": "classes"} if refers is None else refers
    counts = np.zeros(clients, dtype=np.int64)
    for chunk in stream():
        _check(chunk, clients)
        counts += np.bincount(chunk.client, minlength=clients)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    with stored.whole_folder(folder) as beside:
        np.save(beside / "offsets.npy", offsets)
        columns = _place(beside, stream, offsets)
        stored.write_index(beside, stored.federated_meta(columns, classes, refers))
        del columns  # its files are about to move
    return stored.open_federated(folder)


def _check(chunk: Chunk, clients: int) -> None:
    if len(chunk.client) and not (chunk.client.min() >= 0 and chunk.client.max() < clients):
        raise UserError(f"a chunk names client {chunk.client.max()}, but clients = {clients}")
    for name, values in chunk.columns.items():
        if len(values) != len(chunk.client):
            raise UserError(f"column {name} has {len(values)} examples, its chunk {len(chunk.client)}")


def _place(folder: Path, stream: Callable[[], Iterable[Chunk]], offsets: Ints) -> dict[str, Column]:
    """Every value at its client's next free place."""
    files: dict[str, npt.NDArray[Any]] = {}
    lists: set[str] = set()
    free = offsets[:-1].copy()
    for chunk in stream():
        at = _take_places(free, chunk.client)
        for name, values in chunk.columns.items():
            if isinstance(values, Ragged):
                lists.add(name)
                lengths = _file(files, folder, name, "length", int(offsets[-1]), np.int64)
                lengths[at] = values.lengths.numpy()
            else:
                array = _file(
                    files, folder, name, "values", int(offsets[-1]), values.dtype, values.shape[1:]
                )
                array[at] = values
    if lists:
        _place_lists(folder, files, stream, offsets, lists)
    for array in files.values():
        array.flush()  # type: ignore[attr-defined]
    names = sorted({key.split(".")[1] for key in files})
    return {name: _column(folder, name, name in lists) for name in names}


def _place_lists(
    folder: Path,
    files: dict[str, npt.NDArray[Any]],
    stream: Callable[[], Iterable[Chunk]],
    offsets: Ints,
    names: set[str],
) -> None:
    """Lists go where the lengths of those before them say: a third pass over the stream."""
    total = int(offsets[-1])
    for name in names:
        lengths = files[f"column.{name}.length"]
        first = _file(files, folder, name, "first", total, np.int64)
        end = 0
        for start in range(0, total, 1 << 20):
            block = np.cumsum(lengths[start : start + (1 << 20)]) + end
            first[start : start + (1 << 20)] = block - lengths[start : start + (1 << 20)]
            end = int(block[-1])
        _file(files, folder, name, "values", end, np.int64)
    free = offsets[:-1].copy()
    for chunk in stream():
        at = _take_places(free, chunk.client)
        for name in names:
            ragged = chunk.columns[name]
            assert isinstance(ragged, Ragged)
            starts = torch.from_numpy(files[f"column.{name}.first"][at])
            places = ragged_places(starts, ragged.lengths)
            files[f"column.{name}.values"][places.numpy()] = ragged.values.numpy()


def _take_places(free: Ints, client: Ints) -> Ints:
    """The next free place of each example's client; `free` moves on."""
    order = np.argsort(client, kind="stable")
    held, start, count = np.unique(client[order], return_index=True, return_counts=True)
    rank = np.arange(len(client)) - np.repeat(start, count)
    at = np.empty(len(client), dtype=np.int64)
    at[order] = free[client[order]] + rank
    free[held] += count
    return at


def _file(
    files: dict[str, npt.NDArray[Any]],
    folder: Path,
    name: str,
    part: str,
    rows: int,
    dtype: npt.DTypeLike,
    shape: tuple[int, ...] = (),
) -> npt.NDArray[Any]:
    key = f"column.{name}.{part}"
    if key not in files:
        files[key] = np.lib.format.open_memmap(
            folder / f"{key}.npy", mode="w+", dtype=np.dtype(dtype), shape=(rows, *shape)
        )
    return files[key]


def _column(folder: Path, name: str, is_lists: bool) -> Column:
    def part(what: str) -> Tensor:
        return stored.open_array(folder / f"column.{name}.{what}.npy")

    if is_lists:
        return Lists(part("values"), part("first"), part("length"))
    return Dense(part("values"))
