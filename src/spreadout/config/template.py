"""A commented config for a file of the user's own; the rest is chosen for the data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from spreadout.core.errors import UserError, one_line
from spreadout.core.registry import near
from spreadout.methods import METHODS

HISTORIES = "dual_encoder"  # the method that learns from them


def method_for(data: dict[str, object]) -> str:
    """A method that fits the data, where none is named."""
    source = data["source"]
    name = source["name"] if isinstance(source, dict) else source
    histories = str(name).startswith(("movielens", "interactions"))
    return HISTORIES if histories else "fedaws"


def written(data: str, found: dict[str, object], method: str | None = None) -> str:
    """The text of the config. data: a file, a folder or the name of a data set, which was found to be
    this; method: None chooses."""
    method = method or method_for(found)
    if method not in METHODS:
        raise UserError(f"method {method!r}: unknown{near(method, METHODS)}")
    section = tomli_w.dumps({"data": found})
    return f"""# Written by `spreadout init`. Train with: spreadout run THIS-FILE
# What is not said here is chosen for the data when it has been read; config.toml in the run folder
# shows every value. Set any of them here to have it your way: docs/configuration.md.
name = "{_name(data)}"
seed = 0
# rounds = 300           # chosen for the data, unless you say so

# What is trained on. {one_line(said_of(found))}
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
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-") or "run"


def said_of(data: dict[str, object]) -> str:
    """Who the clients are and what is to be told, as far as the file's header says it."""
    source = data["source"]
    if not isinstance(source, dict):
        return "`spreadout data describe THIS-FILE` shows what it looks like."
    if source["name"] == "mulan":
        return f"{source['label']} is what is to be told: every value of it becomes a client."
    if source["name"] in ("table", "texts"):
        told = f"{source['label']} is what is to be told.{_how_read(source)}"
        if "client" in source:
            return f"Each {source['client']} is a client; {told}"
        return (
            f"{told} No column says whose a row is: every label becomes a client (data.source.client)."
        )
    user, item, time = (source[key] for key in ("user", "item", "time"))
    return f"Each {user} is a client; the next {item}, by {time}, is what is to be told."


def _how_read(source: Mapping[str, object]) -> str:
    """What the file's cells were seen to be, so that it can be changed where it is wrong."""
    said = {
        "separator": " A cell of it may be several labels, parted by {!r} (data.source.separator).",
        "decimal": " Numbers have a decimal comma (data.source.decimal).",
        "encoding": " The file is no UTF-8 and is read as {} (data.source.encoding).",
    }
    return "".join(text.format(source[key]) for key, text in said.items() if key in source)
