"""Whatever stands in rows that are held out for testing, the trained model is the same, and its config."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.config.sound import prepared
from spreadout.data.load import _places, read

ROWS, CLASSES = 120, 3
DRAWN = np.random.default_rng(0)
LABEL = DRAWN.integers(CLASSES, size=ROWS)
NUMBER = DRAWN.normal(size=(ROWS, 3)) * (1, 50, 1000) + LABEL[:, None]
KIND = DRAWN.integers(3, size=ROWS)
EMPTY = DRAWN.random(ROWS) < 0.2
Writer = Callable[[Path, Collection[int]], None]


def cells(row: int, odd: Collection[int]) -> tuple[float, str, float, str]:
    """A number, one that may be missing, a large one, a word; all others of a row that is odd."""
    changed = row in odd
    one, two, three = NUMBER[row] * (7 if changed else 1)
    missing = EMPTY[row] != changed
    return one, "?" if missing else f"{two}", three, "xyz"[(KIND[row] + changed) % 3]


def table(path: Path, odd: Collection[int]) -> None:
    with path.open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["a", "b", "c", "k", "label"])
        for row in range(ROWS):
            lines.writerow([*cells(row, odd), f"c{LABEL[row]}"])


def texts(path: Path, odd: Collection[int]) -> None:
    rows = [
        f"{'others here' if row in odd else f'w{KIND[row]} v{LABEL[row]}'},c{LABEL[row]}"
        for row in range(ROWS)
    ]
    path.write_text("\n".join(["text,label", *rows, ""]))


def arff(path: Path, odd: Collection[int]) -> None:
    head = "@relation r\n@attribute a real\n@attribute b real\n@attribute c real\n@attribute k {x,y,z}\n"
    rows = [",".join(map(str, cells(row, odd))) + f",c{LABEL[row]}\n" for row in range(ROWS)]
    path.write_text(head + "@attribute class {c0,c1,c2}\n@data\n" + "".join(rows))


def libsvm(path: Path, odd: Collection[int]) -> None:
    found = [cells(row, odd) for row in range(ROWS)]
    path.write_text("".join(f"{LABEL[i]} 1:{one[0]} 4:{one[2]}\n" for i, one in enumerate(found)))


def arrays(path: Path, odd: Collection[int]) -> None:
    x = np.array([cells(row, odd)[::2] for row in range(ROWS)], dtype=np.float32)
    np.savez(path, x=x, y=LABEL)


FORMS: dict[str, tuple[str, Writer]] = {
    "table": ("t.csv", table),
    "texts": ("x.csv", texts),
    "mulan": ("m.arff", arff),
    "libsvm": ("l.txt", libsvm),
    "npz": ("n.npz", arrays),
}


@pytest.mark.parametrize("source", FORMS)
def test_a_model_is_the_same_whatever_held_out_rows_say(source: str, tmp_path: Path) -> None:
    name, write = FORMS[source]
    path = tmp_path / name
    asked = {"rounds": 4, "data": {"source": source, "path": path}, "model": {"dim": 4}}
    e = so.Experiment.of({**asked, "method": {"name": "fedaws"}})
    write(path, ())
    complete, _ = prepared(e)
    train, _, test = _places(complete.data, read(complete.data), e.seed)
    assert test is not None
    told: list[dict[str, Any]] = []
    for odd in ((), set(test.tolist()), {int(train[0])}):
        write(path, odd)
        result = so.run(e, device="cpu")
        assert result.state.round == 4
        told.append({**result.state.dense, **result.state.tables})
    same = [all(torch.equal(told[0][part], other[part]) for part in told[0]) for other in told[1:]]
    assert same == [True, False]  # a row that is trained on does change it


@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("method", ["fedaws", "fedss", "fedmlh", "centralized"])
def test_test_examples_choose_neither_a_setting_nor_a_round(
    method: str, validated: bool, tmp_path: Path
) -> None:
    """A default run against two test parts of one form: the same config, end and model."""
    x = NUMBER.astype(np.float32) / (1, 50, 1000)
    train = so.FederatedDataset.from_arrays(x[:60], LABEL[:60], client=LABEL[:60], classes=CLASSES)
    held = so.Examples.from_arrays(x[60:90], LABEL[60:90]) if validated else None
    told = []
    for shift in (0, 1):
        test = so.Examples.from_arrays(x[90:] * (1 + 6 * shift), (LABEL[90:] + shift) % CLASSES)
        asked = so.Experiment.of({"rounds": 120, "method": {"name": method}, "model": {"dim": 4}})
        two, out = so.Splits("two", train, test, held), tmp_path / str(shift)
        told.append(so.run(asked, data=two, out=out, device="cpu"))
    one, other = told
    assert one.summary["metrics"] != other.summary["metrics"]
    configs = [(tmp_path / name / "config.toml").read_text() for name in "01"]
    assert configs[0] == configs[1]
    assert one.summary["rounds"] == other.summary["rounds"]
    for part in ("dense", "tables"):
        mine, theirs = getattr(one.state, part), getattr(other.state, part)
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
