"""A step of a table down its regulariser that cannot overshoot, whatever the table's size.

The server knows its objective R and its whole table, so it need not guess a rate: one trial step gives
the curvature along the gradient, and the step goes a share of the way to the parabola's minimum. That
share means the same for ten classes and a million, any k, any width and any rate on the clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from spreadout.core.rows import along_sphere, project_to_sphere
from spreadout.core.tables import Table, added, rows_here
from spreadout.objectives.regularizers import TableLoss

MOST = 0.3  # radians a row of unit length may move in one step
CHANGE = 4.0  # by which the length of one step may differ from that of the one before
HALVINGS = 20
UNSEEN = 16  # roundings of the loss, up to which it may be that it has not changed


@torch.no_grad()
def descend_(
    table: Table,
    loss: TableLoss,
    value: Callable[[], Tensor],
    *,
    share: float,
    length: float | None = None,
    sphere: bool = True,
) -> float:
    """Move the rows of a loss's gradient, in place, by a share of the step that would be best.

    value: the same loss at the table as it then is. length: what this returned for the step before, a
    first guess, dropped where it leads to no finite loss. Never leaves a table whose loss is larger than
    before; a share above 1 is 1.

    >>> import torch
    >>> from spreadout.objectives import regularizers
    >>> rows = torch.nn.functional.normalize(torch.tensor([[1.0, 0.2], [1.0, 0.0], [1.0, -0.1]]))
    >>> loss = lambda: regularizers.all_pairs(rows, regularizers.HingePenalty(margin=1))
    >>> before = loss()
    >>> length = descend_(rows, before, lambda: loss().value, share=1)
    >>> bool(loss().value < before.value)
    True
    """
    here, gradient = rows_here(table, loss.gradient)
    ids, before = gradient.ids, here[gradient.ids]
    way = -(along_sphere(gradient.values, before) if sphere else gradient.values)  # (m, d)
    # Scores of mined pairs come from a search; those to compare with, of the same pairs, from `value`.
    # Distances of rows that nearly coincide differ between the two by more than a step may gain.
    now = loss.value if loss.neighbours is None else value()
    sums = added(torch.stack([way.square().sum(), way.new_tensor(len(way))]), table)
    # Fetched together, as `tolist` waits for the device.
    fetched: list[float] = torch.stack([*sums, now]).tolist()
    steepness, moving, start = fetched
    length = length if length is not None and 0 < length < math.inf else None
    if not 0 < steepness < math.inf:  # a stationary table, or one that is not finite: nothing to do
        return length or 0.0
    # By it rows move by `MOST` in the mean square; the quotient under one root may be infinite.
    first = MOST * math.sqrt(moving) / math.sqrt(steepness)
    length = length or first

    def move(by: float) -> float:
        step = by * way
        if sphere and by * steepness**0.5 > MOST:  # else no row goes that far
            far = step.norm(dim=-1, keepdim=True).clamp_min(1e-30)
            step = step * (MOST / far).clamp_max(1)
        here[ids] = project_to_sphere(before + step) if sphere else before + step
        return float(value())

    risen = move(length) - start
    if length != first and not math.isfinite(risen):  # so far that numbers overflow
        length = first
        risen = move(length) - start
    bend = 2 * (risen / length + steepness) / length
    if abs(risen) <= UNSEEN * torch.finfo(here.dtype).eps * abs(start):
        # What rounding may have done tells no curvature: by it, lengths would dwindle to 0.
        best = max(length, min(first, CHANGE * length))
    else:
        best = steepness / bend if bend > 0 else CHANGE * length
    best = min(max(best, length / CHANGE), length * CHANGE)
    by = min(share, 1.0) * best
    for _ in range(HALVINGS):
        if move(by) <= start:
            return best
        by /= 2
    here[ids] = before  # it is at its minimum, as far as numbers of this precision tell
    return best
