"""Stanford Online Products (Song et al. 2016): 120,053 pictures of 22,634 products from an auction site.

`Ebay_train.txt` and `Ebay_test.txt` list pictures under the header `image_id class_id super_class_id
path`. Test products are never trained on; their classes are numbered after the trained ones.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field

from spreadout.core.errors import UserError
from spreadout.data.arrays import as_column
from spreadout.data.io.archive import Archive, opened
from spreadout.data.published import PublishedDataset, PublishedFile
from spreadout.data.sources.base import FileSource, Instances, RawDataset, register_source, single
from spreadout.data.sources.images import decode_all

HEADER = ["image_id", "class_id", "super_class_id", "path"]


PRODUCTS = PublishedDataset(
    "online-products",
    "Stanford Online Products",
    {"train": 59_551, "test": 60_502, "classes": 11_318, "test classes": 11_316},
    "Song et al. 2016; research use",
    "https://cvgl.stanford.edu/projects/lifted_struct/",
    (
        PublishedFile(
            "Stanford_Online_Products.zip",
            "7f73d41a2f44250d4779881525aea32e",
            "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
        ),
    ),
    "Stanford_Online_Products.zip",
)


@register_source
class OnlineProducts(FileSource):
    """Products to tell apart; the zip or the folder it unpacks to."""

    published: ClassVar = (PRODUCTS,)
    data_defaults: ClassVar = {"partition": "few_classes"}
    name: str = PRODUCTS.name
    size: int = Field(64, ge=4, le=512)  # pixels a side

    def parse(self, path: Path) -> RawDataset:
        with opened(path) as archive:
            train, names = self._part(archive, "Ebay_train.txt", 0)
            test, test_names = self._part(archive, "Ebay_test.txt", len(names))
        both = set(names) & set(test_names)
        if both:
            raise UserError(f"{path}: class {min(both)} is in Ebay_train.txt and in Ebay_test.txt")
        return RawDataset(train, len(names), test, class_names=(*names, *test_names))

    def _part(self, archive: Archive, file: str, first: int) -> tuple[Instances, list[str]]:
        listing = archive.only(file, what="the list of pictures")
        base = listing[: -len(file)]
        label, known = archive.label(listing), set(archive.names)
        rows = archive.read(listing).decode("utf-8-sig", "replace").split("\n")
        if rows[0].split() != HEADER:
            raise UserError(f"{label}:1: the header must be {' '.join(HEADER)!r}, is {rows[0][:60]!r}")
        pictures, classes = [], []
        for number, row in enumerate(rows[1:], 2):
            cells = row.split()
            if not cells:
                continue
            if len(cells) != 4 or not re.fullmatch("[0-9]{1,15}", cells[1]):
                raise UserError(f"{label}:{number}: not {' '.join(HEADER)!r} in {row[:40]!r}")
            if base + cells[3] not in known:
                raise UserError(f"{label}:{number}: {cells[3]} is not in the archive")
            pictures.append(base + cells[3])
            classes.append(int(cells[1]))
        names, numbered = torch.unique(torch.tensor(classes, dtype=torch.int64), return_inverse=True)
        pixels = decode_all(pictures, archive.read, archive.label, size=self.size, grey=False)
        return Instances({"x": as_column(pixels)}, single(first + numbered)), [
            str(name) for name in names.tolist()
        ]
