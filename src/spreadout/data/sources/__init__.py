"""Data sets by the name a config gives them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spreadout.data.sources import arrays, digits, mulan_arff
from spreadout.data.sources.base import Labelled

SOURCES: dict[str, Callable[[Path | None], Labelled]] = {
    "digits": digits.load,
    "bibtex": mulan_arff.load_bibtex,
    "npz": arrays.load,
}
