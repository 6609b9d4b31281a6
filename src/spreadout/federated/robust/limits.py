"""How long an update may be: the running quantile of how long updates are.

Three lengths of each update are looked at: of its dense part, of all its rows of a table together, and
of the row of the table that moved most. After every round each limit goes a part of the way to the
round's own quantile. Hostile clients, as long as they are fewer than 1 − quantile of a cohort, cannot
put a quantile above what some honest client has: only the order of lengths counts, not how long the
longest is. Where a small cohort has more of them by chance, a limit grows by 15 % at most.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from spreadout.core.types import Params, Tensors

PACE = 0.3  # how far a limit goes to a round's quantile …
MOST_GROWTH = 1.5  # … which counts as no more than so many times the limit
DENSE = "dense"
ROWS = "rows/"  # a table's rows together
ROW = "row/"  # the furthest of them
LIMIT = "limit/"  # before the names of limits in what a rule keeps
NONE = -1.0  # the length of rows that a client does not hold


def lengths_of(change: Params, ids: Mapping[str, Tensor]) -> Tensors:
    """By part, a stack's lengths: (k,) each. ids (k, m), −1 for padding."""
    found = {
        DENSE: torch.stack([value.flatten(1).norm(dim=1) for value in change.dense.values()]).norm(dim=0)
    }
    for name, values in change.rows.items():
        each = values.norm(dim=2)  # (k, m), 0 in the padding
        holds = (ids[name] >= 0).any(1)
        nothing = each.new_full((len(each),), NONE)
        furthest = each.amax(1) if each.shape[1] else nothing
        found[ROWS + name] = torch.where(holds, each.norm(dim=1), nothing)
        found[ROW + name] = torch.where(holds, furthest, nothing)
    return found


def quantile_of(lengths: Tensor, quantile: float) -> Tensor | None:
    """The length that so large a share does not exceed, one that was there; None of nobody's."""
    there = lengths[lengths >= 0].sort().values
    return there[int(quantile * (len(there) - 1))] if len(there) else None


def limits_in(memory: Mapping[str, Tensor]) -> Tensors:
    """The limits a rule keeps, by part."""
    return {name.removeprefix(LIMIT): value for name, value in memory.items() if name.startswith(LIMIT)}


def advance_limits_(memory: Tensors, lengths: Mapping[str, Tensor], quantile: float) -> None:
    """Move every limit a part of the way to the quantile of a round; the first round sets it.

    A cohort may by chance have more hostile clients than the quantile allows for. Then a limit grows,
    but by no more than a little: what one round can do, one honest round takes back.
    """
    for part, values in lengths.items():
        found = quantile_of(values, quantile)
        if found is None:
            continue
        before = memory.get(LIMIT + part)
        if before is not None and before > 0:
            found = torch.minimum(found, MOST_GROWTH * before)
            found = (1 - PACE) * before + PACE * found
        if bool(found.isfinite()):
            memory[LIMIT + part] = found


def limited(
    change: Params, lengths: Mapping[str, Tensor], limits: Mapping[str, Tensor], row_limit: float
) -> Params:
    """A stack's changes, each part scaled down to its limit where it is longer."""
    scale = _scale(lengths[DENSE], limits.get(DENSE))
    dense = {name: value * _over(scale, value) for name, value in change.dense.items()}
    rows = {}
    for name, values in change.rows.items():
        together = _scale(lengths[ROWS + name], limits.get(ROWS + name))
        rows[name] = limited_rows(values * _over(together, values), limits.get(ROW + name), row_limit)
    return Params(dense, rows)


def limited_rows(values: Tensor, limit: Tensor | None, row_limit: float) -> Tensor:
    """Rows (…, d), none longer than `row_limit` times what rows usually move."""
    if limit is None or row_limit == 0:
        return values
    return values * _scale(values.norm(dim=-1), row_limit * limit)[..., None]


def _scale(length: Tensor, limit: Tensor | None) -> Tensor:
    """What to multiply by so that nothing is longer than the limit."""
    if limit is None:
        return torch.ones_like(length)
    return (limit / length.clamp_min(1e-30)).clamp_max(1.0)


def _over(scale: Tensor, value: Tensor) -> Tensor:
    return scale.view(-1, *[1] * (value.dim() - 1))
