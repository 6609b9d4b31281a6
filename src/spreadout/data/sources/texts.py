"""Your own texts and what each is about: a CSV with a header, a column of text and one of labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from spreadout.core.errors import UserError
from spreadout.core.registry import near
from spreadout.data.input_columns import InputColumn, InputColumns
from spreadout.data.io.csv_table import columns_of
from spreadout.data.naming import client_numbers
from spreadout.data.sources.base import FileSource, Instances, RawDataset, register_source
from spreadout.data.sources.encoding import Encoding
from spreadout.data.sources.label_cells import label_sets, plain
from spreadout.data.words import WIDTH, hashed_words

Separator = Annotated[str, Field(min_length=1)]


@register_source
class Texts(FileSource):
    """One labelled text a row. Its words become features by their hash: nobody shares a vocabulary."""

    about: ClassVar = "your texts as CSV with a header: one labelled text a row"
    hashes: ClassVar = True
    name: str = "texts"
    text: str = "text"  # the column of text
    label: str = "label"  # the column of classes
    separator: Separator | None = None  # what parts the labels of a text that has several
    client: str | None = None  # the column that says whose each text is; None: nobody knows
    delimiter: str = ","
    encoding: Encoding = None
    width: Annotated[int, Field(ge=2, le=2**20)] = WIDTH  # features that words are hashed into

    def parse(self, path: Path) -> RawDataset:
        columns = columns_of(path, self.delimiter, self.encoding)
        for key in ("text", "label", "client"):
            name = getattr(self, key)
            if name is not None and name not in columns:
                raise UserError(
                    f"{path}: no column {name!r}{near(name, columns)}; set data.source.{key}"
                )
        if self.text == self.label:
            raise UserError(f"{path}: {self.text!r} is text and label at once; set data.source.label")
        texts, notes = columns[self.text], list[str]()
        if empty := sum(not cell for cell in texts):
            if empty == len(texts):
                raise UserError(f"{path}: column {self.text!r} is empty; set data.source.text")
            notes.append(f"{self.text}: {empty} of {len(texts)} cells are empty")
        labels, names = label_sets(path, self.label, columns[self.label], self.separator, notes)
        whose, clients = None, tuple[str, ...]()
        if self.client:
            ids, clients = client_numbers(plain(columns[self.client]))
            whose = torch.from_numpy(ids)
        x = hashed_words(texts, self.width)
        inputs = InputColumns(
            (InputColumn(self.text, self.width, words=True),),
            tuple(name for name in columns if name != self.text),
        )
        return RawDataset(
            Instances({"x": x}, labels, whose),
            len(names) or 1 + int(labels.values.max()),
            class_names=names,
            class_ids=names,
            notes=tuple(notes),
            client_names=clients,
            input_columns=inputs,
        )
