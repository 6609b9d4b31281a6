"""From a plan to tensors: the cohort's batches, row ids turned into places among a client's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.types import Counted, RowInfo
from spreadout.data.columns import Lists, Sparse, ragged_places
from spreadout.data.dataset import FederatedDataset
from spreadout.federated.schedule import Plan


@dataclass(frozen=True)
class StepByStep:
    """Sparse features made dense one step at a time: all steps of a client at once may be too much."""

    column: Sparse
    at: Tensor  # (k, S, B) examples, or (S, B) of one client
    device: torch.device

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.at.shape, self.column.width))

    def __getitem__(self, place: Any) -> Any:
        """Like a tensor (k, S, B, width): of one client, or of one step."""
        found = self.at[place]
        if isinstance(place, int) and self.at.dim() == 3:
            return StepByStep(self.column, found, self.device)
        return self.column.take(found).to(self.device)


def cohort_batches(
    data: FederatedDataset,
    clients: Tensor,
    plan: Plan,
    ids: Mapping[str, Tensor],
    device: torch.device,
    augment: Callable[[Tensor], Tensor] | None = None,
) -> dict[str, Tensor]:
    """Every column of every step of every client: (k, S, B, …), and the mask (k, S, B).

    ids: per table (k, m), the rows each client requested, ascending, then −1.
    """
    at = data.offsets[clients][:, None, None] + plan.index
    batches = {"mask": sent(plan.mask, device)}
    for name, column in data.columns.items():
        if isinstance(column, Sparse) and name in data.row_columns:
            batches[name] = over_rows(column, at, plan.mask, ids[data.row_columns[name]])
        elif isinstance(column, Sparse) and augment is None:
            batches[name] = StepByStep(column, at, device)  # type: ignore[assignment]
        else:
            batches[name] = column.take(at).to(device)
    for name, table in data.row_columns.items():
        column = data.columns[name]
        if isinstance(column, Sparse):
            continue
        present = column.present(at).to(device) if isinstance(column, Lists) else None
        batches[name] = places_in(ids[table], batches[name], batches["mask"], present)
    if augment is not None:
        batches["x"] = augment(batches["x"])
    return batches


def row_ids(requests: Mapping[str, Ragged], device: torch.device) -> dict[str, Tensor]:
    """Per table, the rows each client requested: (k, m), padded with −1."""
    return {table: sent(rows.padded(-1), device) for table, rows in requests.items()}


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device. A copy from host to GPU goes through pinned memory and does not block."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.contiguous().pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def places_in(rows: Tensor, ids: Tensor, mask: Tensor, present: Tensor | None = None) -> Tensor:
    """For each client, the place of each of its row ids among the rows it requested.

    rows: (k, m) ascending, then −1; ids: (k, S, B, …); mask: (k, S, B), 0 where a slot is empty and may
    name any row. Ids that are not present (padding) get the place −1.
    """
    places, known = found_in(rows, ids.flatten(1))
    missing = ~known.view(ids.shape)
    padding = ~present if present is not None else torch.zeros_like(missing)
    if bool((missing & ~padding & (mask > 0).view(*mask.shape, *[1] * (ids.dim() - 3))).any()):
        raise ValueError("a method's request leaves out rows that its clients' examples name")
    return torch.where(padding, -1, places.view(ids.shape))


def found_in(rows: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The place of each id among its client's rows, and whether it is there at all.

    rows: (k, m) ascending, then −1; ids: (k, n). → two (k, n)
    """
    if not rows.shape[1]:  # nobody holds any
        return torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
    padded = torch.where(rows < 0, torch.iinfo(torch.int64).max, rows).contiguous()
    places = torch.searchsorted(padded, ids.contiguous()).clamp_max(padded.shape[1] - 1)
    return places, (padded.gather(1, places) == ids) & (ids >= 0)


