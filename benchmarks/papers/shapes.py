"""Made-up sets beside the published ones they stand for: what was asked of their labels and reached.

    python -m benchmarks.papers.shapes                   # writes results/data/shapes.json
    python -m benchmarks.papers.shapes --oracle          # … and what a softmax in one place finds
    python -m benchmarks.papers.shapes --oracle --scale 1 --device cuda   # at full size, on a GPU

Labels are counted at full size. The softmax is trained on sets scaled down, to choose how much of a
label its instances show (`shown`): on validation examples, so that P@1 is near the published one. Its
test P@1 at that choice is what the table quotes. A scaled-down set has as many instances a label and as
many labels an instance as the whole, but fewer labels to tell apart.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.command import command, fraction, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import read, write
from benchmarks.common.timing import alone
from spreadout.config.experiment import Experiment
from spreadout.data.columns import Lists
from spreadout.data.load import DataConfig, load_data
from spreadout.data.sources.label_law import statistics_of
from spreadout.data.sources.shapes import SHAPES
from spreadout.data.sources.synthetic import CHUNK, Synthetic
from spreadout.runs.train import run

Counts = np.ndarray[Any, np.dtype[np.int64]]
SCALES = {"amazoncat-13k": 0.05, "wikilshtc-325k": 0.005, "amazon-670k": 0.005}
SHOWN = (0.2, 0.4, 0.6, 0.8)
LARGEST = "amazon-670k"  # by classes; what writing it costs is measured
REAL = ("bibtex", "delicious")  # sets that are counted themselves, where SPREADOUT_DATA has them


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--oracle", action="store_true", help="train the softmax, too")
    parser.add_argument("--scale", type=fraction, help="of what it is trained on; else as calibrated")
    parser.add_argument("--shown", nargs="+", type=float, default=list(SHOWN))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS / "data" / "shapes.json")
    a = parser.parse_args()
    found = read(a.out) if a.out.exists() else {}
    labels, oracles = found.get("labels", {}), found.get("oracle", {})
    if not a.oracle:
        for name in a.shapes:
            labels[name] = labels_of(name)
            print(name, labels[name]["reached"], flush=True)
        labels = {name: labels[name] for name in SHAPES if name in labels}
        cost = alone(made, LARGEST) if LARGEST in a.shapes else found.get("cost", {})
        write(a.out, {"labels": labels, "cost": cost, "oracle": oracles})
        return
    for name in [name for name in a.shapes if SHAPES[name].oracle is not None]:
        scale = a.scale or SCALES[name]
        key = f"{name} at {scale:g}"
        before = oracles.get(key, {}).get("validation", {})
        oracles[key] = oracle(name, scale, a.shown, a.device, before)
        write(a.out, {"labels": labels, "cost": found.get("cost", {}), "oracle": oracles}, quiet=True)


def labels_of(name: str) -> dict[str, Any]:
    """How often each label occurs at full size, asked and reached."""
    shape, source = SHAPES[name], Synthetic(shape=name)
    counts = counted(source)
    reached = statistics_of(counts, source.examples, shape.upto)
    asked = {
        "instances_per_label": shape.labels * shape.train / shape.classes,
        "labels_per_instance": shape.labels,
        "rare_share": shape.rare,
        "few_share": shape.few,
        "most_frequent": shape.most,
    }  # fmt: skip
    itself = real(name) if name in REAL else None
    drawn = None
    if shape.oracle is not None:  # the law by which those of Yu et al. were made before
        before = counted(source.model_copy(update={"law": "drawn", "exponent": 1.0}))
        drawn = asdict(statistics_of(before, source.examples, shape.upto))
    return {
        "classes": shape.classes,
        "upto": shape.upto,
        "shares": shape.shares,
        "published": {"per_label": shape.per_label, "per_instance": shape.per_instance},
        "exponent": shape.exponent,
        "head": shape.head,
        "asked": asked,
        "reached": asdict(reached),
        "drawn": drawn,
        "real": asdict(statistics_of(itself, shape.train, shape.upto)) if itself is not None else None,
        "quantiles": {"made": quantiles(counts), "real": None if itself is None else quantiles(itself)},
    }


def counted(source: Synthetic) -> Counts:
    """(C,) training instances of each label; no features are made."""
    counts = np.zeros(source.classes, dtype=np.int64)
    for start in range(0, source.examples, CHUNK):
        number = np.arange(start, min(start + CHUNK, source.examples), dtype=np.int64)
        counts += np.bincount(source.labels("train", number)[1], minlength=source.classes)
    return counts


def real(name: str) -> Counts:
    """The same of a set itself."""
    together = {"name": "iid", "clients": 1}
    train = load_data(DataConfig(source=name, targets="all", partition=together)).train
    labels = train.columns["y"]
    assert isinstance(labels, Lists)
    return np.bincount(labels.ragged().values.numpy(), minlength=train.classes)


def quantiles(counts: Counts) -> list[float]:
    return [float(q) for q in np.quantile(counts, [0, 0.1, 0.5, 0.9, 1])]


def made(name: str) -> dict[str, Any]:
    """Seconds of one core, and memory, of writing a whole set, features included."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        Synthetic(shape=name).store(Path(folder))
        seconds = time.process_time() - start
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"shape": name, "seconds": seconds, "memory_mb": own >> 10}


def oracle(
    name: str, scale: float, shown: Sequence[float], device: str, before: Mapping[str, float]
) -> dict[str, Any]:
    """P@1 of a softmax over all classes by how much of a label is shown, and the nearest to it."""
    tried = dict(before)  # what an earlier call found
    for share in shown:
        result = run(_oracle(name, scale, share, "validation"), device=device)
        tried[str(share)] = result.metrics["P@1"]
        print(name, scale, share, tried[str(share)], flush=True)
    wanted = SHAPES[name].oracle or 0.0
    best = min(tried, key=lambda share: abs(tried[share] - wanted))
    experiment = _oracle(name, scale, float(best), "test")
    test = run(experiment, device=device).metrics
    return {
        "published": wanted,
        "scale": scale,
        "validation": tried,
        "shown": float(best),
        "test": {key: test[key] for key in ("P@1", "P@3", "P@5")},
        "config": experiment.model_dump(mode="json", exclude_defaults=True),
    }


def _oracle(name: str, scale: float, shown: float, split: str) -> Experiment:
    return Experiment.of(
        {
            "rounds": 3,
            "chosen": [],
            "data": {
                "source": {"name": "synthetic", "shape": name, "scale": scale, "shown": shown},
                "targets": "each",
                "validation_fraction": 0.05,
            },
            "model": {"encoder": "lookup", "width": 64, "hidden": [], "dim": 64},
            "method": {"name": "centralized", "scale": 20.0},
            "clients": {"local_steps": 150, "batch": 256, "optimizer": "adam", "lr": 0.003},
            "eval": {"every": 3, "split": split, "metrics": ["P@1", "P@3", "P@5"]},
        }
    )


if __name__ == "__main__":
    command(main)
