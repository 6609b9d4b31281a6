"""A small data set of every kind there is, as files that the command line reads."""

from pathlib import Path

import numpy as np
from PIL import Image

KINDS = ("rows", "users", "dense sets", "sparse sets", "images", "histories", "new classes")


def written(kind: str, folder: Path) -> dict[str, object]:
    """Write the files of a data set of this kind; `[data]` of a config that reads them."""
    return {"source": SOURCES[kind], "path": str(WRITERS[kind](folder))}


def _rows(folder: Path, *, users: bool = False) -> Path:
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(5), 12)
    x = rng.normal(size=(len(y), 6)) + 3 * np.eye(5, 6)[y]
    whose = {"client": rng.integers(0, 8, len(y)) * 3} if users else {}
    np.savez(folder / "rows.npz", x=x.astype(np.float32), y=y, **whose)
    return folder / "rows.npz"


def _users(folder: Path) -> Path:
    return _rows(folder, users=True)


def _dense_sets(folder: Path) -> Path:
    """Mulan's form: a table of numbers whose last columns are labels."""
    rng = np.random.default_rng(0)
    labels = rng.random((40, 6)) < 0.35
    labels[np.arange(40), np.arange(40) % 6] = True
    x = labels @ rng.normal(size=(6, 5)) + 0.1 * rng.normal(size=(40, 5))
    head = [f"@attribute x{i} numeric" for i in range(5)]
    head += [f"@attribute label{i} {{0,1}}" for i in range(6)]
    rows = [
        ",".join([*(f"{v:.3f}" for v in a), *("1" if v else "0" for v in b)])
        for a, b in zip(x, labels, strict=True)
    ]
    text = "\n".join(["@relation toy", *head, "@data", *rows]) + "\n"
    (folder / "toy.arff").write_text(text, encoding="utf-8")
    names = "".join(f'<label name="label{i}"></label>' for i in range(6))
    xml = f'<?xml version="1.0" ?><labels xmlns="http://mulan.sourceforge.net/labels">{names}</labels>'
    (folder / "toy.xml").write_text(xml, encoding="utf-8")
    return folder / "toy.arff"


def _sparse_sets(folder: Path) -> Path:
    """The extreme classification repository's form, of so many words that they are looked up."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 48), ("test", 12)):
        lines = [f"{count} 20000 6"]
        for i in range(count):
            labels = sorted({i % 6, int(rng.integers(6))})
            words = sorted({4 * labels[0], 4 * labels[-1] + 1, int(rng.integers(20000))})
            lines.append(",".join(map(str, labels)) + " " + " ".join(f"{w}:1.0" for w in words))
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _images(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("circle", "square", "triangle"):
        (folder / name).mkdir()
        for i in range(6):
            pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def _histories(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    events = ["user,item,time"]
    for user in range(20):
        at = int(rng.integers(12))
        for time in range(9):
            events.append(f"{user},{at},{time}")
            at = (at + 1 + int(rng.random() < 0.2)) % 12
    (folder / "events.csv").write_text("\n".join(events) + "\n", encoding="utf-8")
    return folder / "events.csv"


def _new_classes(folder: Path) -> Path:
    """Products in the form of Stanford's: those of the test part are never trained on."""
    rng = np.random.default_rng(0)
    for part, first in (("train", 1), ("test", 5)):
        lines = ["image_id class_id super_class_id path"]
        for i in range(16):
            name = f"{part}{i}.png"
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(folder / name)
            lines.append(f"{i + 1} {first + i % 4} 1 {name}")
        (folder / f"Ebay_{part}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


WRITERS = {
    "rows": _rows,
    "users": _users,
    "dense sets": _dense_sets,
    "sparse sets": _sparse_sets,
    "images": _images,
    "histories": _histories,
    "new classes": _new_classes,
}
SOURCES: dict[str, object] = {
    "rows": "npz",
    "users": "npz",
    "dense sets": "mulan",
    "sparse sets": "xc-text",
    "images": {"name": "image-folder", "size": 8},
    "histories": "interactions",
    "new classes": {"name": "online-products", "size": 8},
}
