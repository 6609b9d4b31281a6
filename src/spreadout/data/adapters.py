"""Tables of other libraries as arrays: data frames, Hugging Face and Flower data sets, torch data sets.

None of those libraries is imported: what is given is known by what it can do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import Dataset as TorchDataset

from spreadout.core.errors import UserError
from spreadout.core.registry import near
from spreadout.data.columns import Sparse
from spreadout.data.input_columns import (
    InputColumn,
    InputColumns,
    is_cell_of_text,
    is_number,
    refuse_odd_columns,
)
from spreadout.data.words import WIDTH

Columns = str | Sequence[str] | None


@dataclass(frozen=True)
class Table:
    """Inputs, labels as the library has them, and whose each example is, if that was asked for."""

    x: np.ndarray | Sparse
    y: Any
    client: Any = None
    class_names: tuple[str, ...] = ()  # where the library numbers classes and knows their names
    input_columns: InputColumns | None = None  # the columns of x, where it has several numbers by name

    def __post_init__(self) -> None:
        """A number that is none of its classes is the library's way to say that there is no label."""
        count = len(self.class_names)
        for row, label in enumerate(self.y if count else ()):
            for one in label if hasattr(label, "__len__") else [label]:
                if one is None or not 0 <= one < count:
                    raise UserError(
                        f"y is {one} in example {row}, which is none of its {count} classes "
                        f"(0 … {count - 1}): label the example, or drop it"
                    )


def table_of(
    given: Any,
    label: str,
    client: str | None = None,
    features: Columns = None,
    like: InputColumns | None = None,
) -> Table:
    """What a table holds, by the names of its columns; features: all others, if none are named.

    like: the columns of the training data, in whose order those of this table come.
    """
    if isinstance(given, TorchDataset) and not hasattr(given, "column_names"):
        return _of_torch(given)
    return _of_columns(_by_column(given), label, client, features, like)


def _by_column(given: Any) -> _Mapping:
    if hasattr(given, "column_names") and hasattr(given, "features"):
        return _HuggingFace(given)
    if hasattr(given, "columns") and hasattr(given, "__getitem__"):
        return _Frame(given)
    if isinstance(given, Mapping):
        return _Mapping(given)
    raise UserError(
        f"data: is a {type(given).__name__}; give a data frame, a dictionary of columns, a data set of "
        "Hugging Face or Flower, or one of torch"
    )


def table_of_parts(partitions: Any, label: str, features: Columns = None) -> Table:
    """The tables of all clients as one, by the names of the first one's columns."""
    if not hasattr(partitions, "__iter__"):
        kind = type(partitions).__name__
        raise UserError(f"partitions: is a {kind}; give a table for every client, in a list")
    named = dict(partitions) if isinstance(partitions, Mapping) else dict(enumerate(partitions))
    if not named:
        raise UserError("partitions: there are none; give a table for every client")
    tables, like = dict[Any, Table](), _texts_of_some(named.values(), label, features)
    for name, one in named.items():
        tables[name] = table_of(one, label, None, features, like)
        like = like or tables[name].input_columns
    parts = list(tables.values())
    for name, part in tables.items():
        if not len(part.x):
            raise UserError(f"partitions: client {name} has no examples; leave it out")
        if part.class_names != parts[0].class_names:
            raise UserError(f"partitions: client {name} calls its classes by other names")
    labels = [one for part in parts for one in list(part.y)]
    owner = [name for name, part in tables.items() for _ in range(len(part.x))]
    x = _together([part.x for part in parts])
    return Table(x, labels, owner, parts[0].class_names, parts[0].input_columns)


def _texts_of_some(tables: Iterable[Any], label: str, features: Columns) -> InputColumns | None:
    """The one column of inputs, if any client has texts in it: another's may be numbers, or missing."""
    for one in tables:
        if isinstance(one, TorchDataset) and not hasattr(one, "column_names"):
            return None
        table = _by_column(one)
        named = _asked(features) or [name for name in table.names if name != label]
        if len(named) != 1 or named[0] not in table.names:
            return None
        cells = table.column(named[0])
        refuse_odd_columns({named[0]: cells}, "partitions")
        if _holds_texts(cells):
            return _as_texts(table, named[0])
        if not all(map(is_cell_of_text, cells)):
            return None
    return None


def _asked(features: Columns) -> list[str]:
    return [features] if isinstance(features, str) else list(features or [])


def _together(parts: Sequence[np.ndarray | Sparse]) -> np.ndarray | Sparse:
    texts = [x for x in parts if isinstance(x, Sparse)]
    if len(texts) == len(parts):
        return Sparse.joined(texts)
    arrays = [x for x in parts if not isinstance(x, Sparse)]
    if texts or len({x.shape[1:] for x in arrays}) > 1:
        raise UserError("partitions: examples of two clients have different shapes")
    return np.concatenate(arrays)


class _Mapping:
    """Columns by name."""

    def __init__(self, given: Any) -> None:
        self.given = given

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.keys]

    def column(self, name: str) -> Any:
        return self.given[self._key(name)]

    def _key(self, name: str) -> Any:
        """A column may be called by what is no text, such as a number."""
        return next(own for own in self.keys if str(own) == name)

    @property
    def keys(self) -> list[Any]:
        return list(self.given)

    def class_names(self, name: str) -> tuple[str, ...]:
        return ()


