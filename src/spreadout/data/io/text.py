"""Numbers out of text at the speed of NumPy: blocks of whole lines, cut at delimiters all at once.

Every published text format here is numbers between delimiters. A block is cut in one pass; which
delimiters stand before and after a token says what it is, so a format's grammar is a mask, and a
malformed line is found by position and named by its number.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import IO, Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from spreadout.core.errors import UserError
from spreadout.core.randomness import Ints

BLOCK = 1 << 24
LONGEST_LINE = 1 << 28
LARGEST = float(np.finfo(np.float32).max)
BOM = b"\xef\xbb\xbf"
NEWLINE = ord("\n")
T = TypeVar("T", bound=Any)  # a dataclass of arrays
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_CHARACTERS = b"0123456789+-.eE"
NUMERIC = np.isin(np.arange(256), list(_CHARACTERS))
_NUMBERS_ONLY = bytes(c if c in _CHARACTERS else ord(" ") for c in range(256))


@dataclass(frozen=True)
class Block:
    """Whole lines of a file, and the number of the first of them (lines count from 1)."""

    name: str  # the file, for errors
    text: bytes
    first_line: int

    def error(self, position: int, problem: str) -> UserError:
        """What is wrong in the line at this position of the block."""
        start = self.text.rfind(b"\n", 0, position) + 1
        number = self.first_line + self.text.count(b"\n", 0, start)
        line = self.text[start : start + 40].split(b"\n")[0].decode("utf-8", "replace")
        return UserError(f"{self.name}:{number}: {problem} in {line!r}")


def blocks(stream: IO[bytes], name: str, *, skip_lines: int = 0, size: int = BLOCK) -> Iterator[Block]:
    """The rest of a stream in blocks of whole lines; a missing last newline is added."""
    line, left = skip_lines + 1, b""
    while chunk := stream.read(size):
        text = left + chunk
        if line == 1:
            text = text.removeprefix(BOM)
        cut = text.rfind(b"\n") + 1
        if not cut:
            if len(text) > LONGEST_LINE:
                raise UserError(f"{name}:{line}: a line of more than {LONGEST_LINE >> 20} MiB")
            left = text
            continue
        left = text[cut:]
        yield Block(name, _unix(text[:cut]), line)
        line += text.count(b"\n", 0, cut)
    if left:
        yield Block(name, _unix(left + b"\n"), line)


def _unix(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in text else text


@dataclass(frozen=True)
class Tokens:
    """The stretches between delimiters."""

    block: Block
    start: Ints  # (t,) position of each token in the block
    end: Ints
    before: npt.NDArray[np.uint8]  # (t,) the delimiter before each token
    after: npt.NDArray[np.uint8]
    line: Ints  # (t,) counted from the block's first line, 0
    lines: int

    def __len__(self) -> int:
        return len(self.start)

    def numbers(self) -> Floats:
        """All tokens as finite numbers."""
        if not len(self):
            return np.empty(0)
        raw = np.frombuffer(self.block.text, dtype=np.uint8)
        plain = int(NUMERIC[raw].sum()) == int((self.end - self.start).sum())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)  # older NumPys only warn
                values = np.fromstring(self.block.text.translate(_NUMBERS_ONLY), np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            self._find_bad()
        if not plain or len(values) != len(self) or not np.isfinite(values).all():
            self._find_bad()
        self.refuse(np.abs(values) > LARGEST, "{} is too large for a 32-bit number")
        return values

    def _find_bad(self) -> NoReturn:
        """Name the first token that is no finite number; only called where there is one."""
        for start, end in zip(self.start.tolist(), self.end.tolist(), strict=True):
            token = self.block.text[start:end]
            try:
                value = float(token)
                if np.isfinite(value) and token.strip(
                    _CHARACTERS
                ):  # what Python reads and the fast way does not: " 1", "1_0"
                    raise ValueError
            except ValueError:
                raise self.block.error(start, f"{_shown(token)} is not a number") from None
            if not np.isfinite(value):
                raise self.block.error(start, f"{_shown(token)} is not a finite number")
        raise self.block.error(0, "cannot read numbers")

    def refuse(self, bad: Mask, problem: str) -> None:
        """Complain about the first token that is marked, if one is; `{}` in the problem is the token."""
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            token = _shown(self.block.text[self.start[at] : self.end[at]])
            raise self.block.error(int(self.start[at]), problem.replace("{}", token))


def cut(block: Block, delimiters: bytes, *, empty: bool = False) -> Tokens:
    """Cut a block at these single-byte delimiters, newlines among them; with or without empty tokens."""
    is_cut = np.zeros(256, dtype=bool)
    is_cut[list(delimiters + b"\n")] = True
    raw = np.frombuffer(block.text, dtype=np.uint8)
    at = np.flatnonzero(is_cut[raw])
    kind = raw[at]
    start = np.concatenate([[0], at[:-1] + 1]) if len(at) else at
    before = np.concatenate([[NEWLINE], kind[:-1]]).astype(np.uint8) if len(at) else kind
    ends_line = kind == NEWLINE
    line = np.cumsum(ends_line) - ends_line
    full = (at > start) | empty
    return Tokens(
        block,
        start[full].astype(np.int64),
        at[full].astype(np.int64),
        before[full],
        kind[full],
        line[full].astype(np.int64),
        int(ends_line.sum()),
    )


def whole(tokens: Tokens, values: Floats, which: Mask, what: str) -> Ints:
    """These tokens' values as whole numbers from 0 up."""
    bad = which.copy()
    chosen = values[which]
    bad[which] = (chosen < 0) | (chosen != np.floor(chosen)) | (chosen >= 2.0**53)
    tokens.refuse(bad, f"{what} {{}} is not a whole number from 0 up")
    return np.asarray(chosen, dtype=np.int64)


def joined(parts: Sequence[T]) -> T:
    """Dataclasses of arrays, one per block, as one."""
    columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(parts[0])}
    whole: T = type(parts[0])(**{name: np.concatenate(pieces) for name, pieces in columns.items()})
    return whole


def _shown(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) < 30 else text[:30] + "…")
