"""What is known of a data set by name, what is here of it, and how to get the rest."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

import torch

from spreadout.core.errors import UserError
from spreadout.core.registry import near
from spreadout.data.columns import Sparse
from spreadout.data.published import PublishedDataset
from spreadout.data.sources import SOURCES
from spreadout.data.sources.base import RawDataset, Source, data_home


def catalogue() -> dict[str, PublishedDataset]:
    """Every data set that a registered source reads by name."""
    return {data.name: data for source in SOURCES.parts() for data in source.published}


def formats() -> dict[str, str]:
    """The other names of registered sources, for data of one's own, and what each is."""
    sets = catalogue()
    return {
        name: source.about or (inspect.getdoc(source) or "").partition("\n")[0]
        for source in SOURCES.parts()
        for name in source.names()
        if name not in sets and source.listed
    }


def known(name: str) -> PublishedDataset:
    """The data set of this name."""
    sets, other = catalogue(), formats()
    if name in other:
        raise UserError(f"{name} is a format: {other[name]}; give it with data.source and data.path")
    if name not in sets:
        raise UserError(f"data set {name!r}: unknown{near(name.lower(), sets)}")
    return sets[name]


def source_of(data: PublishedDataset) -> Source:
    """The source that reads a data set."""
    return SOURCES[data.name](name=data.name)


def location(data: PublishedDataset) -> Path | None:
    """Where a data set lies on this machine, if it does."""
    try:
        return source_of(data).locate(None)
    except UserError:
        return None


def how_to_get(data: PublishedDataset) -> str:
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
        "labels a row": round(labels / max(rows, 1), 2),
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
