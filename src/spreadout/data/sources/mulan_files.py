"""Which files make up a data set in Mulan's or MEKA's ARFF, by how their publishers name them.

`NAME-train.arff` and `NAME-test.arff`, or one `NAME.arff`; `-sparse` may stand in any of these names and
`_` for `-`. `NAME.xml` names the labels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from spreadout.core.errors import UserError
from spreadout.data.io.archive import Archive

_ARFF = re.compile(r"(.*)\.arff(\.gz|\.bz2)?", re.IGNORECASE | re.DOTALL)
Part = Literal["train", "test", "all"]


@dataclass(frozen=True)
class ArffName:
    """What the name of an .arff file says about it."""

    file: str
    base: str
    part: Part
    sparse: bool

    @classmethod
    def of(cls, file: str) -> ArffName | None:
        match = _ARFF.fullmatch(PurePosixPath(file).name)
        if match is None:
            return None
        words = re.split(r"[-_]", match[1].casefold())
        part: Part = "train" if "train" in words else "test" if "test" in words else "all"
        base = "-".join(word for word in words if word not in (part, "sparse"))
        return cls(file, base, part, "sparse" in words)


def pair(names: Sequence[ArffName], wanted: ArffName | None) -> tuple[str, str | None]:
    """The file to train on, and the one to test on; `wanted` is the one a user has named."""
    if wanted is not None:
        if wanted.part != "train":
            return wanted.file, None
        test = _first(names, wanted.base, "test", like=wanted.sparse)
        return wanted.file, test
    base = names[0].base
    train, test, whole = (_first(names, base, part) for part in ("train", "test", "all"))
    if train is not None and test is not None:
        return train, test
    return whole or train or test or names[0].file, None


def _first(names: Sequence[ArffName], base: str, part: str, like: bool = False) -> str | None:
    """The file of this part; where there is a sparse and a dense one, they hold the same."""
    found = [name for name in names if (name.base, name.part) == (base, part)]
    found.sort(key=lambda name: (name.sparse != like, name.file))
    return found[0].file if found else None


def one_base(archive: Archive) -> list[ArffName]:
    """The .arff files of the one data set that is here."""
    names = [name for file in archive.names if (name := ArffName.of(file)) is not None]
    if not names:
        raise UserError(f"{archive.path}: holds no .arff file")
    bases = {name.base for name in names}
    if len(bases) > 1:
        bases &= {_stem(file) for file in xml_files(archive)}
    if len(bases) != 1:
        found = ", ".join(name.file for name in names[:4])
        raise UserError(
            f"{archive.path}: holds more than one data set ({found}); name the .arff file in data.path"
        )
    return [name for name in names if name.base in bases]


def xml_files(archive: Archive, base: str | None = None) -> list[str]:
    """The XML files that may name the labels; the one of the same name, where there is one."""
    files = [name for name in archive.names if name.lower().endswith(".xml")]
    same = [name for name in files if _stem(name) == base]
    return same if len(same) == 1 else files


def _stem(file: str) -> str:
    return PurePosixPath(file).stem.casefold().replace("_", "-")
