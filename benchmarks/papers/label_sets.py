"""How labels meet: the made-up set of EURLex's shape beside what is published, and real sets at hand.

    python -m benchmarks.papers.label_sets     # writes results/fedalc/label-sets.json; seconds

Of EUR-Lex, Loza Mencía & Fürnkranz (2010) publish the sizes of labels and of label sets, and how many
sets are distinct; not which labels meet. How firmly pairs meet can only be compared with the real sets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import write
from benchmarks.papers.correlations import SETS, base_of
from spreadout.config.experiment import Experiment
from spreadout.config.values import overlay, read_toml
from spreadout.data.columns import Lists
from spreadout.data.load import load_data

Whole = npt.NDArray[np.int64]
OFTEN = 10  # instances a label must have for its firmest partner to be looked for
# Figures 2 and 3 there, read off the diagrams, and the text: 19,348 documents, 3,956 descriptors. Counts
# of instances are times 15,539 / 19,348, as a training part of EURLex-4K has them.
PUBLISHED = {
    "labels an instance": 5.31,
    "instances with fewer than 3 labels": 0.021,
    "instances with 4 to 6 labels": 0.809,
    "distinct label sets": 16_467 / 19_348,
    "labels with at most 5 instances": 0.516,
    "commonest label": 0.065,
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--sets", nargs="+", choices=SETS, default=["eurlex-shape", "bibtex", "delicious"]
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "fedalc" / "label-sets.json")
    a = parser.parse_args()
    found = {name: of_training(name) for name in a.sets}
    write(a.out, {"published": PUBLISHED, "sets": found})


def of_training(name: str) -> dict[str, float]:
    """Of the training part of a set, every instance once."""
    together: dict[str, Any] = {"data": {"targets": "all", "partition": {"name": "iid", "clients": 1}}}
    config = Experiment.of(overlay(read_toml(str(base_of(name, linear=True))), together)).data
    train = load_data(config).train
    labels = train.columns["y"]
    assert isinstance(labels, Lists)
    sets = labels.ragged()
    return statistics_of(sets.lengths.numpy(), sets.values.numpy(), train.classes)


def statistics_of(sizes: Whole, label: Whole, classes: int) -> dict[str, float]:
    """Of instances with so many labels each, and their labels one after another.

    >>> found = statistics_of(np.array([2, 2, 1]), np.array([0, 1, 0, 1, 2]), classes=4)
    >>> found["distinct label sets"], found["labels with at most 5 instances"]
    (0.6666666666666666, 1.0)
    """
    n, counts = len(sizes), np.bincount(label, minlength=classes)
    each = np.split(label, np.cumsum(sizes)[:-1])
    held = np.zeros((n, classes), dtype=np.float32)
    held[np.repeat(np.arange(n), sizes), label] = 1
    together = held.T @ held
    np.fill_diagonal(together, 0)
    often = counts >= OFTEN
    firmest = together[often].max(1) / counts[often] if often.any() else np.zeros(1)
    expected = np.outer(counts, counts) / n
    one, other = np.triu_indices(classes, 1)
    meetings = together[one, other]
    lift = meetings / np.maximum(expected[one, other], 1e-9)
    order = np.argsort(lift)
    half = np.searchsorted(np.cumsum(meetings[order]), meetings.sum() / 2)
    return {
        "labels an instance": float(sizes.mean()),
        "instances with fewer than 3 labels": float((sizes < 3).mean()),
        "instances with 4 to 6 labels": float(((sizes >= 4) & (sizes <= 6)).mean()),
        "distinct label sets": len({tuple(sorted(some)) for some in each}) / n,
        "labels with at most 5 instances": float((counts <= 5).mean()),
        "commonest label": float(counts.max()) / n,
        "firmest partner, median": float(np.median(firmest)),
        "a meeting pair beside chance, median": float(lift[order][half]),
    }


if __name__ == "__main__":
    command(main)
