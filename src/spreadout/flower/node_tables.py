"""A node's own table: CSV, read by what the federation's table has agreed of its columns and classes.

How a cell becomes a number must be the same everywhere: which indicator a text has, what an empty cell
becomes, which number a class has. A node's file alone cannot say it. `spreadout deploy init` writes it
down, once, from the data that the config names.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from logging import WARNING
from pathlib import Path
from typing import Any

import tomli_w
import torch
from flwr.supercore import log
from torch import Tensor

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.core.registry import near
from spreadout.data.arrays import as_features
from spreadout.data.columns import Column, Dense, Sparse
from spreadout.data.dataset import FederatedDataset
from spreadout.data.decimals import pointed
from spreadout.data.input_columns import InputColumns
from spreadout.data.io.csv_table import HEAD, TABLE, Cells, columns_in, delimiter_in, text_of
from spreadout.data.sources.label_cells import WHOLE
from spreadout.data.sources.table import Table
from spreadout.data.sources.texts import Texts
from spreadout.data.splits import Splits
from spreadout.flower.data import NodeConfig, own_file

AGREED = "columns.toml"  # in the deployed app
NOTE = """# How a node's own table is read, as `spreadout deploy init` found it. Written once: the
# same on every node, and as the server's data were read.
"""
BY_HAND = "python -c \"import numpy as np; np.savez('mine.npz', x=X, y=y, client=who)\""


@dataclass(frozen=True)
class AgreedColumns:
    """What every node must know of the federation's table: no row of it."""

    columns: InputColumns  # how cells become numbers
    classes: tuple[str, ...]  # by number; none: they are the numbers 0, 1, …
    count: int  # how many classes there are

    @classmethod
    def of(cls, experiment: Experiment, splits: Splits) -> AgreedColumns | None:
        """Of the data that a config names; None if they are no table with one class a row."""
        source, train = experiment.data.source, splits.train
        if not isinstance(source, Table | Texts) or source.separator is not None:
            return None
        if train.input_columns is None:
            return None
        return cls(train.input_columns, splits.class_names, train.classes)

    def to_toml(self) -> str:
        plain = {"count": self.count, "classes": list(self.classes)}
        return NOTE + tomli_w.dumps({**plain, "columns": json.dumps(self.columns.as_json())})

    @classmethod
    def read(cls, path: Path) -> AgreedColumns:
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
            columns = InputColumns.from_json(json.loads(found["columns"]))
            assert columns is not None, "it says nothing of columns"
            return cls(columns, tuple(map(str, found["classes"])), int(found["count"]))
        except (OSError, ValueError, KeyError, TypeError, AssertionError):
            raise UserError(
                f"{path}: cannot be read; write the project again with `spreadout deploy init`"
            ) from None


def own_examples(experiment: Experiment, node: NodeConfig, agreed: Path) -> FederatedDataset:
    """What `examples` of `--node-config` names: arrays (`.npz`), or a table like the federation's.

    agreed: the file that says how the table's cells become numbers.
    """
    path = Path(str(node["examples"])).expanduser()
    if path.suffix == ".npz":
        if "classes" not in node:
            raise UserError("--node-config: examples needs classes=N, how many there are in all")
        if not _is_number(str(node["classes"])):
            raise UserError(f"--node-config classes: {node['classes']!r}: must be a whole number")
        return own_file(path, classes=int(float(node["classes"])))
    if TABLE.search(path.name.lower()) is None:
        raise UserError(f"{path}: a node reads .npz, .csv and .tsv; make an .npz of it: {BY_HAND}")
    if not agreed.is_file():
        raise UserError(
            f"{path}: how its cells become numbers must be the same on all nodes, and nothing says it "
            f"here: the config has no table to learn it from. Make an .npz of it: {BY_HAND}"
        )
    try:
        return own_table(path, AgreedColumns.read(agreed), experiment, node.get("client"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file on this node") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read on this node: {error.strerror or error}") from None


def own_table(
    path: Path, agreed: AgreedColumns, experiment: Experiment, client: Any = None
) -> FederatedDataset:
    """A node's rows as the federation has them.

    client: the number of the one client whose rows these are; None: a column says whose each row is.
    """
    source = experiment.data.source
    assert isinstance(source, Table | Texts), "columns are agreed for tables alone"
    text = text_of(path, source.encoding)
    mark = delimiter_in(text[:HEAD], agreed.columns.names, source.delimiter)
    table: dict[str, Cells] = columns_in(text, path, mark)
    for key, name in (
        ("label", source.label),
        ("client", None if client is not None else source.client),
    ):
        if name is not None and name not in table:
            raise UserError(f"{path}: no column {name!r}{near(name, table)} (data.source.{key})")
    if getattr(source, "decimal", ".") == ",":
        table |= {n: pointed(path, n, c) for n, c in table.items() if n in _numbers_in(agreed)}
    encoded, notes = agreed.columns.encode(table, str(path))
    for note in notes:
        log(WARNING, "%s: %s", path, note)
    labels = torch.tensor(_classes_of(path, source.label, table[source.label], agreed))
    numbers, owner = torch.unique(_whose(path, source, table, client, len(labels)), return_inverse=True)
    inputs = encoded if isinstance(encoded, Sparse) else Dense(as_features(encoded))
    columns: dict[str, Column] = {"x": inputs, "y": Dense(labels)}
    found = FederatedDataset.by_owner(columns, owner, agreed.count)
    return replace(found, numbers=numbers, input_columns=agreed.columns)


def _numbers_in(agreed: AgreedColumns) -> list[str]:
    return [column.name for column in agreed.columns.columns if not column.values]


def _classes_of(path: Path, name: str, cells: Cells, agreed: AgreedColumns) -> list[int]:
    """The number of each row's class; a class that the federation does not have is refused."""
    place = {called: number for number, called in enumerate(agreed.classes)}
    place = place or {str(number): number for number in range(agreed.count)}
    found = []
    for line, cell in zip(cells.lines, cells, strict=True):
        plain = str(int(cell.partition(".")[0])) if WHOLE.fullmatch(cell) else cell  # 1.0 is 1
        number = place.get(cell, place.get(plain))
        if number is None:
            known = ", ".join(list(place)[:8]) + (", …" if len(place) > 8 else "")
            raise UserError(f"{path}:{line}: {name} is {cell[:40]!r}, no class of this run ({known})")
        found.append(number)
    return found


def _whose(
    path: Path, source: Table | Texts, table: Mapping[str, Cells], client: Any, rows: int
) -> Tensor:
    """The number of each row's client in the whole federation: (n,)"""
    if client is not None:
        if not _is_number(str(client)):
            raise UserError(f"--node-config client: {client!r}: must be a whole number from 0 on")
        return torch.full((rows,), int(client))
    if source.client is None:
        raise UserError(
            f"{path}: nothing says whose the rows are: put client=N into --node-config, the number of "
            "the node's one client in the whole federation, or name a column by data.source.client"
        )
    cells = table[source.client]
    return torch.tensor(_whole(path, source.client, cells))


def _whole(path: Path, name: str, cells: Cells) -> Sequence[int]:
    for line, cell in zip(cells.lines, cells, strict=True):
        if not _is_number(cell):
            raise UserError(
                f"{path}:{line}: {name} is {cell[:40]!r}: clients of a deployment go by whole numbers "
                "from 0 on, each its own in the whole federation"
            )
    return [int(cell.partition(".")[0]) for cell in cells]


def _is_number(text: str) -> bool:
    return WHOLE.fullmatch(text) is not None and not text.startswith("-")
