"""Noise on the server's sum over the clients of a round (McMahan et al. 2018), on every row of a table.

    S̃ = Σ_i clip(Δ_i) + N(0, (z_Δ C)² I),   change = S̃ / (q N)

over the dense part and all rows together, with a denominator that does not depend on who came. A round
without clients releases noise. Rows get theirs when they are next read (`privacy/lazy_noise.py`) if the
server steps plainly; an optimiser with a memory is given every row of the table in every round.

Noise is a function of (seed, table, row, releases so far): it simulates, and promises nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.merging import RowSum
from spreadout.core.optimizers import Optimizer
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.types import Params, Tensors
from spreadout.federated.aggregate import Aggregate, apply_
from spreadout.privacy import adaptive_clip
from spreadout.privacy.central import Rounds
from spreadout.privacy.lazy_noise import OwedNoise
from spreadout.privacy.mechanism import GaussianMechanism, clipped

if TYPE_CHECKING:
    from spreadout.federated.cohort import Cohort
    from spreadout.federated.federation import Federation

UPDATE = "update"  # the part that lengths of whole updates are of
RELEASES, CLIP = "releases", "clip"


def rounds_of(federation: Federation) -> Rounds:
    """How the clients of a round are drawn, as the accountant needs it."""
    selection, clients = federation.server.selection, federation.data.clients
    if selection == "uniform":
        return Rounds("fixed-size", federation.server.per_round, clients)
    if selection == "poisson":
        return Rounds("poisson", federation.server.per_round, clients)
    return Rounds("everyone", clients, clients)


def releases_of(state: ServerState) -> int:
    """How many rounds have released noised sums."""
    return int(state.central[RELEASES]) if RELEASES in state.central else 0


def count_releases_(state: ServerState, known: int) -> None:
    """Let a ledger's count go before the state's own, which a crash may have made smaller."""
    if known > releases_of(state):
        state.central[RELEASES] = torch.tensor(known)


def clip_of(state: ServerState, mechanism: GaussianMechanism) -> float:
    """The longest an update may be in the next round."""
    return float(state.central[CLIP]) if CLIP in state.central else mechanism.clip


def clipped_stack(f: Federation, state: ServerState, change: Params) -> tuple[Params, Tensors]:
    """The changes of a stack of clients, none longer than the clip; and how long they were, (k,)."""
    clip = clip_of(state, _mechanism(f))
    short, lengths = torch.vmap(lambda one: clipped(one, clip))(change)
    return short, {UPDATE: lengths}


def settle_requested_(f: Federation, state: ServerState, cohort: Cohort) -> None:
    """Rows that clients are about to read get the noise they are owed."""
    for name, requested in cohort.requests.items():
        if requested.shared is not None:
            _settle_(f, state, name, None)
        else:
            _settle_(f, state, name, torch.unique(requested.values))


def settle_all_(f: Federation, state: ServerState) -> None:
    """Every row gets what it is owed: somebody is about to read the whole model."""
    if f.noises_sums:
        for name in state.tables:
            _settle_(f, state, name, None)


@torch.no_grad()
def step_(f: Federation, state: ServerState, aggregate: Aggregate) -> None:
    """Move the model by a round's noised sum, and the clip by its noised count."""
    mechanism, expected = _mechanism(f), float(f.server.per_round)
    clip, release = clip_of(state, mechanism), releases_of(state) + 1
    deviation = adaptive_clip.sum_noise(mechanism, expected) * clip
    state.central[RELEASES] = torch.tensor(release)
    optimizers = f.optimizers_at(state.round)
    dense = {}
    for name, value in state.dense.items():
        if name not in f.model.constant_dense:
            noise = deviation * _normal(f.seed, f"dense {name}", release, value)
            dense[name] = (aggregate.dense.get(name, torch.zeros_like(value)) + noise) / expected
    apply_(state, dense, {}, f.rules, optimizers, f.model.sphere)
    for name in state.tables.keys() - f.clients.training.fixed:
        optimizer, change = optimizers.tables[name], aggregate.rows.get(name)
        if optimizer.is_plain:
            _lazy_step_(f, state, name, optimizer.lr / expected, change, deviation)
        else:
            _whole_step_(f, state, name, optimizer, change, deviation)
    if mechanism.clip_quantile is not None:
        one = float(_normal(f.seed, "count", release, torch.zeros(1)))
        lengths = aggregate.lengths.get(UPDATE, torch.zeros(0))
        moved = adaptive_clip.next_clip(mechanism, clip, lengths, expected, one)
        state.central[CLIP] = torch.tensor(moved, dtype=torch.float64)


