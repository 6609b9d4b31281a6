"""FedSS with rows that no server sees named: fetched from two servers, sent back in a sum over all rows.

A simulation of it, with its bytes counted: the second server is in this process too. What comes back
must not name rows either, so updates go into a secure sum over the whole table (`privacy.model =
"distributed"`), which costs a client the bytes of the table. `runs/misfits.py` refuses all else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from spreadout.core.merging import RowSum
from spreadout.core.rows import Rows, SubModel, Update, nbytes
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.traffic import Traffic
from spreadout.core.types import Tensors
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.cohort import Cohort
from spreadout.federated.executor import Heard, register_executor
from spreadout.federated.federation import Federation
from spreadout.privacy.retrieval import Layout, RowServer, queries, retrieved
from spreadout.runtime.sequential import Sequential

TABLE = "classes"
NUMBER = 4  # bytes of one number of a secure sum


@register_executor("private-retrieval")
class PrivateRetrieval(Sequential):
    """One client after another; class rows come from two servers that do not talk to each other."""

    hides_requests: ClassVar[bool] = True

    def train(self, federation: Federation, state: ServerState, cohort: Cohort) -> Iterator[Aggregate]:
        f, table = federation, local_of(state.tables[TABLE])
        self._fetch = Fetching(table)
        yield from super().train(federation, state, cohort)
        # Every row is in the sum, with noise, whoever trained it.
        ids = torch.arange(f.data.first_class, len(table), device=table.device)
        none = torch.zeros(len(ids), device=table.device)
        yield Aggregate(rows={TABLE: RowSum(ids, torch.zeros_like(table[ids]), none, none)})

    def heard_requests(self, federation: Federation, cohort: Cohort) -> Iterator[Heard]:
        """A server hears how many rows are wanted, and not which."""
        return iter(())

    def sent_to(self, f: Federation, state: ServerState, request: Tensors, control: Tensors) -> SubModel:
        plain = super().sent_to(f, state, request, control)
        fetched = Rows(request[TABLE], self._fetch(request[TABLE]))
        return replace(plain, tables={**plain.tables, TABLE: fetched})

    def traffic(
        self, f: Federation, state: ServerState, sent: SubModel, update: Update, kept: frozenset[str]
    ) -> Traffic:
        layout, wanted = self._fetch.layout, len(sent.tables[TABLE])
        dense, rows = nbytes(sent.dense.values()), local_of(state.tables[TABLE])[f.data.first_class :]
        return Traffic(
            dense_down=dense,
            rows_down=2 * wanted * layout.answer_bytes,
            requests_up=2 * wanted * layout.query_bytes,
            dense_up=sum(value.numel() for value in sent.dense.values()) * NUMBER,
            rows_up=rows.numel() * NUMBER,
            participations=1,
        )


class Fetching:
    """A client with two servers that hold the table as it is in a round."""

    def __init__(self, table: Tensor) -> None:
        values = table.detach().cpu().numpy()
        self.layout = Layout.balanced(len(values), values[:1].nbytes)
        self._servers = RowServer(values, self.layout), RowServer(values, self.layout)
        self._like = table

    def __call__(self, ids: Tensor) -> Tensor:
        """The rows with these ids: (m, d)."""
        from spreadout.privacy.keystream import KeyStream  # needs `cryptography`, as deployments do

        rows = ids.cpu().numpy()
        asked = queries(self.layout, rows, KeyStream())
        answers = (server.answers(one) for server, one in zip(self._servers, asked, strict=True))
        found = retrieved(self.layout, rows, *answers)
        values = torch.from_numpy(found.copy()).view(self._like.dtype)
        return values.reshape(len(rows), *self._like.shape[1:]).to(self._like.device)
