"""`SHA256SUMS` of a run folder: what its files must hash to.

`sha256sum -c SHA256SUMS` checks them by hand. From the start it has the config; at the end of the run it
has every file that is read again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from spreadout.core.checksums import digest_of
from spreadout.core.errors import UserError
from spreadout.core.files import write_atomic
from spreadout.runs.claim import CONFIG, SUMS
from spreadout.runs.logs import LOGS, REMEDY


def write_sums(folder: Path, digests: Mapping[str, str]) -> None:
    text = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    write_atomic(folder / SUMS, text.encode())


def read_sums(folder: Path) -> dict[str, str] | None:
    """Digests by file name; None of a folder that has none, as those of earlier versions."""
    try:
        text = (folder / SUMS).read_bytes().decode("ascii")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise UserError(_damaged_sums(folder)) from None
    lines = [_LINE.fullmatch(line) for line in text.split("\n")[:-1]]
    if not all(lines):
        raise UserError(_damaged_sums(folder))
    return {line["name"]: line["digest"] for line in lines if line is not None}


_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,80}"
_LINE = re.compile(rf"(?P<digest>[0-9a-f]{{64}})  (?P<name>{_NAME}(/{_NAME})?)")


def check(folder: Path, *names: str) -> None:
    """Refuse files that are not what was written; a folder without sums is not checked."""
    sums = read_sums(folder)
    if sums is None:
        return
    for name in names:
        if name not in sums:
            raise UserError(_damaged_sums(folder))
        try:
            whole = digest_of(folder / name) == sums[name]
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise UserError(f"{folder / name}: is missing; {remedy_for(folder, name)}") from None
        if not whole:
            raise UserError(
                f"{folder / name}: is damaged or was changed (it does not match {SUMS}); "
                f"{remedy_for(folder, name)}"
            )


def unchecked(folder: Path) -> str | None:
    """What to say of a run folder, or of a comparison, that has no sums."""
    runs = [
        path.parent for path in (folder / CONFIG, *folder.glob(f"*/seed-*/{CONFIG}")) if path.is_file()
    ]
    without = [run for run in runs if not (run / SUMS).is_file()]
    if not without:
        return None
    others = f" and {len(without) - 1} more" if len(without) > 1 else ""
    return f"{without[0]}{others}: no {SUMS}, as in runs of earlier versions; read without a check"


def _damaged_sums(folder: Path) -> str:
    return (
        f"{folder / SUMS}: is damaged; restore it from a copy, or delete it to have the files read "
        "as they are"
    )


def remedy_for(folder: Path, name: str) -> str:
    """What to do about a file that is not what was written."""
    if name == CONFIG:
        return f"put it back, or delete {SUMS} if you meant to change it"
    if name in LOGS:
        return REMEDY
    return f"`spreadout resume {folder}` writes it again from the checkpoint"
