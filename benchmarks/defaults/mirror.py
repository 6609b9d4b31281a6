"""Which data sets are mirrored and shifted by default: what is seen of their images, set by set.

    python -m benchmarks.defaults.mirror --arrays FOLDER

The folder has a file NAME.npz for each of SETS that is there: x (n, channels, height, width) as bytes
and y (n,), a training part. None of them is part of this repository; `origin` says where they are from.
Larger pictures were cut to their middle square and scaled to 32 pixels a side, as the source
`image-folder` does. `fresh` says for which rules a set was first looked at when they and their limits
stood: "odd parts", or "all", recognition in a mirror too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.common import record
from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from spreadout.core.errors import UserError
from spreadout.data.arrays import as_examples
from spreadout.data.columns import Dense
from spreadout.data.continuity import LIMIT as LEAST
from spreadout.data.continuity import continuity, is_picture
from spreadout.data.handedness import LIMIT, SURE, SURE_OF_ONE, Share, handedness
from spreadout.data.recognition import OF_ONE, PART, Recognition

OUT = RESULTS / "defaults" / "mirror.json"


@dataclass(frozen=True)
class Pictures:
    """A set of pictures, and where it is from."""

    about: str
    origin: str
    fresh: Literal["", "odd parts", "all"] = ""


SETS = {
    "cifar-10": Pictures("photographs, 10 kinds of thing", "github.com/cyizhuo/CIFAR-10-dataset"),
    "cifar-100": Pictures("photographs, 100 kinds", "github.com/cyizhuo/CIFAR-100-dataset"),
    "flowers": Pictures("photographs of flowers", "github.com/martinwestin/flower_classification"),
    "birds": Pictures("photographs, CUB-200-2011", "github.com/cyizhuo/CUB-200-2011-dataset"),
    "cars": Pictures("photographs, Stanford Cars", "github.com/cyizhuo/Stanford-Cars-dataset"),
    "clothing": Pictures("photographs of clothes", "github.com/alexeygrigorev/clothing-dataset-small"),
    "expressions": Pictures("photographs of faces", "github.com/muxspace/facial_expressions"),
    "digits": Pictures("handwritten digits, 8x8", "scikit-learn"),
    "mnist": Pictures("handwritten digits", "github.com/rasbt/mnist-pngs"),
    "omniglot": Pictures("handwritten letters", "github.com/brendenlake/omniglot"),
    "chars": Pictures("letters in photographs, Chars74K", "github.com/rfstdh/100image"),
    "gtsrb": Pictures("traffic signs", "github.com/jovanzac/Traffic"),
    "signs": Pictures("hands that show digits", "github.com/ardamavi/Sign-Language-Digits-Dataset"),
    "fashion": Pictures("900 of Fashion-MNIST", "github.com/zalandoresearch/fashion-mnist, its sprite"),
    "fruits": Pictures("fruits on a turntable, Fruits-360", "github.com/Horea94/Fruit-Images-Dataset"),
    "olivetti": Pictures("40 faces, 10 pictures of each", "github.com/sjgershm/DBM"),
    "pneumonia": Pictures("X-rays of chests, PneumoniaMNIST", "github.com/varun19424/pneumonia_mnist"),
    "cats-dogs": Pictures(
        "photographs of pets",
        "github.com/chanakya2734/Image-classification-using-CNN",
        fresh="odd parts",
    ),
    "fer-2013": Pictures("faces, FER-2013", "github.com/darkbit404/FaceExp", fresh="odd parts"),
    "brain": Pictures(
        "scans of brains", "github.com/KomalChaudhari8/BRAIN_TUMOR_APP", fresh="odd parts"
    ),
    "trash": Pictures(
        "rubbish under a lamp, TrashNet",
        "github.com/congduytran12/Trash-Classification-",
        fresh="odd parts",
    ),
    "asl": Pictures(
        "hands that spell", "github.com/snrao310/ASL-Finger-Spelling-Recognition", fresh="odd parts"
    ),
    "chars-hard": Pictures(
        "Chars74K, its poor pictures", "github.com/rfstdh/100image", fresh="odd parts"
    ),
    "devanagari": Pictures(
        "handwritten letters", "github.com/utkarshk5/devnagri-cnn", fresh="odd parts"
    ),
    "leaves": Pictures(
        "photographs of leaves, PlantDoc", "github.com/pratikkayal/PlantDoc-Dataset", fresh="all"
    ),
    "rooms": Pictures("rooms and houses", "github.com/emanhamed/Houses-dataset", fresh="all"),
    "notmnist": Pictures(
        "letters of many typefaces", "github.com/davidflanagan/notMNIST-to-MNIST", fresh="all"
    ),
    "arabic": Pictures(
        "handwritten letters", "github.com/mloey/Arabic-Handwritten-Characters-Dataset", fresh="all"
    ),
}


def measured(name: str, path: Path) -> dict[str, Any]:
    """What is found in one file of arrays."""
    arrays = np.load(path)
    x, y = as_examples(arrays["x"], arrays["y"])
    found = handedness(x, Dense(y)) if isinstance(x, Dense) else None
    if found is None or not isinstance(x, Dense):
        raise UserError(f"{path}: has too few images of every class")
    return {
        "set": name,
        **asdict(SETS[name]),
        "shape": list(arrays["x"].shape[1:]),
        "images": found.images,
        "classes": found.classes,
        "brightness": _rounded(found.brightness),
        "edges": _rounded(found.edges),
        "recognition": _rounded(found.recognition),
        "mirrored": found.is_none,
        "continuity": round(continuity(x), 4),
        "shifted": is_picture(x),
    }


def _rounded(found: Share | Recognition) -> dict[str, float]:
    return {name: round(value, 4) for name, value in asdict(found).items()}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--arrays", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    a = parser.parse_args()
    found = [
        measured(name, a.arrays / f"{name}.npz") for name in SETS if (a.arrays / f"{name}.npz").exists()
    ]
    if not found:
        raise UserError(f"--arrays {a.arrays}: has none of {', '.join(f'{name}.npz' for name in SETS)}")
    rule = {
        "limit": LIMIT,
        "errors": SURE,
        "errors of one class": SURE_OF_ONE,
        "part lost in the mirror": PART,
        "share lost of one class": OF_ONE,
        "continuity": LEAST,
    }
    record.write(a.out, {"rule": rule, "sets": found})


if __name__ == "__main__":
    command(main)
