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
    requests: Mapping[str, Ragged],
    device: torch.device,
    augment: Callable[[Tensor], Tensor] | None = None,
) -> dict[str, Tensor]:
    """Every column of every step of every client: (k, S, B, …), and the mask (k, S, B)."""
    at = data.offsets[clients][:, None, None] + plan.index
    batches = {name: column.take(at).to(device) for name, column in data.columns.items()}
    batches["mask"] = plan.mask.to(device)
    for name, table in data.refers.items():
        column = data.columns[name]
        present = column.present(at).to(device) if isinstance(column, Lists) else None
        batches[name] = places_in(requests[table], batches[name], batches["mask"], present)
    if augment is not None:
        batches["x"] = augment(batches["x"])
    return batches


def places_in(rows: Ragged, ids: Tensor, mask: Tensor, present: Tensor | None = None) -> Tensor:
    """For each client, where each of its row ids stands among the rows it asked for.

    rows: k ascending lists; ids: (k, S, B, …); mask: (k, S, B), 0 where a slot is empty and may name
    any row. Ids that are not present (padding) get the place −1.
    """
    held = rows.padded(torch.iinfo(torch.int64).max).to(ids.device)  # (k, m), ascending
    flat = ids.flatten(1).contiguous()
    places = torch.searchsorted(held, flat).clamp_max(max(held.shape[1] - 1, 0))
    missing = (held.gather(1, places) != flat).view(ids.shape)
    padding = ~present if present is not None else torch.zeros_like(missing)
    if bool((missing & ~padding & (mask > 0).view(*mask.shape, *[1] * (ids.dim() - 3))).any()):
        raise ValueError("a method's request leaves out rows that its clients' examples name")
    return torch.where(padding, -1, places.view(ids.shape))
