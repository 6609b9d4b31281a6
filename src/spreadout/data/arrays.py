"""Arrays that users bring, checked: features, classes or sets of them, and whose each example is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.data.columns import Column, Dense, Sparse
from spreadout.data.naming import are_whole_numbers, numbered

SMALLEST, CHANNELS = 8, (1, 3, 4)  # pixels on a side of an image; smaller matrices are features
MOST_GAPS = 100  # a label space this much larger than the labels that occur is a mistake
LARGEST_FEATURE = 2**31 - 1  # ids are kept in 32 bits


def as_examples(x: Any, y: Any) -> tuple[Column, Tensor]:
    """Inputs as `as_inputs` has them and one class per example as int64, checked."""
    inputs, labels = as_inputs(x), whole_numbers("y", y)
    _refuse_unequal(inputs, labels)
    refuse_gaps("y", labels)
    return inputs, labels


def with_label_sets(x: Any, y: Any) -> tuple[Column, Tensor | Ragged]:
    """The same, or with a set of classes per example where some are given as lists."""
    if not has_sets(y):
        return as_examples(x, y)
    lists = [list(one) if _is_set(one) else [one] for one in y]
    named = [label for one in lists for label in one]
    if not named:
        raise UserError("y has no classes at all: give at least one example a class")
    numbers = _classes_of(named)
    refuse_gaps("y", numbers)
    owner = torch.repeat_interleave(torch.arange(len(lists)), torch.tensor([len(one) for one in lists]))
    inputs, sets = as_inputs(x), Ragged.from_pairs(owner, numbers, len(lists))
    _refuse_unequal(inputs, sets)
    return inputs, sets


def has_sets(y: Any) -> bool:
    """Whether some examples have a list of classes each."""
    several = isinstance(y, list | tuple) or (isinstance(y, np.ndarray) and y.dtype == object)
    return several and any(_is_set(one) for one in y)


def with_numbers(y: Any, known: Sequence[str] = (), counted: int = 0) -> tuple[Any, tuple[str, ...]]:
    """Classes that are no whole numbers as numbers, and their names; whole numbers as they are.

    known, counted: names that classes have already, and how many classes there are.
    """
    if has_sets(y):
        lists = [list(one) if _is_set(one) else [one] for one in y]
        flat = [label for one in lists for label in one]
        text = any(isinstance(label, str | bytes) for label in flat)
        if not known and not text:
            return y, ()
        (numbers,), names = numbered("y", flat, known=known, counted=counted)
        found = iter(numbers.tolist())
        return [[next(found) for _ in one] for one in lists], names
    if not known and are_whole_numbers(y):
        _refuse_negative(y)
        return y, ()
    (numbers,), names = numbered("y", y, known=known, counted=counted)
    return numbers, names


def as_inputs(x: Any) -> Column:
    """Inputs checked: numbers (n, …), or sparse vectors, ours or a matrix of SciPy.

    Images have their channels first, bytes of them are pixels; anything else is as it is.
    """
    if isinstance(x, Sparse):
        return x
    if hasattr(x, "tocsr"):
        return from_scipy(x)
    array = _array("x", x)
    features = as_features(array)
    images = _channels_first(features)
    if images is None:
        return Dense(features)
    return as_column(images.to(torch.uint8)) if array.dtype == np.uint8 else Dense(images)


def from_scipy(matrix: Any) -> Sparse:
    """A sparse matrix of SciPy, whichever of its kinds."""
    rows = matrix.tocsr()
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise UserError(f"x is sparse, of shape {rows.shape} and type {rows.dtype}: give numbers (n, …)")
    if not rows.shape[1]:
        raise UserError(f"x has shape {rows.shape}, so no features: give at least one")
    if rows.shape[1] > LARGEST_FEATURE:
        raise UserError(f"x has {rows.shape[1]:,} features: at most {LARGEST_FEATURE:,} are known here")
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused
        ids, weights, offsets = (
            torch.from_numpy(np.array(part, dtype=kind))
            for part, kind in (
                (rows.indices, np.int64),
                (rows.data, np.float32),
                (rows.indptr, np.int64),
            )
        )
    if not bool(weights.isfinite().all()):
        at = int((~weights.isfinite()).nonzero()[0])
        row = int(torch.searchsorted(offsets, at, right=True)) - 1
        raise UserError(f"x has a value that is not finite in example {row}: clean or drop it")
    return Sparse(ids, weights, offsets, int(rows.shape[1]))


def as_column(images: Tensor) -> Dense:
    """Bytes 0 … 255, handed out as −1 … 1."""
    return Dense(images, scale=2 / 255, shift=-1.0)


def _channels_first(features: Tensor) -> Tensor | None:
    """(n, h, w), (n, h, w, channels) or (n, channels, h, w) → (n, channels, h, w); None: no images."""
    sides = tuple(features.shape[1:])
    if len(sides) == 2 and min(sides) >= SMALLEST:
        return features[:, None]
    if len(sides) == 3 and sides[0] not in CHANNELS and sides[2] in CHANNELS:
        return features.movedim(-1, 1).contiguous()
    return features if len(sides) == 3 else None


def _classes_of(named: list[Any]) -> Tensor:
    for label in named:
        if isinstance(label, bool) or not (hasattr(label, "__index__") or _is_whole(label)):
            raise UserError(f"y has {label!r} among its classes: give whole numbers from 0 on")
    return whole_numbers("y", [int(label) for label in named])


def _is_whole(label: Any) -> bool:
    """1.0, as pandas has 1 where other cells are empty."""
    return isinstance(label, float | np.floating) and float(label).is_integer()


def _refuse_negative(y: Any) -> None:
    """-1 may be a class, or say that there is none: that is not guessed."""
    array = np.asarray(y)
    if array.size and array.min() < 0:
        raise UserError(
            f"y has the value {array.min()}: numbers start at 0; if it is a class, give classes as "
            "text, [str(one) for one in y], and if it says that there is none, drop the example"
        )


def _is_set(one: Any) -> bool:
    """Lists, sets, tuples, arrays and tensors that have a length; a number or a text is one class."""
    return hasattr(one, "__len__") and not isinstance(one, str | bytes) and getattr(one, "ndim", 1) == 1


def as_features(x: Any) -> Tensor:
    """Numbers as float32, checked: (examples, …)."""
    array = _array("x", x)
    real = any(np.issubdtype(array.dtype, kind) for kind in (np.floating, np.integer, np.bool_))
    if array.ndim < 2 or not real:
        raise UserError(
            f"x has shape {array.shape} and type {array.dtype}: give numbers of shape (examples, …)"
        )
    if 0 in array.shape[1:]:
        raise UserError(f"x has shape {array.shape}, so no features: give at least one")
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused below
        features = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    refuse_infinite(features)
    return features


def _refuse_unequal(inputs: Column, labels: Tensor | Ragged) -> None:
    if len(inputs) != len(labels):
        raise UserError(f"x has {len(inputs)} examples, y has {len(labels)}: they must agree")
    if not len(labels):
        raise UserError("x and y are empty: give at least one example")


def refuse_infinite(x: Tensor) -> None:
    if not bool(x.isfinite().all()):
        row = int((~x.flatten(1).isfinite()).any(1).nonzero()[0])
        raise UserError(f"x has a value that is not finite in example {row}: clean or drop it")


def refuse_gaps(name: str, numbers: Tensor) -> None:
    """Numbers that go far beyond how many there are would make tables and lists of nothing."""
    distinct, largest = len(torch.unique(numbers)), int(numbers.max()) if len(numbers) else 0
    if largest >= max(MOST_GAPS * distinct, 1_000_000):
        raise UserError(
            f"{name} goes up to {largest}, but only {distinct} numbers occur: number them 0 … n−1"
        )


def refuse_mostly_gaps(labels: Tensor) -> None:
    """A class space that is nearly empty is a mistake in the numbers, unless its size was given."""
    distinct, largest = len(torch.unique(labels)), int(labels.max()) if len(labels) else 0
    if largest >= max(10 * distinct, 100):
        raise UserError(
            f"y goes up to {largest}, but only {distinct} numbers occur: number them 0 … n−1, give them "
            f"as text (they are numbered then, and keep their names), or say classes={largest + 1}"
        )


def _array(name: str, values: Any) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values
        values = values.to_dense() if values.layout is not torch.strided else values
    try:
        return np.asarray(values)
    except ValueError:  # NumPy's own says nothing of which
        raise UserError(f"{name} has rows of different lengths: give an array of one shape") from None


def whole_numbers(name: str, values: Any) -> Tensor:
    array = _array(name, values)
    if array.dtype.kind == "f" and array.ndim == 1 and bool((array == np.trunc(array)).all()):
        array = array.astype(np.int64)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise UserError(
            f"{name} has shape {array.shape} and type {array.dtype}: give one whole number per example"
            + (", or a list of them" if name == "y" else "")
        )
    if array.size and array.min() < 0:
        raise UserError(
            f"{name} has the value {array.min()}: numbers start at 0; "
            f"np.unique({name}, return_inverse=True) numbers whatever values there are"
        )
    if array.size and array.max() > 2**62:
        raise UserError(f"{name} has the value {array.max()}: number them 0 … n−1")
    return torch.from_numpy(array.astype(np.int64))


def class_count(labels: Tensor, classes: int | None) -> int:
    found = int(labels.max()) + 1 if labels.numel() else 0
    if classes is not None and found > classes:
        raise UserError(f"y has the class {found - 1}, but classes = {classes}")
    return found if classes is None else classes
