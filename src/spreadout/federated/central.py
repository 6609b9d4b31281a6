"""Noise on the server's sum over the clients of a round (McMahan et al. 2018), on every row of a table.

    S̃ = Σ_i clip(Δ_i) + N(0, (z_Δ C)² I),   change = S̃ / (q N)

over the dense part and all rows together, with a denominator that does not depend on who came. A round
without clients releases noise. Rows get theirs when they are next read (`privacy/lazy_noise.py`) if the
server steps plainly; an optimiser with a memory is given every row of the table in every round.

A simulation's noise is a function of (seed, table, row, releases so far), and promises nothing. A
deployment's comes from the operating system's entropy, in whole numbers (`privacy/released_sum.py`), and
every row gets it at once: a deployment saves its model, and so reads all of it, after every round.

A client that was drawn and does not answer costs no more than one that does. Let it be drawn with
probability q and then answer with probability a, by whatever released models, its own data and the time
make of it. With P and Q what is released without and with its update, given all others', the round
releases (1 − qa)P + qaQ = (1 − a)P + a((1 − q)P + qQ). Hockey-stick divergences are jointly convex, so
the divergence from P, and of P from it, is at most a times that of a round in which it always answers,
which is what the accountants count. An update that is refused is an answer that did not come: whether it
is depends on that update and the released model. What must not be is that one client's data keeps
another's update away; `docs/privacy.md` says where that needs care.
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
from spreadout.privacy.release import Grid
from spreadout.privacy.released_sum import RealNoise, sum_grid, whole_units

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


def repeats(state: ServerState) -> int:
    """How many rounds were released again, because a crash made the run forget them.

    Every release has a cohort of its own. The accountants take each for a fresh draw; one cohort seen
    twice would be one draw with half the variance of noise, which costs more.
    """
    return max(0, releases_of(state) - state.round)


def count_releases_(state: ServerState, known: int) -> None:
    """Let a ledger's count go before the state's own, which a crash may have made smaller."""
    if known > releases_of(state):
        state.central[RELEASES] = torch.tensor(known)


def clip_of(state: ServerState, mechanism: GaussianMechanism) -> float:
    """The longest an update may be in the next round."""
    return float(state.central[CLIP]) if CLIP in state.central else mechanism.clip


def clipped_stack(f: Federation, state: ServerState, change: Params) -> tuple[Params, Tensors]:
    """The changes of a stack of clients, none longer than the clip; and how long they were, (k,).

    Of real clients they are whole numbers of the units that the sum is noised in.
    """
    clip = clip_of(state, _mechanism(f))
    if f.server.real_noise:
        return _whole_stack(f, state, change, clip)
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
    real = _real_noise(f, state) if f.server.real_noise else None
    state.central[RELEASES] = torch.tensor(release)
    optimizers = f.optimizers_at(state.round)
    dense = {}
    for name, value in state.dense.items():
        if name not in f.model.constant_dense:
            total = aggregate.dense.get(name, torch.zeros_like(value))
            if real is not None:
                noised = real(total).to(value.dtype)
            else:
                noised = total + deviation * _normal(f.seed, f"dense {name}", release, value)
            dense[name] = noised / expected
    apply_(state, dense, {}, f.rules, optimizers, f.model.sphere)
    for name in state.tables.keys() - f.clients.training.fixed:
        optimizer, change = optimizers.tables[name], aggregate.rows.get(name)
        if optimizer.is_plain and real is None:
            _lazy_step_(f, state, name, optimizer.lr / expected, change, deviation)
        else:
            _whole_step_(f, state, name, optimizer, change, deviation, real)
    if mechanism.clip_quantile is not None:
        lengths = aggregate.lengths.get(UPDATE, torch.zeros(0))
        if real is not None:
            moved = adaptive_clip.released_clip(mechanism, clip, lengths, expected, real.words)
        else:
            one = float(_normal(f.seed, "count", release, torch.zeros(1)))
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
    real: RealNoise | None = None,
) -> None:
    """Every row moves by its own noise, and by what its clients say: the twin of the lazy step."""
    table, release = _owed(f, state, name), releases_of(state)
    if real is not None:
        sums = torch.zeros_like(table.values, dtype=torch.float64)  # in units
    else:
        sums = deviation * _row_normal(f.seed, name, release, table.every, table.values.shape[-1])
    if change is not None and len(change.ids):
        sums[change.ids] += change.total
    if real is not None:
        sums = real(sums).to(table.values.dtype)
    slots = state.slots_for(f"tables/{name}", optimizer, state.tables[name], lazy=True)
    step = optimizer.move(sums / -float(f.server.per_round), slots)
    table.set_(table.every, table.raw(table.every) + step)


def _whole_stack(
    f: Federation, state: ServerState, change: Params, clip: float
) -> tuple[Params, Tensors]:
    """Each client's change in whole units, with its length before."""
    grid, k = _grid(f, state), len(next(value for part in change for value in part.values()))
    each = [Params(*({n: v[i] for n, v in part.items()} for part in change)) for i in range(k)]
    units = [whole_units(one, clip, grid) for one in each]
    stacked = Params(
        {name: torch.stack([one.dense[name] for one in units]) for name in change.dense},
        {name: torch.stack([one.rows[name] for one in units]) for name in change.rows},
    )
    return stacked, {UPDATE: torch.stack([clipped(one, clip)[1] for one in each])}


def _real_noise(f: Federation, state: ServerState) -> RealNoise:
    """That of the release to come, from the operating system's entropy."""
    from spreadout.privacy.keystream import KeyStream  # needs `cryptography`, as deployments do

    return RealNoise(_grid(f, state), KeyStream())


def _grid(f: Federation, state: ServerState) -> Grid:
    return sum_grid(_mechanism(f), clip_of(state, _mechanism(f)), float(f.server.per_round))


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
