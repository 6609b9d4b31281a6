"""Held-out examples through a model: their embeddings, and the classes it ranks first for them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.core.tables import Table, each_row, local_of, whole_of
from spreadout.core.types import Params
from spreadout.data.columns import Lists, Sparse
from spreadout.data.held_out import Examples
from spreadout.evaluation.scoring import with_one, with_prior
from spreadout.federated.batches import over_rows
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives.neighbours import Nearest

INPUT_BYTES = 1 << 28  # of gathered inputs in memory at once
OUTPUTS_AT_ONCE = 1 << 26  # numbers the model puts out at once
EXAMPLES_AT_ONCE = 4096


def blocks(examples: Examples, outputs: int) -> Iterator[Tensor]:
    """Examples in runs whose inputs and outputs, so many numbers for one, stay within a budget."""
    widest = max((column.example_bytes for column in examples.inputs.values()), default=1)
    most = min(EXAMPLES_AT_ONCE, max(1, OUTPUTS_AT_ONCE // outputs), INPUT_BYTES // widest)
    size = max(1, most)
    for start in range(0, len(examples), size):
        yield torch.arange(start, min(start + size, len(examples)))


@torch.no_grad()
def embed(model: EmbeddingModel, state: ServerState, examples: Examples, at: Tensor) -> Tensor:
    """Embeddings of some held-out examples: (len(at), dim)."""
    device = next(chain(state.dense.values(), map(local_of, state.tables.values()))).device
    batch, tables = {}, {name: local_of(table) for name, table in state.tables.items()}
    for name in model.inputs:
        column = examples.inputs[name]
        if isinstance(column, Sparse) and name in model.row_columns:
            rows = torch.unique(column.ragged(at).values).to(device)  # no others are looked up
            values = over_rows(column, at[None, None], torch.ones(1, 1, len(at)), rows[None])
            batch[name] = values[0, 0]
            tables[model.row_columns[name]] = tables[model.row_columns[name]][rows]
            continue
        values = column.take(at).to(device)
        # Ids stand for themselves here; padding has no place among the rows.
        if isinstance(column, Lists):
            values = torch.where(column.present(at).to(device), values, -1)
        batch[name] = values
    return model.embed(Params(state.dense, tables), batch)


def class_vectors(model: EmbeddingModel, state: ServerState) -> Table:
    """Every class as embeddings are compared with it: (C, dim); the table itself where that is it."""

    def compared(rows: Tensor) -> Tensor:
        return model.class_vectors(Params(state.dense, {"classes": rows}))

    return each_row(state.tables["classes"], compared)


@torch.no_grad()
def ranked(model: EmbeddingModel, state: ServerState, examples: Examples, at: Tensor, k: int) -> Nearest:
    """The k best classes of some examples, with their scores."""
    embedded = embed(model, state, examples, at)
    if not model.has_class_table:
        return model.best_classes(embedded, None, k)
    classes = whole_of(class_vectors(model, state))
    if (prior := state.scoring.get("prior")) is not None:
        embedded, classes = with_one(embedded), whole_of(with_prior(classes, prior))
    return model.best_classes(embedded, classes, k)