class _Frame(_Mapping):
    """Of pandas, Polars or the like."""

    @property
    def keys(self) -> list[Any]:
        return list(self.given.columns)

    def column(self, name: str) -> Any:
        return np.asarray(self.given[self._key(name)])


class _HuggingFace(_Mapping):
    """Of `datasets`, and what Flower Datasets cuts into partitions."""

    @property
    def keys(self) -> list[Any]:
        return list(self.given.column_names)

    def column(self, name: str) -> Any:
        values = self.given[name]
        return [np.asarray(one) if hasattr(one, "convert") else one for one in values]  # pictures

    def class_names(self, name: str) -> tuple[str, ...]:
        return tuple(getattr(self.given.features[name], "names", None) or ())


def _of_columns(
    table: _Mapping, label: str, client: str | None, features: Columns, like: InputColumns | None
) -> Table:
    asked = _asked(features)
    if twice := [name for name in table.names if table.names.count(name) > 1]:
        raise UserError(f"data has two columns {twice[0]!r}; rename one")
    for name in (label, *([client] if client is not None else []), *asked):
        if name not in table.names:
            raise UserError(f"data has no column {name!r}{near(name, table.names)}")
    if like is not None:
        if asked and set(asked) != set(like.names):
            odd = min(set(asked) ^ set(like.names))
            raise UserError(
                f"features: {odd!r} is in this table's or in the training data's, not in both"
            )
        if not asked:
            like.refuse_others(table.names, "data", [label])
        asked = list(like.names)
    named = asked or [name for name in table.names if name not in (label, client)]
    if not named:
        raise UserError(f"data has no column beside {label!r}: features are needed too")
    if type(table) is _Mapping:  # nothing else says that they go together
        refuse_odd_columns({name: table.column(name) for name in named}, "data")
    wants_texts = like is not None and like.text is not None
    if len(named) == 1 and (wants_texts or _holds_texts(table.column(named[0]))):
        return _of_texts(table, named[0], label, client, like)
    parts = [_numbers(name, table.column(name)) for name in named]
    if len(parts) == 1 and parts[0].ndim > 1:
        x = parts[0]
    elif all(part.ndim <= 2 for part in parts):
        x = np.concatenate([part[:, None] if part.ndim == 1 else part for part in parts], axis=1)
    else:
        raise UserError(f"features {', '.join(named)}: pictures are one column; name it in features")
    whose = None if client is None else table.column(client)
    inputs = None
    if x.ndim == 2:
        widths = [1 if part.ndim == 1 else part.shape[1] for part in parts]
        columns = tuple(InputColumn(*one) for one in zip(named, widths, strict=True))
        inputs = InputColumns(columns, tuple(name for name in table.names if name not in named))
    return Table(x, table.column(label), whose, table.class_names(label), inputs)


def _holds_texts(values: Any) -> bool:
    """Whether a column has text that is more than a number written as one."""
    return any(isinstance(one, str) and one.strip() and not is_number(one) for one in values)


def _as_texts(table: _Mapping, name: str) -> InputColumns:
    beside = tuple(other for other in table.names if other != name)
    return InputColumns((InputColumn(name, WIDTH, words=True),), beside)


def _of_texts(
    table: _Mapping, name: str, label: str, client: str | None, like: InputColumns | None
) -> Table:
    """One column of text, as the source `texts` reads it."""
    inputs = like or _as_texts(table, name)
    if inputs.text is None:
        raise UserError(f"data: column {name!r} is text, and numbers in the training data")
    x = inputs.encode_texts(table.column(name), "data")
    whose = None if client is None else table.column(client)
    return Table(x, table.column(label), whose, table.class_names(label), inputs)


def _numbers(name: str, values: Any) -> np.ndarray:
    """A column of features: numbers, or lists of numbers of one length."""
    try:
        array = np.asarray(values)
        if array.dtype == object:
            array = np.stack([np.asarray(one) for one in array.tolist()])
    except ValueError:
        raise UserError(f"column {name!r} has rows of different shapes: give all of them one") from None
    if array.dtype == bool:
        return array.astype(np.float32)
    if not np.issubdtype(array.dtype, np.number) or np.issubdtype(array.dtype, np.complexfloating):
        some = str(array.ravel()[0]) if array.size else ""
        raise UserError(
            f"column {name!r} has {some!r}, which is no number: leave it out by naming the features, or "
            "turn it into numbers"
        )
    return array if array.dtype == np.uint8 else array.astype(np.float32)


def _of_torch(given: Any) -> Table:
    """Items (x, y) of a torch data set with a length."""
    if not hasattr(given, "__len__"):
        raise UserError("data: has no length; give a torch data set that can be indexed")
    items = [given[i] for i in range(len(given))]
    if not items or not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
        raise UserError("data: its items are not pairs (x, y); wrap it in one whose items are")
    try:
        x = np.stack([np.asarray(one) for one, _ in items])
    except ValueError:
        raise UserError("data: inputs have different shapes; bring them to one first") from None
    y = [np.asarray(label).item() if np.ndim(label) == 0 else list(label) for _, label in items]
    names = getattr(given, "classes", None)
    whole = all(isinstance(label, int) for label in y)
    return Table(x, y, None, tuple(map(str, names)) if names is not None and whole else ())
