"""Multi-label data in Mulan's ARFF (sparse or dense rows), the labels named by an XML file beside it.

https://mulan.sourceforge.net/format.html. Known by name: `bibtex` (Katakis et al. 2008), 1,836 binary
features, 159 labels, 4,880 + 2,515 instances.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch
from torch import Tensor

from spreadout.data.sources.base import Labelled, data_file
from spreadout.errors import UserError
from spreadout.ragged import Ragged

_ATTRIBUTE = re.compile(r"@attribute\s+('(?:[^'\\]|\\.)*'|\"[^\"]*\"|\S+)", re.IGNORECASE)


def load_bibtex(path: Path | None) -> Labelled:
    folder = data_file("bibtex", path, "bibtex")
    names = label_names(folder / "bibtex.xml")
    x, labels = read(folder / "bibtex-train.arff", names)
    return Labelled(x, labels, len(names), test=read(folder / "bibtex-test.arff", names))


def label_names(path: Path) -> list[str]:
    """The label attributes' names, in the XML's order: label i is the i-th."""
    try:
        root = ElementTree.parse(path).getroot()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; it names the labels of Mulan data") from None
    except ElementTree.ParseError as error:
        raise UserError(f"{path}: not well-formed XML ({error})") from None
    return [str(node.get("name")) for node in root.iter() if node.tag.endswith("label")]


def read(path: Path, label_names: list[str]) -> tuple[Tensor, Ragged]:
    """Features (n, features) float32 and label sets of one ARFF file."""
    attributes, rows, first_line = _sections(path)
    place = {name: i for i, name in enumerate(attributes)}
    missing = [name for name in label_names if name not in place]
    if missing:
        raise UserError(f"{path}: no attribute for the label {missing[0]!r} named in the XML")
    labels = np.array([place[name] for name in label_names])
    features = np.setdiff1d(np.arange(len(attributes)), labels)
    values = np.zeros((len(rows), len(attributes)), dtype=np.float32)
    for i, row in enumerate(rows):
        try:
            _fill(values[i], row)
        except (ValueError, IndexError):
            shown = row if len(row) < 40 else row[:40] + "…"
            raise UserError(
                f"{path}:{first_line[i]}: cannot read the row {shown!r} of {len(attributes)} attributes"
            ) from None
    bad = np.flatnonzero(~np.isfinite(values).all(1))
    if bad.size:
        raise UserError(f"{path}:{first_line[bad[0]]}: a value is not finite")
    instance, label = np.nonzero(values[:, labels])
    sets = Ragged.from_pairs(torch.from_numpy(instance), torch.from_numpy(label), len(rows))
    return torch.from_numpy(values[:, features]), sets


def _sections(path: Path) -> tuple[list[str], list[str], list[int]]:
    """Attribute names, data rows, and each row's line number."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    attributes, rows, numbers = [], [], []
    in_data = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("%"):
            continue
        if in_data:
            rows.append(line)
            numbers.append(number)
        elif line.lower().startswith("@data"):
            in_data = True
        elif match := _ATTRIBUTE.match(line):
            attributes.append(match[1].strip("'\"").replace("\\'", "'"))
    if not in_data:
        raise UserError(f"{path}: no @data section; the file may be cut short")
    return attributes, rows, numbers


def _fill(values: np.ndarray, row: str) -> None:
    if not row.startswith("{"):
        numbers = row.split(",")
        if len(numbers) != len(values):
            raise ValueError
        values[:] = [float(number) for number in numbers]
        return
    if not row.endswith("}"):
        raise ValueError
    inside = row[1:-1].strip()
    for pair in inside.split(",") if inside else []:
        at, value = pair.split()
        if int(at) < 0:
            raise ValueError
        values[int(at)] = float(value)
