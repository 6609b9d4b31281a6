"""A commented config for a file of the user's own: four answers, and the rest is chosen for the data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from spreadout.core.errors import UserError
from spreadout.core.registry import near
from spreadout.data.sources import SOURCES
from spreadout.data.sources.python import READS
from spreadout.data.sources.table import header_of
from spreadout.methods import METHODS

LABELS = ("label", "class", "target", "y", "species", "category", "kind", "tag")  # columns called so
WHOSE = ("client", "user", "owner", "hospital", "site", "device", "subject", "patient")
TIMES = ("time", "timestamp", "date", "when")
ITEMS = ("item", "product", "movie", "song", "article", "page")
NOBODY = "-"  # in place of a column's name: no column says whose a row is


@dataclass(frozen=True)
class Answers:
    """What a config needs to know; None: as it is found."""

    data: str  # a file, a folder, or the name of a data set
    label: str | None = None  # the column of labels, in a table
    client: str | None = None  # the column that says whose a row is; NOBODY: none does
    method: str | None = None


def guessed(data: str, label: str | None = None, client: str | None = None) -> dict[str, object]:
    """`[data]` for a file or a data set, by its name and its header."""
    path = Path(data).expanduser()
    kind = _kind(data, path)
    where: dict[str, object] = {"path": str(path.absolute())} if path.exists() else {}
    if kind != "table":
        for option, name in (("--label", label), ("--client", client)):
            if name is not None:
                raise UserError(f"{option} {name}: is for tables, and {data} is none; leave it out")
        return {"source": kind, **where}
    delimiter = "\t" if path.name.removesuffix(".gz").endswith(".tsv") else ","
    return {**where, "source": _columns_of(data, header_of(path, delimiter), label, client, delimiter)}


def _kind(data: str, path: Path) -> str:
    """The source that reads it."""
    if data in SOURCES and not path.exists():
        return data
    if not path.exists():
        raise UserError(f"{data}: no such file, and no data set of this name; see `spreadout data list`")
    kind = READS.get(Path(path.name.removesuffix(".gz")).suffix.lower(), "")
    if not kind and not path.is_dir():
        raise UserError(
            f"{data}: its format is not known by its name; set data.source yourself: "
            "`spreadout data list` shows what there is"
        )
    return "image-folder" if path.is_dir() else kind


def _columns_of(
    data: str, names: list[str], label: str | None, client: str | None, delimiter: str
) -> dict[str, object]:
    """`[data.source]` of a table: which of its columns are what."""
    for name in (label, None if client == NOBODY else client):
        if name is not None and name not in names:
            raise UserError(f"{data}: no column {name!r}{near(name, names)}")
    if label is not None and label == client:
        raise UserError(f"--client {client}: is the column of labels too; - where no column says it")
    own = {"delimiter": delimiter} if delimiter != "," else {}
    item, time = (_first(names, words, but=(client,)) for words in (ITEMS, TIMES))
    user = client or _first(names, WHOSE)
    if label is None and user not in (None, NOBODY) and item and time:
        return {"name": "interactions", "user": user, "item": item, "time": time, **own}
    called = (
        label or _first(names, LABELS, but=(client,)) or ([n for n in names if n != client] or names)[-1]
    )
    whose = client or _first(names, WHOSE, but=(called,))
    client_column = {"client": whose} if whose not in (None, NOBODY) else {}
    return {"name": "table", "label": called, **client_column, **own}


def _first(names: Sequence[str], words: Sequence[str], but: Sequence[str | None] = ()) -> str | None:
    """The column that is called by the first of these words, in letters of whatever size."""
    found = {name.casefold(): name for name in names if name not in but}
    return next((found[word] for word in words if word in found), None)


def method_for(data: dict[str, object]) -> str:
    """A method that fits the data, where none is named."""
    source = data["source"]
    name = source["name"] if isinstance(source, dict) else source
    histories = str(name).startswith(("movielens", "interactions"))
    return "dual_encoder" if histories else "fedaws"


def written(answers: Answers) -> str:
    """The text of the config."""
    data = guessed(answers.data, answers.label, answers.client)
    method = answers.method or method_for(data)
    if method not in METHODS:
        raise UserError(f"method {method!r}: unknown{near(method, METHODS)}")
    section = tomli_w.dumps({"data": data})
    return f"""# Written by `spreadout init`. Train with: spreadout run THIS-FILE
# What is not said here is chosen for the data when it has been read; config.toml in the run folder
# shows every value. Set any of them here to have it your way: docs/configuration.md.
name = "{_name(answers.data)}"
seed = 0
# rounds = 300           # chosen for the data, unless you say so

# What is trained on. {_said_of(data)}
{section}
# How. `spreadout presets` shows the others; another name is enough, its rates are chosen too.
[method]
name = "{method}"

# Scores are of a test part. Another part, for validation, says which model is kept and when to stop.
[eval]
split = "test"           # "validation" while you try settings, and for `spreadout sweep`
# keep = "last"          # leave the last model, not the one that validation examples like best

# What people change most; the values are examples.
# [clients]
# per_round = 100        # clients in a round
# batch = 32
# [privacy]              # noise on what clients send: docs/privacy.md
# clip = 1.0
# noise = 1.0
"""


def _name(data: str) -> str:
    """A name for runs: that of the file, without what a name may not have."""
    stem = Path(data).name.split(".")[0]
    return re.sub(r"[^\w-]+", "-", stem).strip("-") or "run"


def _said_of(data: dict[str, object]) -> str:
    source = data["source"]
    if not isinstance(source, dict):
        return "`spreadout data describe THIS-FILE` shows what it looks like."
    if source["name"] == "table" and "client" not in source:
        return "No column says whose a row is: every label becomes a client (data.source.client)."
    if source["name"] == "table":
        return f"Each {source['client']} is a client; {source['label']} is what is to be told."
    return "Each user is a client; the next item is what is to be told."
