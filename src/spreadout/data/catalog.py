"""What is known of a data set by name, what is here of it, and how to get the rest."""

from __future__ import annotations

import difflib
import hashlib
from pathlib import Path

import torch

from spreadout.core.errors import UserError
from spreadout.data.columns import Sparse
from spreadout.data.published import CATALOGUE, FORMATS, DataSet
from spreadout.data.sources.base import RawDataset, data_home


def known(name: str) -> DataSet:
    """The data set of this name."""
    if name in FORMATS:
        raise UserError(f"{name} is a format: {FORMATS[name]}; give it with data.source and data.path")
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name.lower(), CATALOGUE, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(f"data set {name!r}: unknown{hint} Known: {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def how_to_get(data: DataSet) -> str:
    """What to do to have this data set here."""
    where = data_home() or Path("$SPREADOUT_DATA")
    if data.fetchable:
        return f"`spreadout data fetch {data.name}`, or from {data.home} to {where / data.place}"
    what = f"put {data.layout} into" if data.layout else "put it at"
    return f"download it from {data.home} and {what} {where / data.place}"


def counts(found: RawDataset) -> dict[str, int | float]:
    """What was found, under the names of the published figures."""
    train, test = found.train, found.test
    rows = len(train) + (len(test) if test is not None else 0)
    labels = len(train.labels.values) + (len(test.labels.values) if test is not None else 0)
    result: dict[str, int | float] = {
        "examples": len(train),
        "train": len(train),
        "rows": rows,
        "classes": found.classes,
        "labels a row": round(labels / rows, 2),
    }
    if test is not None:
        result["test"] = len(test)
        result["test classes"] = len(torch.unique(test.labels.values))
    x = train.columns.get("x")
    if isinstance(x, Sparse):
        result["features"] = x.width
    return result


def md5(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()
