"""What a file of the user's own is, by its name and its first line: its format, and its columns."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from spreadout.core.errors import UserError
from spreadout.core.registry import near
from spreadout.data.decimals import have_comma
from spreadout.data.io.archive import PICTURES, files_below, open_plain
from spreadout.data.io.csv_table import (
    MARKS,
    Cells,
    columns_of,
    columns_of_head,
    encoding_of,
    first_row,
    head_of,
)
from spreadout.data.sources import SOURCES
from spreadout.data.sources.label_cells import joint_of, refuse_no_classes
from spreadout.data.sources.movielens import LAYOUTS
from spreadout.data.sources.mulan_arff import MulanArff
from spreadout.data.sources.parquet import names_in
from spreadout.data.sources.python import READS
from spreadout.data.sources.table import are_words, is_free_text, names_rows
from spreadout.data.sources.times import ISO_DATE

SEVERAL = ("labels", "classes", "targets", "categories", "tags")  # labels of one row
LABELS = (
    *("label", "class", "target", "y", "species", "category", "kind", "tag", "diagnosis", "outcome"),
    *SEVERAL,
)
WHOSE = ("client", "user", "owner", "hospital", "site", "device", "subject", "patient", "customer")
TIMES = ("time", "timestamp", "date", "when", "datetime")
ITEMS = ("item", "product", "movie", "song", "track", "book", "article", "page")
NOBODY = "-"  # in place of a column's name: no column says whose a row is
HEADER = re.compile(rb"\s*\d+\s+\d+\s+\d+\s*")  # N D L, as extreme-classification text begins
SPARSE = re.compile(rb"\s*(\S+\s+)?\d+:\S+(\s+\d+:\S+)*\s*")


def guessed(
    data: str,
    label: str | None = None,
    client: str | None = None,
    *,
    events: bool = False,
    sure: bool = True,
) -> dict[str, object]:
    """`[data]` for a file or a data set; label, client: columns of a table that are known already.

    events: rows are what users did, if columns of users, items and times are found or named: the
    client is the user then, and the label the item.
    label: of an ARFF file the attribute of classes, which is guessed where nothing names labels.
    sure: a column of labels that holds no classes is refused, since nobody is asked for another.
    """
    path = Path(data).expanduser()
    kind = kind_of(data, path)
    where: dict[str, object] = {"path": str(path.absolute())} if path.exists() else {}
    if kind == "mulan" and path.exists() and client is None:
        MulanArff(label=label).refuse_unknown_label(path)
        named = label or MulanArff().class_in(path)  # written down, so that it can be seen and changed
        return {**where, "source": kind if named is None else {"name": kind, "label": named}}
    if path.suffix == ".parquet" and path.exists():
        found = _columns_of(data, names_in(path), label, client, ",", True, None)
        if found["name"] == "interactions":
            return {**where, "source": found}
        raise UserError(
            f"{data}: Parquet files are read as events, and no columns of it are called as users, items "
            "and times are; name them by data.source.user, .item and .time, or write a table as CSV"
        )
    if kind != "table":
        for option, name in (("--label", label), ("--client", client)):
            if name is not None:
                raise UserError(f"{option} {name}: is for tables, and {data} is none; leave it out")
        return {"source": kind, **where}
    encoding = encoding_of(path)
    delimiter = delimiter_of(path, encoding)
    head = columns_of_head(path, delimiter, encoding)
    names = first_row(head_of(path, encoding), delimiter)
    dated = _dated(head) if events else None
    found = _columns_of(data, names, label, client, delimiter, events, dated)
    if found["name"] == "interactions":  # whose names stay the bytes that they are
        return {**where, "source": found}
    own = {} if encoding is None else {"encoding": encoding}
    return {**where, "source": _looked_into(path, {**found, **own}, delimiter, sure)}


def _looked_into(
    path: Path, found: Mapping[str, object], delimiter: str, sure: bool
) -> dict[str, object]:
    """What the cells of a table say that its header does not: that they are texts, or several labels."""
    name, source = str(found["label"]), dict(found)
    columns = columns_of(path, delimiter, str(found["encoding"]) if "encoding" in found else None)
    labels = columns[name]
    if (text := text_in(columns, found)) is not None:
        source = {**source, "name": "texts", "text": text}
    elif have_comma(cells for one, cells in columns.items() if one not in (name, found.get("client"))):
        source["decimal"] = ","
    if (joint := joint_of(labels)) is not None:
        return {**source, "separator": joint}
    if sure:
        refuse_no_classes(path, name, labels, key="--label")
    return source


def kind_of(data: str, path: Path) -> str:
    """The source that reads it."""
    if data in SOURCES and not path.exists():
        return data
    if not path.exists():
        raise UserError(f"{data}: no such file, and no data set of this name; see `spreadout data list`")
    inside = _names_in(path)
    if inside is not None:
        kind = _of_members(inside)
    else:
        kind = READS.get(Path(path.name.removesuffix(".gz")).suffix.lower(), "") or _of_text(path)
    if not kind:
        raise UserError(
            f"{data}: its format is not known by its name; set data.source yourself: "
            "`spreadout data list` shows what there is (init takes a .csv or .tsv for a table)"
        )
    return kind


def _names_in(path: Path) -> Iterator[str] | None:
    """What a folder or a zip holds; None: it is a file."""
    if path.is_dir():
        return iter(files_below(path))
    if path.suffix.lower() != ".npz" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            return iter(packed.namelist())
    return None


def _of_members(names: Iterator[str]) -> str:
    """By the first file that says it."""
    for name in names:
        last = PurePosixPath(name).name.lower()
        if last.endswith(PICTURES):
            return "image-folder"
        if last in LAYOUTS:
            return "movielens"
        if last.endswith(".arff"):
            return "mulan"
        if re.search(r"(^|[_-])(train|test)\.txt(\.gz)?$|^trn_x_xf\.txt$", last):
            return "xc-text"
    return ""


def _of_text(path: Path) -> str:
    """Sparse rows, which come under any name."""
    with open_plain(path) as stream:
        first = stream.readline(1 << 16)
    if HEADER.fullmatch(first):
        return "xc-text"
    return "libsvm" if SPARSE.fullmatch(first) else ""


def delimiter_of(path: Path, encoding: str | None = None) -> str:
    """What ends most cells of the first line."""
    line = re.sub(r'"[^"]*"', "", head_of(path, encoding)).partition("\n")[0]
    return max(MARKS, key=line.count)  # of equals the first, which is the comma


def text_in(columns: Mapping[str, Cells], named: Mapping[str, object]) -> str | None:
    """The column of free text, if it is all that there is to learn from: an id of each row is not.

    Numbers and words of a few kinds beside it make a table, which leaves the text out and says so.
    """
    others = (named["label"], named.get("client"))
    inputs = [name for name, cells in columns.items() if name not in others and not names_rows(cells)]
    if len(inputs) != 1:
        return None
    (only,) = inputs
    return only if is_free_text(columns[only]) and are_words(columns[only]) else None


def _columns_of(
    data: str,
    names: list[str],
    label: str | None,
    client: str | None,
    delimiter: str,
    events: bool,
    dated: str | None,
) -> dict[str, object]:
    """`[data.source]` of a table: which of its columns are what. dated: one that has dates."""
    for name in (label, None if client == NOBODY else client):
        if name is not None and name not in names:
            raise UserError(f"{data}: no column {name!r}{near(name, names)}")
    if label is not None and label == client:
        raise UserError(f"--client {client}: is the column of labels too; - where no column says it")
    own = {"delimiter": delimiter} if delimiter != "," else {}
    item, time = (_first(names, words, but=(client,)) for words in (ITEMS, TIMES))
    user = client or _first(names, WHOSE)
    if events:
        item, time = label or item, time or dated
    named = {user, item, time} - {None, NOBODY}
    if (events or label is None) and len(named) == 3:
        return {"name": "interactions", "user": user, "item": item, "time": time, **own}
    called = (
        label or _first(names, LABELS, but=(client,)) or ([n for n in names if n != client] or names)[-1]
    )
    whose = client or _first(names, WHOSE, but=(called,))
    client_column = {"client": whose} if whose not in (None, NOBODY) else {}
    return {"name": "table", "label": called, **client_column, **own}


def _dated(columns: Mapping[str, Cells]) -> str | None:
    """The first column in which every cell begins with an ISO date."""
    for name, cells in columns.items():
        if all(ISO_DATE.match(cell.encode()) for cell in cells):
            return name
    return None


def _first(names: Sequence[str], words: Sequence[str], but: Sequence[str | None] = ()) -> str | None:
    """The column that is called by the first of these words, in letters of whatever size.

    `user_id` and `userId` are the user, where no column is called just so.
    """
    whole = {name.casefold(): name for name in names if name not in but}
    short = {re.sub(r"[\s_.-]*id$", "", name): own for name, own in whole.items()}
    for known in (whole, short):
        for word in words:
            if word in known:
                return known[word]
    return None
