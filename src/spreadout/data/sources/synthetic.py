"""Made-up extremes: power-law labels, sparse features that tell them apart, any number of classes.

Every label has a few prototype features, drawn by hashing its number, so that nothing of the size of the
label space is ever stored. An instance shows some prototypes of each of its labels, and noise features.
Its labels follow one of two laws. `law = "drawn"`: the first label is drawn from a power law, further
ones mostly from companions of that label, again hashes. `law = "matched"`: every label has an exact
number of instances (`label_law.py`, `label_slots.py`), as in a published set (`shapes.py`). An instance
is a function of (seed, part, its number): parts are made in chunks, as a stream.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from spreadout.core import randomness
from spreadout.core.randomness import Bits, Ints
from spreadout.data.io import stored
from spreadout.data.sources import shapes
from spreadout.data.sources.base import RawDataset, Source, from_cache, register_source
from spreadout.data.sources.label_slots import GROUP, MOST, LabelSlots, slots

CHUNK = 1 << 14
COMPANIONS = 8
ROUNDED = 0.05  # labels an instance, by which published figures of a set may differ
FROM_COMPANIONS = 0.7  # share of further labels that are companions of the first
MOST_LABELS = 64
THREADS = 8  # chunks that are made at once, at most


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
    shape: str | None = None  # of a published set; it sets what is not set beside it
    scale: float = Field(1.0, gt=0, le=1)  # of the shape: so much of its classes, features and instances
    law: Literal["drawn", "matched"] = "drawn"  # labels by chance, or an exact number of each
    labels_per_example: float = Field(3.0, ge=1, le=64)  # drawn: repeated ones fall together
    exponent: float = Field(1.0, ge=0)  # of the power law by which labels fall off; 0: all alike
    head: float = Field(10.0, gt=0)  # matched: about so many labels are alike at the top
    least: float = Field(1.0, ge=0)  # matched: instances that every label has
    sizes: tuple[float, ...] | None = None  # matched: shares of those with 1, 2, … labels; geometric
    kin: int = Field(GROUP, ge=2)  # matched: labels that mostly meet each other, at least so many
    prototypes: int = Field(8, ge=1, le=1000)  # features that mark a label
    shown: float = Field(0.6, gt=0, le=1)  # chance that an instance shows each of them
    noise: int = Field(10, ge=0, le=10_000)  # features of no meaning in every instance
    seed: int = Field(0, ge=0)

    read_if: ClassVar = {
        "head": ({"law": ("matched",)},),
        "least": ({"law": ("matched",)},),
        "sizes": ({"law": ("matched",)},),
        "kin": ({"law": ("matched",)},),
    }

    @model_validator(mode="before")
    @classmethod
    def _shaped(cls, values: Any) -> Any:
        """What the shape says of keys that are not given."""
        if not isinstance(values, dict) or values.get("shape") is None:
            return values
        scale = values.get("scale", 1.0)
        if not isinstance(scale, int | float) or not 0 < scale <= 1:
            return values  # refused by the field itself
        return {**shapes.keys_of(str(values["shape"]), float(scale)), **values}

    @model_validator(mode="before")
    @classmethod
    def _sized(cls, values: Any) -> Any:
        """Sizes of label sets say how many labels there are in the mean."""
        if not isinstance(values, dict) or "labels_per_example" in values:
            return values
        mean = _mean_of(values.get("sizes"))
        return values if mean is None else {**values, "labels_per_example": mean}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.scale != 1 and self.shape is None:
            raise ValueError(f"scale = {self.scale}: is of a shape; give classes and examples instead")
        if self.labels_per_example > self.classes:
            raise ValueError(f"labels_per_example = {self.labels_per_example}: more than the classes")
        if self.sizes is not None and not (sum(self.sizes) > 0 and min(self.sizes) >= 0):
            raise ValueError("sizes: shares of instances with 1, 2, … labels; none below 0, some above")
        if self.sizes is not None and len(self.sizes) > min(self.classes, MOST):
            few = self.classes < MOST
            why = f"and there are {self.classes} classes" if few else f"and {MOST} are the most"
            raise ValueError(f"sizes: go up to {len(self.sizes)} labels, {why}")
        mean = _mean_of(self.sizes)
        if mean is not None and abs(mean - self.labels_per_example) > ROUNDED:
            raise ValueError(
                f"sizes: {mean:.3g} labels an instance in the mean, and labels_per_example = "
                f"{self.labels_per_example:g}; leave that out, or let both say the same"
            )
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
        """The part's instances in order. A chunk does not depend on how the part is cut.

        Several are made at once, in threads: NumPy lets others run while it works on large arrays.
        """
        numbers = (
            np.arange(start, min(start + size, count), dtype=np.int64) for start in range(0, count, size)
        )
        ahead = min(THREADS, os.cpu_count() or 1)
        with ThreadPoolExecutor(ahead) as pool:
            begun: deque[Future[Block]] = deque()
            for some in numbers:
                begun.append(pool.submit(self.chunk, part, some))
                if len(begun) > ahead:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()

    def chunk(self, part: str, number: Ints) -> Block:
        """The instances with these numbers."""
        owner, labels = self.labels(part, number)
        whose, features = self._features(part, number, owner, labels)
        spread = _uniform(self._bits("weight", part, number[whose], features))
        return Block(
            labels,
            np.bincount(owner, minlength=len(number)),
            features,
            (0.5 + spread).astype(np.float32),
            np.bincount(whose, minlength=len(number)),
        )

    @property
    def _matched(self) -> LabelSlots:
        return LabelSlots(
            self.classes,
            self.examples,
            self.labels_per_example,
            self.exponent,
            self.head,
            self.least,
            self.seed,
            self.sizes or (),
            self.kin,
        )

    def labels(self, part: str, number: Ints) -> tuple[Ints, Ints]:
        """Pairs of an instance and one of its labels, distinct and ascending."""
        if self.law == "drawn":
            return self._drawn_labels(part, number)
        matched = self._matched
        pairs = matched.training(number) if part == "train" else matched.others(part, number)
        return matched.distinct(part, number, *pairs)

    def _drawn_labels(self, part: str, number: Ints) -> tuple[Ints, Ints]:
        # A geometric number of further labels has the mean that the config gives.
        more = self.labels_per_example - 1
        ends = _uniform(self._bits("more", part, number))
        further = (
            np.floor(np.log1p(-ends) / np.log(more / (1 + more))) if more else np.zeros(len(number))
        )
        owner, slot = slots(1 + np.minimum(further, MOST_LABELS - 1).astype(np.int64))
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


def _distinct(owner: Ints, value: Ints, width: int) -> tuple[Ints, Ints]:
    """The pairs without repetition, by owner, then value."""
    pairs = np.unique(owner * width + value)
    return pairs // width, pairs % width


def _uniform(bits: Bits) -> npt.NDArray[np.float64]:
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _mean_of(sizes: Any) -> float | None:
    """The mean of 1, 2, … with these shares; None where they are none, or no shares."""
    try:
        shares = np.asarray(sizes, dtype=np.float64)
    except (TypeError, ValueError):
        return None  # refused by the field itself
    if shares.ndim != 1 or not shares.sum() > 0:
        return None
    return float(shares @ np.arange(1, len(shares) + 1) / shares.sum())
