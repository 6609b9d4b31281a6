"""The shapes of published sets that made-up ones can take: sizes, labels, and how hard they are.

Sizes and means are those of the extreme-classification repository (Bhatia et al. 2016) and of Table 2 of
Yu et al. 2020; `rare`, `few` and `most` come from the paper that `shares` names, or from the set itself.
`exponent` and `head` are what `label_law.fitted` finds for them; where nothing is published beyond the
means, the law keeps exponent 1 and a head of 10. `shown` and `noise` are what
`benchmarks/papers/shapes.py` found on scaled-down sets, so that a softmax over all classes has about
the published P@1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    """What is asked of a made-up set, and the keys of the source that answer it."""

    features: int
    classes: int
    train: int
    test: int
    per_label: float  # mean instances a label, as published
    per_instance: float  # mean labels an instance, as published
    whole: bool = False  # the published means are over training and test instances
    rare: float | None = None  # share of positives from labels of fewer than 1 in 10,000 instances
    few: float | None = None  # share of labels with at most `upto` instances
    upto: int = 5
    most: float | None = None  # share of instances that have the commonest label
    shares: str = ""  # who says so
    oracle: float | None = None  # published P@1 of a softmax over all classes, in percent
    exponent: float = 1.0
    head: float = 10.0
    shown: float = 0.6
    noise: int = 10

    @property
    def labels(self) -> float:
        """Labels a training instance that give the published number of instances a label."""
        return self.per_label * self.classes / (self.train + (self.test if self.whole else 0))


SHAPES = {
    "amazoncat-13k": Shape(203_882, 13_330, 1_186_239, 306_782, 448.57, 5.04, oracle=92.1),
    "wikilshtc-325k": Shape(1_617_899, 325_056, 1_778_351, 587_084, 17.46, 3.19, oracle=54.1, shown=0.2),
    "amazon-670k": Shape(
        135_909, 670_091, 490_449, 153_025, 3.99, 5.45, oracle=35.2, shown=0.7,
        exponent=1.1, head=5000,  # as those of the smaller Amazon set
    ),
    "eurlex-4k": Shape(5_000, 3_993, 15_539, 3_809, 25.73, 5.31, whole=True),
    "wiki10-31k": Shape(101_938, 30_938, 14_146, 6_616, 8.52, 18.64),
    "lf-amazontitles-131k": Shape(
        40_000, 131_073, 294_805, 134_835, 5.15, 2.29,
        rare=0.7, few=0.7, upto=4, shares="FedMLH, Figure 2b; ECLARE, Figure 1: 60 to 80 % below 5",
        exponent=1.1, head=1000,
    ),
    "lf-wikiseealsotitles-320k": Shape(
        40_000, 312_330, 693_082, 177_515, 4.67, 2.11,
        few=0.7, upto=4, shares="ECLARE, Figure 1: 60 to 80 % below 5", exponent=0.45, head=10,
    ),
    "bibtex": Shape(
        1_836, 159, 4_880, 2_515, 111.71, 2.40, whole=True,
        few=0.0, most=0.142, shares="the set itself", exponent=1.1, head=5,
    ),
    "delicious": Shape(
        500, 983, 12_920, 3_185, 311.61, 19.03, whole=True,
        few=0.0, most=0.402, shares="the set itself", exponent=1.3, head=20,
    ),
}  # fmt: skip


def keys_of(name: str, scale: float = 1.0) -> dict[str, Any]:
    """The keys of the synthetic source that make a set of this shape, or of a part of its size.

    A part keeps the means, the law and the noise. It has fewer labels to tell apart, so it is easier.
    """
    if name not in SHAPES:
        raise ValueError(f"shape = {name!r}: unknown; known: {', '.join(SHAPES)}")
    shape = SHAPES[name]
    return {
        "law": "matched",
        "classes": max(2, round(shape.classes * scale)),
        "features": max(8, round(shape.features * scale)),
        "examples": max(1, round(shape.train * scale)),
        "test_examples": max(1, min(10_000, round(shape.test * scale))),
        "labels_per_example": round(shape.labels, 4),
        "exponent": shape.exponent,
        "head": max(0.5, shape.head * scale),
        "shown": shape.shown,
        "noise": shape.noise,
    }
