"""Omniglot (Lake et al. 2015): 1,623 characters of 50 alphabets, each drawn by 20 people.

`images_background.zip` is for training, the alphabets of `images_evaluation.zip` for testing: classes
never trained on, numbered after the trained ones. The user of a drawing is who drew it. Layout
`alphabet/characterNN/NNNN_DD.png`, 105x105, ink black.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import ClassVar

import torch
from pydantic import Field

from spreadout.core.errors import UserError
from spreadout.data.arrays import as_column
from spreadout.data.io.archive import opened
from spreadout.data.published import PublishedDataset, PublishedFile
from spreadout.data.sources.base import FileSource, Instances, RawDataset, register_source, single
from spreadout.data.sources.images import decode_all, is_picture

FILES = "https://github.com/brendenlake/omniglot/raw/master/python/"
OMNIGLOT = PublishedDataset(
    "omniglot",
    "handwritten characters of 50 alphabets",
    {"train": 19_280, "test": 13_180, "classes": 964, "test classes": 659},
    "Lake et al. 2015; MIT",
    "https://github.com/brendenlake/omniglot",
    (
        PublishedFile(
            "omniglot/images_background.zip",
            "68d2efa1b9178cc56df9314c21c6e718",
            f"{FILES}images_background.zip",
        ),
        PublishedFile(
            "omniglot/images_evaluation.zip",
            "6b91aef0f799c5bb55b94e3f2daec811",
            f"{FILES}images_evaluation.zip",
        ),
    ),
    "omniglot",
    "images_background.zip and images_evaluation.zip",
)


@register_source
class Omniglot(FileSource):
    """Handwritten characters; background alphabets train, evaluation alphabets test."""

    published: ClassVar = (OMNIGLOT,)
    data_defaults: ClassVar = {"partition": "few_classes"}
    turns_ink_bright: ClassVar = True
    name: str = OMNIGLOT.name
    size: int = Field(28, ge=4, le=105)  # pixels a side
    drawings: int = Field(20, ge=1, le=20)  # of each character there are to train on

    def parse(self, path: Path) -> RawDataset:
        train, train_names = _part(path, "images_background", self.size, 0, self.drawings)
        test, test_names = _part(path, "images_evaluation", self.size, len(train_names))
        return RawDataset(train, len(train_names), test, class_names=(*train_names, *test_names))


def _part(
    path: Path, part: str, size: int, first_class: int, drawings: int = 20
) -> tuple[Instances, list[str]]:
    """One of the two zips; drawings: by so many of an alphabet's twenty people."""
    source = next((p for p in (path / f"{part}.zip", path / part) if p.exists()), None)
    if source is None:
        raise UserError(f"{path}: has no {part}.zip; put both Omniglot zips there")
    with opened(source) as archive:
        names = [name for name in archive.names if is_picture(name)]
        paths = [PurePosixPath(name).parts for name in names]
        drawer = [place[-1].rpartition(".")[0].rpartition("_")[2] for place in paths]
        for name, place, who in zip(names, paths, drawer, strict=True):
            if len(place) < 3 or not re.fullmatch("[0-9]{1,9}", who):
                raise UserError(f"{archive.label(name)}: not ALPHABET/characterNN/NNNN_DD.png")
        classes = sorted({place[-3:-1] for place in paths})
        number = {name: first_class + i for i, name in enumerate(classes)}
        label = torch.tensor([number[place[-3:-1]] for place in paths], dtype=torch.int64)
        # Each alphabet was drawn by twenty people of its own, numbered from 1.
        people = [(place[-3], int(who)) for place, who in zip(paths, drawer, strict=True)]
        person = {who: i for i, who in enumerate(sorted(set(people)))}
        pixels = decode_all(names, archive.read, archive.label, size=size, grey=True)
    ink = 255 - pixels  # strokes bright on a dark ground, as in MNIST
    user = torch.tensor([person[who] for who in people], dtype=torch.int64)
    every = Instances({"x": as_column(ink)}, single(label), user)
    few = torch.tensor([number <= drawings for _, number in people])
    kept = every if bool(few.all()) else every.select(few.nonzero()[:, 0]).compact()
    return kept, ["/".join(name) for name in classes]
