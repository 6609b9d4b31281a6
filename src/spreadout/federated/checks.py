"""Nothing from a client is trusted: an update is accepted whole or refused with a reason.

`validate_update` judges one client's update as a server receives it. `invalid_clients` applies the same
value checks to a stack of simulated clients; shapes, ids and rounds cannot be wrong there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from spreadout.core.rows import SubModel, Update
from spreadout.core.types import Tensors

MALFORMED = "malformed"
WRONG_CLIENT = "wrong client"
WRONG_ROUND = "wrong round"
NO_EXAMPLES = "no examples"
TOO_MANY_EXAMPLES = "too many examples"
WRONG_PARTS = "wrong parts"
WRONG_SHAPE = "wrong shape"
WRONG_DTYPE = "wrong dtype"
UNKNOWN_ROWS = "unknown rows"
UNREQUESTED_ROWS = "unrequested rows"
REPEATED_ROWS = "repeated rows"
NOT_FINITE = "not finite"
NORM_ABOVE_LIMIT = "norm above limit"

MOST_EXAMPLES = 2**31 - 1  # a client that claims more wants to own the average


def validate_update(
    update: Update,
    sent: SubModel,
    *,
    client: int,
    table_sizes: Mapping[str, int],
    fixed: frozenset[str] = frozenset(),
    counted: frozenset[str] = frozenset(),
    max_norm: float | None = None,
    max_examples: int | None = None,
    private: bool = False,
) -> str | None:
    """Why this update must be refused, or None. `sent` is what this client was given this round.

    fixed: tables it may not change; counted: tables for whose rows it must report the positives;
    private: whether it tells no loss.
    Whatever a client sends gets an answer, even if it is no update at all.
    """
    try:
        return (
            _wrong_envelope(update, sent, client, max_examples or MOST_EXAMPLES)
            or _wrong_parts(update, sent, fixed)
            or _wrong_rows(update, sent, table_sizes)
            or _wrong_positives(update, counted)
            or _wrong_values(update, max_norm, private)
        )
    except (AttributeError, TypeError, ValueError, RuntimeError, OverflowError):
        return MALFORMED


def _wrong_envelope(update: Update, sent: SubModel, client: int, most: int) -> str | None:
    if update.client != client:
        return WRONG_CLIENT
    if update.round != sent.round:
        return WRONG_ROUND
    if type(update.examples) is not int:
        return MALFORMED
    if update.examples <= 0:
        return NO_EXAMPLES
    return TOO_MANY_EXAMPLES if update.examples > most else None


def _wrong_parts(update: Update, sent: SubModel, fixed: frozenset[str]) -> str | None:
    if update.dense.keys() != sent.dense.keys() or update.tables.keys() != sent.tables.keys() - fixed:
        return WRONG_PARTS
    for name, value in update.dense.items():
        if value.shape != sent.dense[name].shape:
            return WRONG_SHAPE
        if value.dtype != sent.dense[name].dtype:
            return WRONG_DTYPE
    return None


def _wrong_rows(update: Update, sent: SubModel, table_sizes: Mapping[str, int]) -> str | None:
    for name, rows in update.tables.items():
        given = sent.tables[name]
        if rows.ids.dtype != torch.int64 or rows.values.dtype != given.values.dtype:
            return WRONG_DTYPE
        if rows.ids.dim() != 1 or rows.values.shape != (len(rows), *given.values.shape[1:]):
            return WRONG_SHAPE
        if bool(((rows.ids < 0) | (rows.ids >= table_sizes[name])).any()):
            return UNKNOWN_ROWS
        if not bool(torch.isin(rows.ids, given.ids).all()):
            return UNREQUESTED_ROWS
        if torch.unique(rows.ids).numel() != len(rows):
            return REPEATED_ROWS
    return None


def _wrong_positives(update: Update, counted: frozenset[str]) -> str | None:
    if update.positives.keys() != counted:
        return WRONG_PARTS
    for name, counts in update.positives.items():
        if counts.dtype != torch.int64:
            return WRONG_DTYPE
        if counts.shape != (len(update.tables[name]),):
            return WRONG_SHAPE
        if bool((counts < 0).any()):
            return MALFORMED
        if bool((counts > update.examples).any()):
            return TOO_MANY_EXAMPLES
    return None


def _wrong_values(update: Update, max_norm: float | None, private: bool) -> str | None:
    values = [*update.dense.values(), *(rows.values for rows in update.tables.values())]
    if any(value.layout != torch.strided for value in values):
        return MALFORMED
    norm = float(torch.stack([value.norm() for value in values]).norm())
    # What enters a sum is the value times its weight: that must fit its type as well.
    lossless = private or math.isfinite(update.loss)
    if not lossless or not norm * update.examples <= _most(values):
        return NOT_FINITE
    return NORM_ABOVE_LIMIT if max_norm is not None and norm > max_norm else None


def invalid_clients(
    dense: Tensors, rows: Tensors, loss: Tensor, examples: Tensor, max_norm: float | None
) -> dict[str, Tensor]:
    """Per reason, which clients of a stack must be refused: (k,) bool, one reason a client."""
    values = [value.reshape(len(loss), -1) for value in [*dense.values(), *rows.values()]]
    norm = torch.stack([value.norm(dim=1) for value in values]).norm(dim=0)  # (k,)
    broken = ~(loss.isfinite() & (norm * examples <= _most(values)))  # NaN compares false
    bad = {NOT_FINITE: broken}
    if max_norm is not None:
        bad[NORM_ABOVE_LIMIT] = (norm > max_norm) & ~broken
    return bad


def _most(values: list[Tensor]) -> float:
    return min(torch.finfo(value.dtype).max for value in values)
