"""Classes and clients by whatever users call them: text, yes and no, numbers from 1 or with gaps.

They are numbered 0 … n−1 and keep their names. Numbers that are 0 … n−1 already are their own names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spreadout.core.errors import UserError
from spreadout.core.randomness import Ints

MISSING = frozenset({"<NA>", "NaT"})  # as pandas writes what is not there
FEW_NUMBERS = 50  # different numbers with fractions that may still be names of classes


def numbered(
    name: str, *parts: Any, known: Sequence[str] = (), counted: int = 0
) -> tuple[list[Ints], tuple[str, ...]]:
    """The values of all parts as numbers 0 … n−1 by ascending value, and what each number is called.

    known: what the first numbers are called already; values that are not among them come after, from
    `counted` on (if there are rows beyond the known ones). No names: the numbers are meant as they are.

    >>> numbered("y", ["b", "a"], ["c"])
    ([array([1, 0]), array([2])], ('a', 'b', 'c'))
    >>> numbered("y", [1, 3, 3])  # no number is skipped: there are two classes
    ([array([0, 1, 1])], ('1', '3'))
    >>> numbered("y", [2, 0, 1])
    ([array([2, 0, 1])], ())
    """
    arrays = [_values(name, part) for part in parts]
    kinds = {array.dtype.kind for array in arrays if array.size}
    if kinds == {"i", "f"}:  # a part that happens to have whole numbers alone
        arrays = [array.astype(np.float64) for array in arrays]
    elif len(kinds) > 1:
        raise UserError(f"{name} is text in one part and numbers in another: give all of it alike")
    every = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
    distinct, codes = np.unique(every, return_inverse=True)
    called = tuple(_called(value) for value in distinct.tolist())
    if not known and every.dtype.kind == "i" and np.array_equal(distinct, np.arange(len(distinct))):
        found, called = every, ()
    elif known:
        place = {one: i for i, one in enumerate(known)}
        new = [one for one in called if one not in place]
        place |= {one: max(len(known), counted) + i for i, one in enumerate(new)}
        found = np.array([place[one] for one in called], dtype=np.int64)[codes]
        called = (*known, *[""] * (max(len(known), counted) - len(known)), *new)
    else:
        found = codes
    cuts = np.cumsum([len(array) for array in arrays])[:-1]
    return list(np.split(found.astype(np.int64), cuts)), called


def _called(value: Any) -> str:
    """1.0 among numbers with fractions is what 1 is in a part without."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def joined(names: Sequence[str], own: Sequence[str], known: int) -> tuple[tuple[str, ...], list[int]]:
    """Names of two parts that begin with the same known ones: all of them, and where the second's are.

    >>> joined(("ash", "fir", "yew"), ("ash", "fir", "elm", "yew"), 2)
    (('ash', 'fir', 'yew', 'elm'), [0, 1, 3, 2])
    """
    every = list(names)
    place = {name: at for at, name in enumerate(every) if at >= known and name}
    places = []
    for at, name in enumerate(own):
        if at >= known and name and name not in place:
            place[name] = len(every)
            every.append(name)
        places.append(place[name] if at >= known and name else at)  # "": a row that nobody has named
    return tuple(every), places


def client_numbers(given: Any) -> tuple[Ints, tuple[str, ...]]:
    """Clients as numbers, and what each is called.

    Whole numbers of which at least half occur are meant as they are: one that never occurs is a client
    without data. With more gaps than that they are names.

    >>> client_numbers([0, 1000, 2000])
    (array([0, 1, 2]), ('0', '1000', '2000'))
    >>> client_numbers([0, 1, 3])
    (array([0, 1, 3]), ())
    """
    (ids,), names = numbered("client", given)
    plain = _values("client", given)
    if plain.dtype.kind != "i" or not names:
        return ids, names
    if plain.min() < 0:
        raise UserError(f"client has the value {plain.min()}: numbers start at 0")
    return (plain, ()) if plain.max() < 2 * len(names) else (ids, names)


def are_whole_numbers(values: Any) -> bool:
    """Whether these are whole numbers, which may be meant as they are."""
    try:
        return np.asarray(values).dtype.kind in "iu"
    except ValueError:
        return False


def _values(name: str, given: Any) -> np.ndarray:
    """One value per example as whole numbers or as text."""
    array = np.asarray(given) if hasattr(given, "__array__") else _listed(given)
    if array.ndim != 1:
        raise UserError(f"{name} has shape {array.shape}: give one value per example")
    if array.dtype.kind == "O":
        array = _of_objects(name, array)
    if array.dtype.kind == "b":
        return np.where(array, "True", "False")
    if array.dtype.kind == "S":
        return np.array([one.decode("utf-8", "replace") for one in array.tolist()])
    if array.dtype.kind == "f":
        return _of_floats(name, array)
    if array.dtype.kind == "u" and array.size and array.max() > np.uint64(2**63 - 1):
        raise UserError(f"{name} has the value {array.max()}: give numbers below 2^63, or text")
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind in "UT":
        return array.astype(str)
    if not array.size:
        return np.empty(0, dtype=np.int64)
    raise UserError(f"{name} has type {array.dtype}: give text, yes and no, or numbers")


def _listed(given: Any) -> np.ndarray:
    """A list as it is: NumPy would turn 1 and "a" into two texts."""
    values = list(given)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array if values else np.empty(0, dtype=np.int64)


def _of_objects(name: str, array: np.ndarray) -> np.ndarray:
    """Python's own values: all text, all yes or no, or all numbers; none missing."""
    values = array.tolist()
    for row, one in enumerate(values):
        if one is None or (isinstance(one, float) and np.isnan(one)) or str(one) in MISSING:
            raise UserError(f"{name} is missing in example {row}: fill it in or drop the example")
    kinds = {"text" if isinstance(v, str | bytes) else type(v).__name__ for v in values}
    if "text" in kinds and len(kinds) > 1:
        other = min(kinds - {"text"})
        raise UserError(f"{name} has text and {other} in one column: give all of it alike")
    if "text" in kinds:
        return np.array([v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values])
    found = np.array(values)
    if found.dtype.kind == "O":
        raise UserError(f"{name} has values of type {min(kinds)}: give text, yes and no, or numbers")
    return found


def _of_floats(name: str, array: np.ndarray) -> np.ndarray:
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise UserError(f"{name} is missing in example {row}: fill it in or drop the example")
    if (array == np.round(array)).all() and (np.abs(array) < 2**53).all():
        return array.astype(np.int64)
    distinct = len(np.unique(array))
    if distinct > FEW_NUMBERS:
        raise UserError(
            f"{name} has {distinct} different numbers with fractions: that is a quantity, and classes "
            "are needed; cut it into ranges (np.digitize), or name another column"
        )
    return array
