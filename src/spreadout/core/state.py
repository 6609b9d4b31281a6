"""The server's state as one explicit value, and a step of one of its tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from spreadout.core.client_state import ClientStates
from spreadout.core.optimizers import Optimizer, step_rows_
from spreadout.core.rows import Rows, along_sphere
from spreadout.core.tables import Sharded, Table, Tables, local_of, rows_here
from spreadout.core.traffic import Traffic
from spreadout.core.types import Tensors


@dataclass
class MethodState:
    """What a method remembers between rounds. A method's own subclass has a field for each tensor.

    >>> from dataclasses import dataclass
    >>> import torch
    >>> import spreadout as so
    >>> @dataclass
    ... class Seen(so.MethodState):
    ...     count: torch.Tensor | None = None
    >>> state = so.ServerState(round=0, dense={}, tables={})
    >>> state.recall(Seen).count = torch.tensor(5)
    >>> state.method_tensors()  # what a checkpoint holds
    {'count': tensor(5)}
    """

    def tensors(self) -> Tensors:
        """All that there is of it, by field: what a checkpoint holds."""
        named = ((one.name, getattr(self, one.name)) for one in fields(self))
        return {name: value for name, value in named if value is not None}


StateT = TypeVar("StateT", bound=MethodState)


@dataclass
class ClientRecords:
    """What the server keeps about each client, by its place; created when first needed."""

    has_fixed_rows: Tensor | None = None  # (clients,) bool: who was sent its rows that never change
    releases: Tensor | None = None  # (clients,) int32: noisy updates each has sent

    def sent_fixed_(self, clients: Tensor, count: int) -> None:
        if self.has_fixed_rows is None:
            self.has_fixed_rows = torch.zeros(count, dtype=torch.bool)
        self.has_fixed_rows[clients] = True

    def released_(self, clients: Tensor, count: int) -> None:
        if self.releases is None:
            self.releases = torch.zeros(count, dtype=torch.int32)
        self.releases[clients] += 1

    def lacks_fixed_rows(self, clients: Tensor) -> Tensor:
        """Which of these clients were not sent them yet: (k,) bool."""
        if self.has_fixed_rows is None:
            return torch.ones(len(clients), dtype=torch.bool)
        return ~self.has_fixed_rows[clients].cpu()


@dataclass
class ServerState:
    """All that a run is, between two rounds. Draws depend on the seed and `round` alone.

    Tables are updated in place, because copying one costs what C costs; whoever needs an old state
    keeps a checkpoint of it.

    >>> import torch
    >>> import spreadout as so
    >>> state = so.ServerState(round=0, dense={}, tables={"classes": torch.eye(3)})
    >>> up = so.Rows(torch.tensor([2]), torch.tensor([[0.0, 0.0, 4.0]]))
    >>> state.descend_("classes", up, so.Optimizer(lr=0.5), sphere=False)
    >>> state.tables["classes"].diagonal()
    tensor([ 1.,  1., -1.])
    """

    round: int
    dense: Tensors
    tables: Tables  # (C, d) each
    slots: dict[str, Tables] = field(default_factory=dict)  # optimiser state by part
    stored: Tensors = field(default_factory=dict)  # a method's state as a checkpoint gave it
    method: MethodState | None = None  # … and as the method has it, after `recall`
    records: ClientRecords = field(default_factory=ClientRecords)
    control: Tensors = field(default_factory=dict)  # of a drift correction, by part of the model
    scoring: Tensors = field(default_factory=dict)  # `counts` n_c, `prior` τ · log n_c: (C,); `hashes`
    clients: ClientStates = field(default_factory=dict)  # what stays with clients; in simulation only
    robust: Tensors = field(default_factory=dict)  # what a robust rule keeps: limits, a centre, momenta
    central: Tensors = field(
        default_factory=dict
    )  # of noise on the server: what rows are owed, the clip
    kept: Tables = field(default_factory=dict)  # the best model so far, by part: `eval.keep`
    traffic: Traffic = field(default_factory=Traffic)
    refused: Counter[str] = field(default_factory=Counter)
    setup_done: bool = False  # whether what comes before the first round is done

    def recall(self, kind: type[StateT]) -> StateT:
        """The method's state: a fresh one at first, or what a checkpoint holds of it."""
        if not isinstance(self.method, kind):
            self.method, self.stored = kind(**self.stored), {}
        return self.method

    def method_tensors(self) -> Tensors:
        """The method's state as a checkpoint holds it."""
        return self.stored if self.method is None else self.method.tensors()

    def keep_clients_(self, new: ClientStates) -> None:
        """Keep the clients' states for their next round."""
        for part, theirs in new.items():
            known = self.clients.get(part)
            self.clients[part] = theirs if known is None else known.updated(theirs)

    def whole(self, *, slots: bool = True) -> ServerState:
        """With no table sharded: all rows on the first process's host, none of those tables' on others.

        slots: whether what optimisers remember is wanted too.
        """
        if not any(isinstance(table, Sharded) for table in self.tables.values()):
            return self

        def gathered(tables: Tables) -> Tables:
            return {n: t.whole() if isinstance(t, Sharded) else t for n, t in tables.items()}

        kept = {part: gathered(named) for part, named in self.slots.items()} if slots else {}
        best = gathered(self.kept)
        return replace(self, tables=gathered(self.tables), slots=kept, kept=best)

    def slots_for(self, part: str, optimizer: Optimizer, like: Table, *, lazy: bool) -> Tensors:
        """This part's optimiser state, made at first use and for what is here; lazy: steps per row."""
        if part not in self.slots:
            here = local_of(like)
            made = optimizer.init(here, len(here) if lazy else None)
            self.slots[part] = dict(made)
            if isinstance(like, Sharded):
                self.slots[part] = {name: replace(like, local=slot) for name, slot in made.items()}
        return {name: local_of(slot) for name, slot in self.slots[part].items()}

    def descend_(
        self, table: str, gradient: Rows, optimizer: Optimizer, *, sphere: bool, part: str = "step"
    ) -> None:
        """One step of some rows of a table down a gradient; no other row moves.

        sphere: whether rows have unit length, and keep it. part: whose step it is, by which what the
        optimiser remembers is kept from round to round.
        """
        descend_table_(self, f"{part}/{table}", table, gradient, optimizer, sphere=sphere)


@torch.no_grad()
def descend_table_(
    state: ServerState, part: str, name: str, gradient: Rows, optimizer: Optimizer, *, sphere: bool
) -> None:
    """One lazy step of a table down a regulariser's gradient; `part` names whose state it is."""
    slots = state.slots_for(part, optimizer, state.tables[name], lazy=True)
    table, gradient = rows_here(state.tables[name], gradient)
    if sphere:
        gradient = Rows(gradient.ids, along_sphere(gradient.values, table[gradient.ids]))
    step_rows_(optimizer, table, gradient, slots, sphere=sphere)
