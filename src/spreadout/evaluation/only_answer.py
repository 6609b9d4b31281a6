"""Whether a model has one answer to everything."""

from __future__ import annotations

import torch

from spreadout.core.state import ServerState
from spreadout.data.held_out import Examples
from spreadout.evaluation.by_class import looked_at
from spreadout.evaluation.embed import ranked
from spreadout.models.embedding import EmbeddingModel

AT_ONCE = 256  # examples: most models show a second answer among the first


@torch.no_grad()
def only_answer(
    model: EmbeddingModel, state: ServerState, held_out: Examples, classes: int
) -> int | None:
    """The class that is ranked first for all examples, though they have labels of several; else None."""
    some = looked_at(model, held_out, classes)
    if len(torch.unique(held_out.labels.select(some).values)) < 2:
        return None
    answers = set[int]()
    for at in torch.split(some, AT_ONCE):
        answers |= set(ranked(model, state, held_out, at, 1).ids[:, 0].tolist())
        if len(answers) > 1:
            return None
    return answers.pop()
