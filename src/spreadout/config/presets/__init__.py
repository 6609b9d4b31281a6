"""Configs by name: those that ship with the package, beside this file, and those of the user's own.

A name is the place of the file: `digits-fedaws`, or `fedmlh/bibtex` for a paper's table. Every method
that trains on labelled inputs has one, `digits-METHOD`.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from spreadout.core.errors import UserError
from spreadout.core.registry import Registry


@dataclass(frozen=True)
class Preset:
    """The text of a config; its first line, a comment, says what it is."""

    text: str
    home: str  # the module that registered it

    def __post_init__(self) -> None:  # by which the registry tells two of one name apart
        object.__setattr__(self, "__module__", self.home)

    @property
    def about(self) -> str:
        head = self.text.lstrip().partition("\n")[0]
        return head.lstrip("# ") if head.startswith("#") else ""


OWN: Registry[Preset] = Registry("preset")


def register_preset(name: str, config: str | Path) -> None:
    """Make a config known by name: to `spreadout presets`, and wherever a preset may be named.

    config: a TOML file, or the text of one. A comment in its first line says what it is.

    >>> import spreadout as so
    >>> so.register_preset("two-rounds", '''
    ... # FedAwS on digits, as short as can be
    ... rounds = 2
    ... data.source = "digits"
    ... ''')
    >>> so.Experiment.load("two-rounds").rounds
    2
    """
    is_text = isinstance(config, str) and ("\n" in config or "=" in config)
    if not name or "=" in name or name.endswith(".toml"):
        raise UserError(f"preset {name!r}: is no name for a preset; choose another")
    if name in _shipped():
        raise UserError(f"preset {name!r}: spreadout has that name; choose another")
    try:
        text = str(config) if is_text else Path(config).expanduser().read_text(encoding="utf-8")
        tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"preset {name!r}: {config} cannot be read ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"preset {name!r}: not valid TOML ({error})") from None
    OWN.add(name, Preset(text, str(sys._getframe(1).f_globals.get("__name__"))))


def presets() -> dict[str, str]:
    """All presets, the user's own last: name → what it is."""
    every = {**_shipped(), **{name: OWN[name] for name in OWN}}
    return {name: preset.about for name, preset in every.items()}


def grouped() -> dict[str, dict[str, str]]:
    """The same by what they are for, what most people look for first: title → name → what it is."""
    titles = ("One for every method", "Tables of the papers", "For benchmarks and attacks", "Your own")
    found: dict[str, dict[str, str]] = {title: {} for title in titles}
    for name, about in presets().items():
        folder, _, last = name.rpartition("/")
        inner = folder in ("attacks", "drift") or last == "speed" or last.startswith("tuning-")
        found[titles[3 if name in OWN else 2 if inner else 1 if folder else 0]][name] = about
    return {title: some for title, some in found.items() if some}


def preset_text(name: str) -> str | None:
    """The config of this name; None if there is none."""
    found = OWN[name] if name in OWN else _shipped().get(name)
    return None if found is None else found.text


def preset_beside(name: str, file: str) -> str | None:
    """The preset that a preset names by a file beside its own; None if there is none."""
    place = f"{name.rpartition('/')[0]}/{file.removesuffix('.toml')}".lstrip("/")
    return place if preset_text(place) is not None else None


def _shipped() -> dict[str, Preset]:
    return _files(resources.files(__name__))


def _files(folder: Traversable, prefix: str = "") -> dict[str, Preset]:
    """Those of a folder, then those of the folders in it."""
    inside = sorted(folder.iterdir(), key=lambda file: file.name)
    found = {
        prefix + file.name.removesuffix(".toml"): Preset(file.read_text(encoding="utf-8"), __name__)
        for file in inside
        if file.name.endswith(".toml")
    }
    for inner in inside:
        if inner.is_dir() and not inner.name.startswith("_"):
            found |= _files(inner, f"{prefix}{inner.name}/")
    return found
