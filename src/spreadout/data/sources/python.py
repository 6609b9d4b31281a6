"""Data that no file holds: given to `so.run` in Python, or not named at all.

The config of a run that was given its data says so. It runs again with the data, and not without: no
other data takes their place.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from spreadout.core.errors import UserError
from spreadout.data.sources.base import RawDataset, Source, register_source

READS = {  # what a file's name says about it
    ".npz": "npz",
    ".csv": "table",
    ".tsv": "table",
    ".parquet": "interactions",
    ".arff": "mulan",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
}


@register_source
class GivenInPython(Source):
    """Nothing to read: the data came as `data=`."""

    listed: ClassVar = False
    reads_path: ClassVar = False
    name: str = "python"
    called: str = ""  # as `Splits` named it; empty: the config names no data

    def read(self, path: Path | None) -> RawDataset:
        if self.called:
            raise UserError(
                f"data.source = 'python': the data of this run ({self.called}) were given in Python; "
                "give them again (data=...), or set data.source"
            )
        raise UserError(
            "data.source: the config names no data; set it (`spreadout data list` shows what there is), "
            "or let `spreadout init` write a config for a file of yours"
        )


def source_for(path: Path) -> str:
    """What to set `data.source` to for a file, as a hint."""
    known = READS.get(path.suffix.lower())
    return f'"{known}"' if known else "its format (`spreadout data list`)"
