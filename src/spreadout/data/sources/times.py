"""When things happened, as numbers that sort: seconds, nanoseconds, or ISO dates with their zones."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from spreadout.core.errors import UserError

ISO_DATE = re.compile(rb"\d{4}-\d{2}-\d{2}")
NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_order(path: Path | str, time: np.ndarray) -> np.ndarray:
    """Times as something that sorts: whole numbers, numbers, or ISO dates as microseconds."""
    if time.dtype.kind == "M":
        return time.astype("datetime64[us]").astype(np.int64)
    if time.dtype.kind == "f":
        _refuse_time(path, time, ~np.isfinite(time))
    if time.dtype.kind != "S":
        return time
    if time.dtype.itemsize <= 19 and np.char.isdigit(time).all():
        try:
            return time.astype(np.int64)  # nanoseconds since 1970 do not fit a float
        except (OverflowError, ValueError):
            pass
    if ISO_DATE.match(time[0]):
        return np.array([_moment(path, i, value) for i, value in enumerate(time.tolist())])
    try:
        numbers = time.astype(np.float64)
    except ValueError:
        words = np.array([not NUMBER.fullmatch(value) for value in time.tolist()])
        _refuse_time(path, time, words if words.any() else ~words)
    _refuse_time(path, time, ~np.isfinite(numbers))
    return numbers


def _moment(path: Path | str, row: int, value: bytes) -> int:
    """Microseconds since 1970 of an ISO date; without a zone it counts as UTC."""
    try:
        moment = datetime.fromisoformat(value.decode())
    except ValueError:
        _refuse_time(path, np.array([value]), np.array([True]), row)
        raise
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)


def _refuse_time(path: Path | str, time: np.ndarray, bad: np.ndarray, row: int = 0) -> None:
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        shown = time[at].decode("utf-8", "replace") if isinstance(time[at], bytes) else str(time[at])
        raise UserError(
            f"{path}: data row {row + at + 1}: time {shown!r} is neither a number nor an ISO date "
            "(2024-05-31 …)"
        )
