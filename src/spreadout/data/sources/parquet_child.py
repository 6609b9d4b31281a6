"""Reads columns of a Parquet file in a process that may take so much memory and no more.

What a Parquet file unpacks to stands in its footer, in the headers of its pages and in the pages
themselves, and each of them may lie. So nothing is believed: the process ends where it would take more.
`read_parquet` starts this file by its path, tells it what to read on its standard input, and has the
columns from its standard output. It imports nothing of ours.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as arrow  # type: ignore[import-untyped]
from pyarrow import ipc, parquet

TOO_LARGE = 3  # the exit code if the columns want more memory


def main(path: str, wanted: Sequence[str], room: int) -> int:
    """Write these columns as an Arrow stream, or a line of why not."""
    arrow.set_memory_pool(arrow.system_memory_pool())  # others set more aside than they use
    _take_no_more(room)
    try:
        table = _read(path, wanted)
        with ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
            stream.write_table(table)
    except MemoryError:
        return TOO_LARGE
    except Exception as error:  # of a broken file, pyarrow may say anything
        print(str(error).partition("\n")[0][:120], file=sys.stderr)
        return 1
    return 0


def _read(path: str, wanted: Sequence[str]) -> Any:
    """The columns as a table; of texts each distinct one once."""
    try:
        with parquet.ParquetFile(path, read_dictionary=list(wanted), pre_buffer=False) as file:
            return file.read(columns=list(wanted), use_threads=False)
    except (NotImplementedError, OSError) as error:
        if "Not yet implemented" not in str(error):  # of texts that are stored as differences
            raise
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            table = file.read(columns=list(wanted), use_threads=False)
        for place, column in enumerate(table.columns):
            if arrow.types.is_binary(column.type) or arrow.types.is_string(column.type):
                table = table.set_column(place, table.field(place).name, column.dictionary_encode())
        return table


def _take_no_more(room: int) -> None:
    """So many bytes beyond what this process has. Only Linux tells that: elsewhere there is no limit."""
    about = Path("/proc/self/status")
    held = re.search(r"VmSize:\s+(\d+) kB", about.read_text()) if about.is_file() else None
    if held is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = room + (int(held[1]) << 10)
        most = most if soft == resource.RLIM_INFINITY else min(most, soft)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


if __name__ == "__main__":
    sys.exit(main(**json.load(sys.stdin)))
