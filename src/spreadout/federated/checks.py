"""Nothing from a client is trusted: an update is accepted whole or refused with a reason.

`refusal` judges one client's update as a server receives it. `bad_clients` applies the same value
checks to a stack of simulated clients at once; shapes, ids and rounds cannot be wrong there.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from spreadout.federated.rows import SubModel, Tensors, Update

NO_EXAMPLES = "no examples"
NOT_FINITE = "not finite"
NORM_ABOVE_LIMIT = "norm above limit"
WRONG_ROUND = "wrong round"
WRONG_PARTS = "wrong parts"
WRONG_SHAPE = "wrong shape"
WRONG_DTYPE = "wrong dtype"
UNKNOWN_ROWS = "unknown rows"
UNREQUESTED_ROWS = "unrequested rows"
REPEATED_ROWS = "repeated rows"


def refusal(
    update: Update,
    sent: SubModel,
    *,
    table_sizes: Mapping[str, int],
    fixed: frozenset[str] = frozenset(),
    max_norm: float | None = None,
) -> str | None:
    """Why this update must be refused, or None. `sent` is what the client was given this round."""
    if update.round != sent.round:
        return WRONG_ROUND
    if update.examples <= 0:
        return NO_EXAMPLES
    if update.dense.keys() != sent.dense.keys() or update.tables.keys() != sent.tables.keys() - fixed:
        return WRONG_PARTS
    for name, value in update.dense.items():
        if value.shape != sent.dense[name].shape:
            return WRONG_SHAPE
        if value.dtype != sent.dense[name].dtype:
            return WRONG_DTYPE
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
    values = [*update.dense.values(), *(rows.values for rows in update.tables.values())]
    if not all(bool(value.isfinite().all()) for value in values):
        return NOT_FINITE
    if max_norm is not None and float(torch.stack([v.norm() for v in values]).norm()) > max_norm:
        return NORM_ABOVE_LIMIT
    return None


def bad_clients(dense: Tensors, rows: Tensors, max_norm: float | None) -> dict[str, Tensor]:
    """Per reason, which clients of a stack must be refused: (k,) bool, one reason a client."""
    values = [value.flatten(1) for value in [*dense.values(), *rows.values()]]
    broken = ~torch.stack([value.isfinite().all(1) for value in values]).all(0)
    bad = {NOT_FINITE: broken}
    if max_norm is not None:
        norm = torch.stack([value.norm(dim=1) for value in values]).norm(dim=0)
        bad[NORM_ABOVE_LIMIT] = (norm > max_norm) & ~broken
    return bad
