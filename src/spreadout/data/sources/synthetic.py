"""Made-up extremes: power-law labels, sparse features that tell them apart, any number of classes.

Every label has a few prototype features and a few companion labels, both drawn by hashing its number,
so that nothing of the size of the label space is ever stored. An instance draws its first label from a
power law, further ones mostly from that label's companions, some prototypes of each label, and noise
features. It is a function of (seed, part, instance number): parts are made in chunks, as a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from spreadout.core import randomness
from spreadout.core.randomness import Bits, Ints
from spreadout.data.io import stored
from spreadout.data.sources.base import RawDataset, Source, from_cache, register_source

CHUNK = 1 << 14
COMPANIONS = 8
FROM_COMPANIONS = 0.7  # share of further labels that are companions of the first
MOST_LABELS = 64


@dataclass(frozen=True)
class Block:
    """Some instances: flat labels and features, and how many of them each instance has."""

    labels: Ints
    label_counts: Ints  # (n,)
    features: Ints
    weights: npt.NDArray[np.float32]
    feature_counts: Ints  # (n,)


@register_source
class Synthetic(Source):
    """A learnable multi-label problem of any size."""

    about: ClassVar = "made-up extremes of any size; nothing to get"
    reads_path: ClassVar = False
    name: str = "synthetic"
    classes: int = Field(1000, ge=2, le=10_000_000)
    features: int = Field(5000, ge=8, le=2**31 - 1)
    examples: int = Field(10_000, ge=1)
    test_examples: int = Field(2_000, ge=1)
    labels_per_example: float = Field(3.0, ge=1, le=16)  # draws; repeated ones fall together
    exponent: float = Field(1.0, ge=0)  # of the power law by which labels fall off; 0: all alike
    prototypes: int = Field(8, ge=1, le=1000)  # features that mark a label
    shown: float = Field(0.6, gt=0, le=1)  # chance that an instance shows each of them
    noise: int = Field(10, ge=0, le=10_000)  # features of no meaning in every instance
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.labels_per_example > self.classes:
            raise ValueError(f"labels_per_example = {self.labels_per_example}: more than the classes")
        return self

    def read(self, path: Path | None) -> RawDataset:
        return from_cache(self, Path(self.name), [], self.store)

    def store(self, folder: Path) -> None:
        """Write both parts chunk by chunk; memory does not grow with their length."""
        parts = {}
        for part, count in (("train", self.examples), ("test", self.test_examples)):
            files = {
                f"{part}.x.ids": stored.ArrayFile(folder / f"{part}.x.ids.npy", np.dtype(np.int32)),
                f"{part}.x.weights": stored.ArrayFile(
                    folder / f"{part}.x.weights.npy", np.dtype(np.float32)
                ),
                f"{part}.x.offsets": stored.ArrayFile(
                    folder / f"{part}.x.offsets.npy", np.dtype(np.int64)
                ),
                f"{part}-labels": stored.ArrayFile(folder / f"{part}-labels.npy", np.dtype(np.int64)),
                f"{part}-sets": stored.ArrayFile(folder / f"{part}-sets.npy", np.dtype(np.int64)),
            }
            for name in (f"{part}.x.offsets", f"{part}-sets"):
                files[name].append(np.zeros(1, dtype=np.int64))
            for chunk in self.chunks(part, count):
                start = files[f"{part}.x.ids"].rows, files[f"{part}-labels"].rows
                files[f"{part}.x.ids"].append(chunk.features)
                files[f"{part}.x.weights"].append(chunk.weights)
                files[f"{part}.x.offsets"].append(start[0] + np.cumsum(chunk.feature_counts))
                files[f"{part}-labels"].append(chunk.labels)
                files[f"{part}-sets"].append(start[1] + np.cumsum(chunk.label_counts))
            for file in files.values():
                file.close()
            tensors = ["ids", "offsets", "weights"]
            parts[part] = {"x": {"kind": "sparse", "tensors": tensors, "width": self.features}}
        unnamed: dict[str, list[str]] = {"class_names": [], "class_ids": [], "notes": []}
        meta = {"classes": self.classes, "row_columns": {}, **unnamed}
        stored.write_index(folder, {**meta, "parts": parts})

    def chunks(self, part: str, count: int, size: int = CHUNK) -> Iterator[Block]:
        """The part's instances in order. A chunk does not depend on how the part is cut."""
        for start in range(0, count, size):
            yield self.chunk(part, np.arange(start, min(start + size, count), dtype=np.int64))

    def chunk(self, part: str, number: Ints) -> Block:
        """The instances with these numbers."""
        owner, labels = self._labels(part, number)
        whose, features = self._features(part, number, owner, labels)
        spread = _uniform(self._bits("weight", part, number[whose], features))
        return Block(
            labels,
            np.bincount(owner, minlength=len(number)),
            features,
            (0.5 + spread).astype(np.float32),
            np.bincount(whose, minlength=len(number)),
        )

    def _labels(self, part: str, number: Ints) -> tuple[Ints, Ints]:
        """Pairs of an instance and one of its labels, distinct and ascending."""
        # A geometric number of further labels has the mean that the config gives.
        more = self.labels_per_example - 1
        ends = _uniform(self._bits("more", part, number))
        further = (
            np.floor(np.log1p(-ends) / np.log(more / (1 + more))) if more else np.zeros(len(number))
        )
        owner, slot = _slots(1 + np.minimum(further, MOST_LABELS - 1).astype(np.int64))
        drawn = self._power_law(self._bits("label", part, number[owner], slot))
        pick = self._bits("companion", part, number[owner], slot)
        related = (_uniform(pick) < FROM_COMPANIONS) & (slot > 0)
        companion = self.companions(drawn[slot == 0][owner], (pick % COMPANIONS).astype(np.int64))
        return _distinct(owner, np.where(related, companion, drawn), self.classes)

    def companions(self, label: Ints, which: Ints) -> Ints:
        """The labels that often come with a label."""
        return self._power_law(self._bits("companions", "", label, which))

    def prototype(self, label: Ints, which: Ints) -> Ints:
        """The features that mark a label."""
        marks = self._bits("prototypes", "", label, which) % np.uint64(self.features)
        return np.asarray(marks, dtype=np.int64)

    def _features(self, part: str, number: Ints, owner: Ints, labels: Ints) -> tuple[Ints, Ints]:
        """Pairs of an instance and one of its features, distinct and ascending."""
        which = np.arange(self.prototypes, dtype=np.int64)
        marks = self.prototype(labels[:, None], which)  # (pairs, P)
        shown = _uniform(self._bits("shown", part, number[owner][:, None], marks)) < self.shown
        slot = np.arange(self.noise, dtype=np.int64)
        noise = self._bits("noise", part, number[:, None], slot) % np.uint64(self.features)
        whose = np.concatenate(
            [
                np.repeat(owner, self.prototypes)[shown.ravel()],
                np.repeat(np.arange(len(number)), self.noise),
            ]
        )
        ids = np.concatenate([marks[shown], noise.astype(np.int64).ravel()])
        return _distinct(whose, ids, self.features)

    def _power_law(self, bits: Bits) -> Ints:
        """Label r with a chance proportional to ∫ x^−exponent over [r + 1, r + 2]: a power law whose
        sums need no table of its size."""
        u, s, top = _uniform(bits), self.exponent, self.classes + 1.0
        rest = 1 - s
        x = top**u if abs(rest) < 1e-9 else (1 + u * (top**rest - 1)) ** (1 / rest)
        return np.minimum(x.astype(np.int64) - 1, self.classes - 1)

    def _bits(self, purpose: str, part: str, *counters: Ints) -> Bits:
        return randomness.bits(randomness.key(self.seed, "synthetic", purpose, part), *counters)


def _slots(counts: Ints) -> tuple[Ints, Ints]:
    """For lists of these lengths: whose each entry is, and its place in the list."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


def _distinct(owner: Ints, value: Ints, width: int) -> tuple[Ints, Ints]:
    """The pairs without repetition, by owner, then value."""
    pairs = np.unique(owner * width + value)
    return pairs // width, pairs % width


def _uniform(bits: Bits) -> npt.NDArray[np.float64]:
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)