def over_rows(column: Sparse, at: Tensor, mask: Tensor, rows: Tensor) -> Tensor:
    """Feature vectors over the rows each client holds, not over all features: (k, S, B, m).

    at: (k, S, B) examples; mask: (k, S, B), 0 where a slot is empty and stays 0; rows: (k, m) ascending,
    then −1, the features each client requested.
    """
    slot = mask.flatten().nonzero()[:, 0].to(rows.device)  # (n,) of the k·S·B slots
    features = column.select(at.flatten()[slot.to(at.device)]).compact()
    lengths = features.offsets.diff().to(rows.device)
    owner = torch.repeat_interleave(slot, lengths)  # (nnz,) slot
    client = owner // (at.shape[1] * at.shape[2])
    # One search for all clients: a client's rows follow those of the client before it.
    real = rows >= 0
    start = real.sum(1).cumsum(0) - real.sum(1)  # (k,) where a client's rows begin
    number = torch.arange(len(rows), device=rows.device)[:, None] * column.width
    known = (number + rows)[real]  # ascending
    wanted = client * column.width + features.ids.to(rows.device).long()
    place = torch.searchsorted(known, wanted).clamp_max(max(len(known) - 1, 0))
    if len(wanted) and not (len(known) and bool((known[place] == wanted).all())):
        raise ValueError("a method's request leaves out rows that its clients' examples name")
    found = torch.zeros(mask.numel(), rows.shape[1], device=rows.device)
    weights = features.weights.to(rows.device).float()
    # A feature named twice counts twice, in a fixed order on every device.
    found.index_put_((owner, place - start[client]), weights, accumulate=True)
    return found.view(*mask.shape, rows.shape[1])


def row_info(
    data: FederatedDataset,
    clients: Tensor,
    ids: Mapping[str, Tensor],
    *,
    own: bool,
    popularity: bool = False,
    counts: Counted | None = None,
) -> RowInfo:
    """What each client knows of the rows it holds.

    ids: per table (k, m), −1 for padding. own: with what the correction of a sampled loss needs;
    popularity: also with each row's share of the popularity of all that are not the client's own;
    counts: with how many examples each row's class has, on the client itself or on all.
    """
    info = RowInfo({table: rows >= 0 for table, rows in ids.items()}, {}, {}, {}, {})
    if counts is not None:
        info.examples["classes"] = class_counts(data, clients, ids["classes"], counts)
    if own:
        rows = ids["classes"]
        mine = data.rows_of(clients)["classes"].padded(-1).to(rows.device)
        info.own["classes"] = found_in(mine, rows)[1]
        count = data.classes - data.first_class
        info.size["classes"] = torch.full((len(clients),), count, device=rows.device)
        if popularity:
            weight = data.popularity.to(rows.device)
            taken = torch.where(mine >= 0, weight[mine.clamp_min(0)], 0.0).sum(1, keepdim=True)
            info.share["classes"] = weight[rows.clamp_min(0)] / (1 - taken).clamp_min(1e-12)
    return info


def class_counts(data: FederatedDataset, clients: Tensor, rows: Tensor, whose: Counted) -> Tensor:
    """How many examples each row's class has: (k, m) float32, 0 for padding and what nobody counted.

    rows: (k, m) class ids, −1 for padding.
    """
    if whose == "all":
        if data.public_counts is None:
            raise ValueError("the counts of all classes are not known here")
        known = data.public_counts.to(rows.device).float()
        return torch.where(rows >= 0, known[rows.clamp_min(0)], 0.0)
    named, times = (part.select(clients).padded(-1).to(rows.device) for part in data.label_counts)
    if not named.shape[1]:
        return torch.zeros_like(rows, dtype=torch.float32)
    place, held = found_in(named, rows)
    return torch.where(held, times.gather(1, place).float(), 0.0)


def positives_of(data: FederatedDataset, clients: Tensor, rows: Tensor, usable: Tensor) -> Tensor:
    """How many of each client's examples have the class of each row it holds: (k, m) int64.

    rows: (k, m) class ids, −1 for padding; usable: (k,) how many of its examples, the first ones, each
    client trains on.
    """
    at = ragged_places(data.offsets[clients], usable)
    owner = torch.repeat_interleave(torch.arange(len(clients)), usable)
    label = data.columns["y"].take(at).to(rows.device)
    known, times = torch.unique(owner.to(rows.device) * data.classes + label, return_counts=True)
    if not len(known):
        return torch.zeros_like(rows)
    wanted = torch.arange(len(rows), device=rows.device)[:, None] * data.classes + rows
    place = torch.searchsorted(known, wanted).clamp_max(len(known) - 1)
    return torch.where((known[place] == wanted) & (rows >= 0), times[place], 0)
