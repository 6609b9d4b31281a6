"""A file or folder of inputs, whatever format it is in: found by its name and its first lines."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from spreadout.core.errors import UserError
from spreadout.data.io.archive import PACKED, PICTURES
from spreadout.data.io.csv_table import head_of
from spreadout.data.io.npz import read_npy, read_npz
from spreadout.data.unlabelled.events import read_items
from spreadout.data.unlabelled.pictures import read_idx, read_pictures
from spreadout.data.unlabelled.tables import (
    has_pairs,
    is_table,
    read_arff,
    read_lines,
    read_numbers,
    read_sparse,
    read_table,
)
from spreadout.data.unlabelled.wanted import Unlabelled, Wanted, refuse_empty

Reader = Callable[[Path, Wanted], Unlabelled]
FORMS = (
    "pictures, .npy or .npz (x), idx images, .arff, a table (.csv), or lines of feature:value "
    "(libsvm, xc-text)"
)


def read_inputs(path: Path, wanted: Wanted) -> Unlabelled:
    """The inputs in a file or folder, in the form that the model's own data came in or another."""
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    read = _reader(path, wanted)
    return refuse_empty(read(path, wanted), path)


def read_text(text: bytes, wanted: Wanted) -> Unlabelled:
    """The same of text that is not in a file, such as what comes through a pipe."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin"
        path.write_bytes(text)
        try:
            return read_inputs(path, wanted)
        except UserError as error:
            raise UserError(str(error).replace(str(path), "stdin")) from None


def _reader(path: Path, wanted: Wanted) -> Reader:
    name = path.name.lower()
    plain = re.sub(r"\.(gz|bz2)$", "", name)
    if wanted.histories:
        return read_items
    if path.is_dir() or name.endswith((*PICTURES, *PACKED)):
        return read_pictures
    if name.endswith((".npy", ".npz")):
        return _arrays
    if re.search(r"idx\d-ubyte$", plain):
        return read_idx
    if plain.endswith(".arff"):
        return read_arff
    if "\0" in head_of(path, wanted.encoding):
        raise UserError(f"{path}: is in no form that is known here; give {FORMS}")
    own = getattr(wanted.source, "delimiter", None)
    if wanted.columns is not None and is_table(path, wanted.columns, own, wanted.encoding):
        return read_table
    if wanted.texts is not None:
        return read_lines
    return read_sparse if has_pairs(path, wanted.encoding) else read_numbers


def _arrays(path: Path, wanted: Wanted) -> Unlabelled:
    """The array of an .npy file, or `x` of an .npz file."""
    if path.suffix.lower() != ".npz":
        return Unlabelled(read_npy(path))
    found = read_npz(path, ["x"], others=True)
    if "x" not in found:
        raise UserError(f"{path}: has no array x")
    return Unlabelled(found["x"])
