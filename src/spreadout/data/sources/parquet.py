"""Columns of a Parquet file, with the extra `[parquet]`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from spreadout.core.errors import UserError
from spreadout.core.limits import refuse_bomb, unpack_limit
from spreadout.data.sources.cells import LONGEST_CELL, TOO_LONG, as_bytes, refuse_wide

CHILD = Path(__file__).with_name("parquet_child.py")
TOO_LARGE = 3  # as there
BESIDE = 1 << 26  # bytes a process needs beside what it reads


def read_parquet(path: Path, wanted: Sequence[str]) -> list[np.ndarray]:
    """These columns of a Parquet file.

    Its declared sizes are checked first; as they may be false, it is decoded by a process with a limit.
    """
    with _reading(path) as (arrow, parquet):
        with parquet.ParquetFile(path) as file:
            known = file.schema_arrow.names
            for name in wanted:
                if name not in known:
                    raise UserError(
                        f"{path}: no column {name!r}, but {', '.join(known)[:80]!r}: set "
                        "data.source.user, .item and .time"
                    )
                kind = file.schema_arrow.field(name).type
                if arrow.types.is_nested(kind) and not arrow.types.is_dictionary(kind):
                    said = str(kind)[:40]
                    raise UserError(f"{path}: column {name!r} is {said!r}: give numbers or text")
            refuse_bomb(path, _unpacked_size(file.metadata, wanted), path.stat().st_size)
        table = _decoded(path, wanted)
        if not table.num_rows:
            raise UserError(f"{path}: has no rows")
        return [_column(path, name, table.column(name)) for name in wanted]


def names_in(path: Path) -> list[str]:
    """What its columns are called."""
    with _reading(path) as (_, parquet), parquet.ParquetFile(path) as file:
        return list(file.schema_arrow.names)


@contextmanager
def _reading(path: Path) -> Iterator[tuple[Any, Any]]:
    """pyarrow and its Parquet part; what they say of a broken file becomes one line."""
    try:
        import pyarrow as arrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError:
        raise UserError(
            f"{path}: reading Parquet needs an extra: pip install 'spreadout[parquet]'"
        ) from None
    try:
        yield arrow, parquet
    except (UserError, MemoryError):
        raise
    except Exception as error:  # of a broken file, pyarrow may say anything
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error).partition("\n")[0][:120]
        raise UserError(f"{path}: not a readable Parquet file ({reason})") from None


def _decoded(path: Path, wanted: Sequence[str]) -> Any:
    """The columns as an Arrow table, by way of `parquet_child.py`."""
    from pyarrow import ipc

    packed = path.stat().st_size
    room = 2 * unpack_limit(packed) + BESIDE  # what is read, and once more while it is
    task = {"path": str(path), "wanted": list(wanted), "room": room}
    with tempfile.TemporaryFile() as heard, subprocess.Popen(
        [sys.executable, "-P", str(CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=heard
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        with suppress(BrokenPipeError), child.stdin as told:
            told.write(json.dumps(task).encode())
        try:
            return ipc.open_stream(child.stdout).read_all()
        except Exception:
            child.stdout.close()
            if child.wait() == 0:
                raise
        heard.seek(0)
        said = heard.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    if child.returncode == TOO_LARGE:
        refuse_bomb(path, room, packed)
    raise ValueError(said or f"its reader ended with {child.returncode}")


def _unpacked_size(about: Any, wanted: Sequence[str]) -> int:
    """What the wanted columns say they take; a run of equal values takes nothing in the file."""
    total = 8 * len(wanted) * about.num_rows
    for group in range(about.num_row_groups):
        for place in range(about.num_columns):
            column = about.row_group(group).column(place)
            if column.path_in_schema.partition(".")[0] in wanted:
                total += max(column.total_uncompressed_size, 0)
    return int(total)


def _column(path: Path, name: str, column: Any) -> np.ndarray:
    if column.null_count:
        raise UserError(f"{path}: column {name!r} has {column.null_count} empty cells; drop them")
    pieces = []
    for chunk in column.chunks:
        if not hasattr(chunk, "dictionary"):
            values = chunk.to_numpy(zero_copy_only=False)
            text = values.dtype.kind == "O"
            pieces.append(_texts(path, name, values.tolist()) if text else values)
            continue
        distinct, codes = chunk.dictionary.to_pylist(), chunk.indices.to_numpy(zero_copy_only=False)
        texts = _texts(path, name, distinct)
        refuse_bomb(path, texts.dtype.itemsize * len(codes), path.stat().st_size)
        pieces.append(texts[codes])
    refuse_wide(path, [[piece] for piece in pieces])
    return np.concatenate(pieces)


def _texts(path: Path, name: str, values: Sequence[Any]) -> np.ndarray:
    cells = [v if isinstance(v, bytes) else str(v).encode("utf-8", "replace") for v in values]
    if any(not cell or len(cell) > LONGEST_CELL for cell in cells):
        raise UserError(f"{path}: column {name!r} has a cell that is empty or {TOO_LONG[3:]}")
    return as_bytes(cells, str(path))
