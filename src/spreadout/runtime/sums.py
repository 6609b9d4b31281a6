"""What a chunk of trained clients comes to: checked, made private, summed, its bytes counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout.federated import checks
from spreadout.federated.batches import positives_of
from spreadout.federated.local import Params
from spreadout.federated.merge import Aggregate, RowSum
from spreadout.federated.round import Cohort, Federation
from spreadout.federated.rows import Tensors, nbytes, sum_by_id
from spreadout.federated.server import ServerState
from spreadout.federated.tables import row_bytes
from spreadout.federated.traffic import Traffic
from spreadout.privacy.mechanism import add_noise_, clip_norm
from spreadout.runtime.ready import Chunk


@dataclass(frozen=True)
class Work:
    """A chunk of clients about to train from the present model."""

    federation: Federation
    state: ServerState
    chunk: Chunk

    def rows(self) -> Tensors:
        """Each client's rows, gathered: (k, m, d) per table, zeros in the padding."""
        return {name: self._rows_of(name, ids) for name, ids in self.chunk.ids.items()}

    def _rows_of(self, name: str, ids: Tensor) -> Tensor:
        table = self.state.tables[name]
        if self.chunk.cohort.requests[name].shared is not None:  # all clients hold the same: one copy
            return table[ids[0]].expand(len(ids), -1, -1)
        return table[ids.clamp_min(0)] * (ids >= 0)[..., None]


def accepted_sum(
    work: Work, change: Params, loss: Tensor, also: Callable[[Tensor], Tensors] = lambda weight: {}
) -> Aggregate:
    """The sum of the changes that pass the server's checks.

    also: sums of dense parts that no client's change was made of, from the clients' weights.
    """
    f, chunk = work.federation, work.chunk
    with torch.no_grad():
        if f.privacy is not None:
            change = _privatised(work, change)
        bad = checks.bad_clients(change.dense, change.rows, loss, chunk.examples, f.max_norm)
        accepted = ~torch.stack(list(bad.values())).any(0)  # (k,)
        weight = f.rules.client_weight(chunk.examples)
        # One tensor after another leaves for its sum: both at once may be too much.
        names = list(change.dense)
        sums = {name: _weighted_sum(weight, accepted, change.dense.pop(name)) for name in names}
        sums |= also(weight * accepted)
        part = aggregate(work, sums, change.rows, loss, accepted)
    for reason, refused in bad.items():
        part.refused[reason] += int(refused.sum())
    part.refused = +part.refused  # drop reasons nobody was refused for
    return part


def _weighted_sum(weight: Tensor, accepted: Tensor, value: Tensor) -> Tensor:
    """Σ ω_i Δ_i over the accepted clients; a refused one may hold NaN, so it is left out, not zeroed."""
    kept = value if bool(accepted.all()) else value[accepted]
    return torch.einsum("k,k...->...", weight[accepted], kept)


def aggregate(work: Work, dense: Tensors, rows: Tensors, loss: Tensor, accepted: Tensor) -> Aggregate:
    """Sums over the accepted clients of a chunk, from dense sums and per-client row changes."""
    chunk, rules = work.chunk, work.federation.rules
    summed = {}
    for name, change in rows.items():
        counted = name in rules.counted
        if chunk.cohort.requests[name].shared is not None and not counted:
            summed[name] = _whole_sum(work, name, change, accepted)
            continue
        real = (chunk.ids[name] >= 0) & accepted[:, None]  # (k, m)
        owner = real.nonzero()[:, 0]  # (rows,)
        if counted:
            told = work.federation.data, chunk.cohort.clients, chunk.ids[name], chunk.examples.cpu()
            examples = positives_of(*told)[real].float()
            weight = examples
        else:
            examples = chunk.examples[owner].float()
            weight = rules.row_weight(name, chunk.examples)[owner]
        each = torch.ones_like(examples)
        columns = chunk.ids[name][real], change[real] * weight[:, None], each, examples
        summed[name] = RowSum(*sum_by_id(*columns))
    kept = chunk.examples[accepted]
    part = Aggregate(
        dense,
        float(rules.client_weight(kept).sum()),
        summed,
        len(kept),
        int(kept.sum()),
        float(loss[accepted].sum()),
    )
    if not len(kept):  # nothing was accepted: an empty sum, not a sum of zeros
        part.dense, part.rows = {}, {}
    part.traffic = traffic_of(work.state, chunk.cohort, work.federation)
    return part


def _whole_sum(work: Work, name: str, change: Tensor, accepted: Tensor) -> RowSum:
    """Row sums where every client holds the same rows: no ids to sort."""
    chunk = work.chunk
    examples = chunk.examples[accepted].float()
    weight = work.federation.rules.row_weight(name, chunk.examples)
    total = _weighted_sum(weight, accepted, change)  # (m, d)
    each = torch.ones(len(total), device=total.device)
    return RowSum(chunk.ids[name][0], total, each * len(examples), each * examples.sum())


def _privatised(work: Work, change: Params) -> Params:
    """Clip each client's change and add its noise, as the client itself would."""
    f, chunk = work.federation, work.chunk
    assert f.privacy is not None
    bound = f.privacy.clip
    clip: Callable[[Params], Params] = torch.vmap(lambda one: clip_norm(one, bound))
    change = clip(change)
    for i, client in enumerate(f.data.number_of(chunk.cohort.clients).tolist()):
        real = {name: int((ids[i] >= 0).sum()) for name, ids in chunk.ids.items()}
        add_noise_(
            {name: value[i] for name, value in change.dense.items()},
            {name: value[i, : real[name]] for name, value in change.rows.items()},
            f.privacy,
            seed=f.seed,
            round=work.state.round,
            client=client,
        )
    return change


def traffic_of(state: ServerState, cohort: Cohort, federation: Federation) -> Traffic:
    """The bytes of the whole cohort's round trips, from the tensors its members share."""
    clients = len(cohort.clients)
    dense = nbytes(state.dense.values())
    down, up, asked = 0, 0, 0
    new = torch.arange(clients)
    if "keeps_fixed" in state.memory:  # the others have their fixed rows already
        new = (~state.memory["keeps_fixed"][cohort.clients]).nonzero()[:, 0].cpu()
    for name, every in cohort.requests.items():
        requests = every.select(new) if name in federation.training.fixed else every
        ids = nbytes([requests.values])
        row = row_bytes(state.tables[name])
        down += ids + row * requests.values.numel()
        asked += ids
        if name not in federation.training.fixed:
            up += ids + row * requests.values.numel()
            up += ids if name in federation.rules.counted else 0
    return Traffic(dense * clients, down, asked, dense * clients, up, clients)
