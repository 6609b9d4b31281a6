"""From a plan to tensors: the cohort's batches, row ids turned into places among a client's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from spreadout.data.columns import Lists
from spreadout.data.federated import FederatedDataset
from spreadout.federated.schedule import Plan
from spreadout.ragged import Ragged


def cohort_batches(
    data: FederatedDataset,
    clients: Tensor,
    plan: Plan,
    ids: Mapping[str, Tensor],
    device: torch.device,
    augment: Callable[[Tensor], Tensor] | None = None,
) -> dict[str, Tensor]:
    """Every column of every step of every client: (k, S, B, …), and the mask (k, S, B).

    ids: per table (k, m), the rows each client asked for, ascending, then −1.
    """
    at = data.offsets[clients][:, None, None] + plan.index
    batches = {name: column.take(at).to(device) for name, column in data.columns.items()}
    batches["mask"] = plan.mask.to(device)
    for name, table in data.refers.items():
        column = data.columns[name]
        present = column.present(at).to(device) if isinstance(column, Lists) else None
        batches[name] = places_in(ids[table], batches[name], batches["mask"], present)
    if augment is not None:
        batches["x"] = augment(batches["x"])
    return batches


def row_ids(requests: Mapping[str, Ragged], device: torch.device) -> dict[str, Tensor]:
    """Per table, the rows each client asked for, side by side: (k, m), −1 after the end."""
    return {table: rows.padded(-1).to(device) for table, rows in requests.items()}


def places_in(rows: Tensor, ids: Tensor, mask: Tensor, present: Tensor | None = None) -> Tensor:
    """For each client, where each of its row ids stands among the rows it asked for.

    rows: (k, m) ascending, then −1; ids: (k, S, B, …); mask: (k, S, B), 0 where a slot is empty and may
    name any row. Ids that are not present (padding) get the place −1.
    """
    places, known = _find(rows, ids.flatten(1))
    missing = ~known.view(ids.shape)
    padding = ~present if present is not None else torch.zeros_like(missing)
    if bool((missing & ~padding & (mask > 0).view(*mask.shape, *[1] * (ids.dim() - 3))).any()):
        raise ValueError("a method's request leaves out rows that its clients' examples name")
    return torch.where(padding, -1, places.view(ids.shape))


def _find(rows: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Where each id stands in its client's rows, and whether it is there at all.

    rows: (k, m) ascending, then −1; ids: (k, n). → two (k, n)
    """
    held = torch.where(rows < 0, torch.iinfo(torch.int64).max, rows).contiguous()
    places = torch.searchsorted(held, ids.contiguous()).clamp_max(max(held.shape[1] - 1, 0))
    return places, (held.gather(1, places) == ids) & (ids >= 0)


def rows_held(
    data: FederatedDataset, clients: Tensor, ids: Mapping[str, Tensor], *, own: bool
) -> dict[str, Tensor]:
    """Which row slots of each client are real: (k, m) bool per table.

    With `own`, also `TABLE.own`, which of them its own examples name, and `TABLE.count` (k,), how many
    rows of the table are anybody's: what the correction of a sampled loss needs.
    """
    held = {table: rows >= 0 for table, rows in ids.items()}
    for table, rows in ids.items() if own else ():
        mine = data.rows_of(clients)[table].padded(-1).to(rows.device)
        held[f"{table}.own"] = _find(mine, rows)[1]
        held[f"{table}.count"] = torch.full(
            (len(clients),), data.classes - data.first_class, device=rows.device
        )
    return held
