"""Data in ARFF: labels named by Mulan's XML or MEKA's `-C` in @relation, or a class as in Weka's files.

Which attribute is the class can be said by `label`; then nothing else is a label.

https://mulan.sourceforge.net/format.html, https://waikato.github.io/meka/datasets/. Known by name:
`bibtex` (Katakis et al. 2008) and others. A nominal attribute becomes an indicator for each of its
values but the first, which is the one that a sparse row leaves out; with very many words as values it
names rows, and is left out. A missing value becomes the mean, or
the most frequent value, of the training rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from spreadout.data.input_columns import MOST_VALUES
from spreadout.data.io.archive import Archive, beside, opened
from spreadout.data.published import PublishedDataset
from spreadout.data.sources.arff import Attribute, read_header
from spreadout.data.sources.base import FileSource, Instances, RawDataset, register_source
from spreadout.data.sources.mulan_files import ArffName, one_base, pair, xml_files
from spreadout.data.sources.mulan_labels import class_named, class_of, labels_of
from spreadout.data.sources.mulan_table import Table


def _published(name: str, cite: str, figures: Mapping[str, int | float]) -> PublishedDataset:
    return PublishedDataset(
        name,
        "multi-label, Mulan's ARFF",
        figures,
        cite,
        "https://mulan.sourceforge.net/datasets-mlc.html",
        place=name,
        layout=f"{name}-train.arff, {name}-test.arff and {name}.xml",
    )


@register_source
class MulanArff(FileSource):
    """Features and labels in one table; an XML file, or -C, says which attributes are labels."""

    about: ClassVar = "Mulan ARFF with its XML, or MEKA's or Weka's ARFF"
    published: ClassVar = (
        _published(
            "bibtex",
            "Katakis et al. 2008",
            {"train": 4880, "test": 2515, "features": 1836, "classes": 159, "labels a row": 2.40},
        ),
        _published("mediamill", "Snoek et al. 2006", {"rows": 43_907, "features": 120, "classes": 101}),
        _published(
            "delicious", "Tsoumakas et al. 2008", {"rows": 16_105, "features": 500, "classes": 983}
        ),
        _published("corel5k", "Duygulu et al. 2002", {"rows": 5_000, "features": 499, "classes": 374}),
    )
    name: str = "mulan"
    label: str | None = None  # the attribute of classes; None: as the XML, -C or the header says it

    def refuse_unknown_label(self, path: Path) -> None:
        """Before anything is read but the header: a label that is no attribute with classes."""
        if self.label is None:
            return
        with _around(path) as (archive, names, wanted):
            train, _ = pair(names, wanted)
            with archive.open(train) as stream:
                class_named(self.label, read_header(stream, archive.label(train)), archive.label(train))

    def class_in(self, path: Path) -> str | None:
        """By the header alone: the attribute that is taken as the class; None if labels are named.

        Files of which neither can be said are refused, as when they are read.
        """
        with _around(path) as (archive, names, wanted):
            train, _ = pair(names, wanted)
            with archive.open(train) as stream:
                header = read_header(stream, archive.label(train))
            place = class_of(archive, train, header)
            if place is None:
                labels_of(archive, train, header)
            return None if place is None else header.attributes[place].name

    def content(self, path: Path) -> list[Path]:
        with _around(path) as (archive, names, wanted):
            if not archive.path.is_dir():
                return [path]
            train, test = pair(names, wanted)
            files = [train, test, *xml_files(archive, ArffName.of(train).base)]  # type: ignore[union-attr]
            return [archive.path / file for file in files if file is not None]

    def parse(self, path: Path) -> RawDataset:
        with _around(path) as (archive, names, wanted):
            train, test = pair(names, wanted)
            taught = Table.read(archive, train, named=self.label)
            tested = None if test is None else Table.read(archive, test, taught)
        tables = [taught] if tested is None else [taught, tested]
        for table in tables[1:]:
            table.refuse_unlike(taught, train)
        missed = sorted(set().union(*(table.missed() for table in tables)))
        parts = [Instances({"x": table.inputs()}, table.label_sets()) for table in tables]
        return RawDataset(
            parts[0],
            len(taught.labels),
            parts[1] if len(parts) > 1 else None,
            class_names=tuple(taught.labels),
            notes=tuple(_notes(taught, missed, guessed=self.label is None)),
            found_in_rows=tuple(
                f"attribute {taught.features[i].name!r} has missing values, which became the mean, or "
                "the most frequent value, of its rows; with [privacy] fill them yourself by a public "
                "value, or leave the attribute out"
                for i in missed
            ),
            gaps=tuple(taught.gappy(feature) for feature in missed),
        )


@contextmanager
def _around(path: Path) -> Iterator[tuple[Archive, list[ArffName], ArffName | None]]:
    """Where the files lie, the .arff files of the data set, and the one that was named."""
    wanted = ArffName.of(path.name) if path.is_file() else None
    if wanted is not None:
        archive = beside(path)
        yield archive, [name for file in archive.names if (name := ArffName.of(file))], wanted
        return
    with opened(path) as archive:
        yield archive, one_base(archive), None


def _notes(table: Table, missed: Sequence[int], *, guessed: bool) -> Iterator[str]:
    """What a user would not expect of how these files were read."""
    if table.class_place is not None and guessed:
        called = table.header.attributes[table.class_place].name
        yield f"{table.name}: attribute {called!r} is the class: no XML and no -C names labels"
    text = [attribute for attribute in table.features if attribute.kind == "text"]
    if text:
        yield f"{table.name}: {_some(text)} left out: text and dates are no features"
    free = [attribute for attribute in table.features if attribute.is_free]
    if free:
        yield f"{table.name}: {_some(free)} left out: words, with more than {MOST_VALUES} values"
    many = [one for one in table.features if len(one.values) > 2 and not one.is_free]
    if many:
        width = sum(attribute.width for attribute in many)
        yield (
            f"{table.name}: {_some(many)} read as {width} indicators: nominal, one for each value "
            "but the first"
        )
    if weighted := len(table.cells.weighted):
        rows = f"{weighted:,} row{'s' * (weighted > 1)}"
        yield f"{table.name}: weights of {rows} left out: rows count alike"
    if missed:
        some = _some([table.features[i] for i in missed])
        yield (
            f"{table.name}: {some} with missing values: replaced by the mean, or the most frequent "
            "value, of the training rows"
        )


def _some(attributes: Sequence[Attribute]) -> str:
    names = ", ".join(repr(attribute.name[:30]) for attribute in attributes[:3])
    more = f" and {len(attributes) - 3} more" if len(attributes) > 3 else ""
    return f"{len(attributes)} attribute{'s' * (len(attributes) > 1)} ({names}{more})"
