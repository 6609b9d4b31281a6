"""`details.json`: what a finished run found by class and by client, and how alike its classes are."""

from __future__ import annotations

from typing import Any

import torch

from spreadout.core.state import ServerState
from spreadout.data.held_out import Examples
from spreadout.evaluation.by_class import as_written, by_class
from spreadout.evaluation.by_client import by_client
from spreadout.evaluation.pooled import pool_of
from spreadout.evaluation.similarity import similarity_of
from spreadout.federated.federation import Federation


@torch.no_grad()
def details_of(f: Federation, state: ServerState, held_out: Examples) -> dict[str, Any]:
    """All that it says, of a state that is whole."""
    classes = f.data.classes
    here = not f.executor.clients_elsewhere and f.data.examples > 0
    known = here and f.clients.privacy is None  # exact counts of what clients have are nobody's to read
    trained = pool_of(f.data).counts if known else torch.zeros(classes, dtype=torch.int64)
    of = by_class(f.model, state, held_out, classes)
    return {
        **as_written(trained, of, f.data.first_class),
        **({} if known else {"by_frequency": []}),  # nobody may know which classes are frequent
        "clients": by_client(f, state.traffic, state.round, of.share) if known else None,
        "similarity": similarity_of(f.model, state, f.seed),
    }