def raw_rows(f: Federation, state: ServerState, name: str) -> Tensor:
    """All rows of a table as they add up: those on the sphere with the length that nobody sees."""
    table = _owed(f, state, name)
    return table.raw(table.every)


def every_row(state: ServerState) -> dict[str, RowSum]:
    """Of every table, all rows alike: what a server's step may know of who trained which."""
    found = {}
    for name, table in state.tables.items():
        ids = torch.arange(len(table), device=table.device)
        ones = torch.ones(len(table), device=table.device)
        found[name] = RowSum(ids, torch.zeros_like(local_of(table)), ones, ones)
    return found


def _lazy_step_(
    f: Federation, state: ServerState, name: str, rate: float, change: RowSum | None, deviation: float
) -> None:
    """Touched rows move now; what noise all rows are owed is noted."""
    table = _owed(f, state, name)
    if change is not None and len(change.ids):
        table.set_(change.ids, table.raw(change.ids) + rate * change.total)
    table.owe_(rate * deviation)


def _whole_step_(
    f: Federation,
    state: ServerState,
    name: str,
    optimizer: Optimizer,
    change: RowSum | None,
    deviation: float,
) -> None:
    """Every row moves by its own noise, and by what its clients say: the twin of the lazy step."""
    table, release = _owed(f, state, name), releases_of(state)
    sums = deviation * _row_normal(f.seed, name, release, table.every, table.values.shape[-1])
    if change is not None and len(change.ids):
        sums[change.ids] += change.total
    slots = state.slots_for(f"tables/{name}", optimizer, state.tables[name], lazy=True)
    step = optimizer.move(sums / -float(f.server.per_round), slots)
    table.set_(table.every, table.raw(table.every) + step)


def _settle_(f: Federation, state: ServerState, name: str, ids: Tensor | None) -> None:
    if name in f.clients.training.fixed:
        return
    table = _owed(f, state, name)
    draw = partial(_row_normal, f.seed, name, releases_of(state))
    table.settle_(table.every if ids is None else ids.to(table.values.device), draw)


def _owed(f: Federation, state: ServerState, name: str) -> OwedNoise:
    values = local_of(state.tables[name])
    return OwedNoise.of(values, state.central, name, sphere=name in f.model.sphere)


def _row_normal(seed: int, table: str, release: int, ids: Tensor, width: int) -> Tensor:
    """Standard normal numbers for some rows, each its own whoever else is drawn for: (m, width)."""
    stream = randomness.key(seed, "row noise", table, release)
    slots = randomness.bits(stream, ids.cpu().numpy()).view("int64")
    return randomness.normal_on(torch.from_numpy(slots).to(ids.device), width)


def _normal(seed: int, what: str, release: int, like: Tensor) -> Tensor:
    """Standard normal numbers in the shape of a tensor."""
    slot = torch.tensor([randomness.key(seed, what, release)], dtype=torch.uint64).view(torch.int64)
    return randomness.normal_on(slot.to(like.device), like.numel()).reshape(like.shape).to(like.dtype)


def _mechanism(f: Federation) -> GaussianMechanism:
    assert f.clients.privacy is not None
    return f.clients.privacy
