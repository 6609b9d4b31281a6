"""Columns in a folder: one `.npy` file per array, memory-mapped when opened, and an index in JSON.

The files are plain NumPy; anyone can read them. A folder appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.files import write_json
from spreadout.data.columns import KINDS, Column
from spreadout.data.dataset import FederatedDataset

INDEX = "index.json"


class ArrayFile:
    """A `.npy` file that grows along its first axis, for arrays larger than memory."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...] = ()) -> None:
        self._file: IO[bytes] = open(path, "wb")  # noqa: SIM115 - closed by close()
        self._dtype, self._shape, self.rows = np.dtype(dtype), shape, 0
        self._header()
        self._data_at = self._file.tell()

    def append(self, rows: np.ndarray) -> None:
        if rows.shape[1:] != self._shape:
            raise ValueError(f"rows of shape {rows.shape[1:]} in an array of {self._shape}")
        self._file.write(np.ascontiguousarray(rows, dtype=self._dtype).data)
        self.rows += len(rows)

    def close(self) -> None:
        self._file.seek(0)
        self._header()  # NumPy leaves room in it for a first axis that grows
        if self._file.tell() != self._data_at:
            raise RuntimeError("the header of a grown array no longer fits its place")
        self._file.close()

    def _header(self) -> None:
        shape = (self.rows, *self._shape)
        described = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, described)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, put in place of `folder` at the end; removed if something fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_arrays(folder: Path, arrays: Mapping[str, Tensor]) -> None:
    for name, tensor in arrays.items():
        np.save(folder / f"{name}.npy", tensor.cpu().numpy())


def write_index(folder: Path, meta: Mapping[str, Any]) -> None:
    """The last file of a folder: what it holds, and how long every array is."""
    sizes = {file.name: file.stat().st_size for file in sorted(folder.glob("*.npy"))}
    write_json(folder / INDEX, {**meta, "files": sizes})


def read_index(folder: Path) -> dict[str, Any] | None:
    """What a folder holds, or None if it is not whole."""
    try:
        meta: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        sizes = meta["files"].items()
        whole = all((folder / name).stat().st_size == size for name, size in sizes) and len(sizes) > 0
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return meta if whole else None


def open_array(path: Path) -> Tensor:
    """A tensor over a file: read where it is touched, and never written back."""
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except ValueError:  # an empty array has nothing to map
        array = np.load(path, allow_pickle=False)
    return torch.from_numpy(np.asarray(array))


def column_arrays(prefix: str, columns: Mapping[str, Column]) -> dict[str, Tensor]:
    """All tensors of some columns under flat names."""
    return {
        f"{prefix}.{name}.{part}": tensor
        for name, column in columns.items()
        for part, tensor in column.tensors().items()
    }


def columns_meta(columns: Mapping[str, Column]) -> dict[str, Any]:
    return {
        name: {"kind": column.kind, "tensors": sorted(column.tensors()), **column.options()}
        for name, column in columns.items()
    }


def open_columns(folder: Path, prefix: str, meta: Mapping[str, Any]) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for name, described in meta.items():
        options = {key: value for key, value in described.items() if key not in ("kind", "tensors")}
        for part in described["tensors"]:
            options[part] = open_array(folder / f"{prefix}.{name}.{part}.npy")
        columns[name] = KINDS[described["kind"]](**options)
    return columns


def save(data: FederatedDataset, folder: Path) -> None:
    """Write a federation's data; a folder that exists is not touched."""
    if folder.exists():
        raise UserError(f"{folder}: exists already; choose another name or remove it")
    with whole_folder(folder) as temporary:
        own = {name: column.compact() for name, column in data.columns.items()}
        write_arrays(temporary, {"offsets": data.offsets, **column_arrays("column", own)})
        meta = {"classes": data.classes, "row_columns": dict(data.row_columns)}
        write_index(temporary, {**meta, "columns": columns_meta(own)})


def open_federated(folder: Path) -> FederatedDataset:
    """Memory-mapped data of a federation: only what a cohort touches is read."""
    meta = read_index(folder)
    if meta is None or "columns" not in meta:
        raise UserError(f"{folder}: holds no whole federated data set; write it again")
    columns = open_columns(folder, "column", meta["columns"])
    return FederatedDataset(
        columns, open_array(folder / "offsets.npy"), meta["classes"], meta["row_columns"]
    )
