"""Pickles of plain values and NumPy arrays, read without running anything they name.

Python's unpickler calls what a pickle names. This one hands out stand-ins of its own for the few names a
pickled array has, so that nothing of NumPy is called either, and an array is made only of bytes that are
in the file.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from typing import Any

import numpy as np

KINDS = "biuf"  # truth values, whole numbers, numbers


def read_pickle(raw: bytes) -> Any:
    """The value in a pickle; whatever is wrong with it raises whatever Python raises."""
    _refuse_large_memo(raw)
    found = _Unpickler(io.BytesIO(raw), encoding="latin1").load()
    if isinstance(found, dict):
        return {key: _value(value) for key, value in found.items()}
    return _value(found)


def _refuse_large_memo(raw: bytes) -> None:
    """A pickle may number its values as it likes, and the unpickler keeps a list up to that number."""
    for operation, argument, _ in pickletools.genops(raw):
        if "PUT" in operation.name and isinstance(argument, int) and argument > len(raw):
            raise pickle.UnpicklingError(f"it numbers a value {argument}")


def _value(found: Any) -> Any:
    return found.array if isinstance(found, _Array) else found


class _Array:
    """Stands in for an array while it is built."""

    array: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Type) or not isinstance(raw, bytes | str):
            raise pickle.UnpicklingError("it has an array of something else than numbers")
        held = raw.encode("latin1") if isinstance(raw, str) else raw
        kind = dtype.dtype()
        if math.prod(shape) * kind.itemsize != len(held) or any(length < 0 for length in shape):
            raise pickle.UnpicklingError(f"it has an array of shape {shape} in {len(held)} bytes")
        flat = np.frombuffer(held, dtype=kind)
        self.array = flat.reshape(shape, order="F" if fortran else "C")


class _Type:
    """Stands in for the type of an array's values."""

    def __init__(self, code: Any, *_: Any) -> None:
        self._code, self._order = str(code), "|"

    def __setstate__(self, state: Any) -> None:
        self._order = str(state[1])

    def dtype(self) -> np.dtype[Any]:
        found = np.dtype(self._code)
        if found.kind not in KINDS:
            raise pickle.UnpicklingError(f"it has an array of {self._code[:20]!r}")
        return found.newbyteorder(">") if self._order == ">" else found


class _Marker:
    """Stands in for the class of arrays, which a pickle names and which is never called."""


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """How newer Pythons pickle bytes for old ones."""
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError(f"it encodes in {str(encoding)[:20]!r}")
    return text.encode("latin1")


STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Marker(),
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module[:40]}.{name[:40]}")
        return STAND_INS[module, name]
