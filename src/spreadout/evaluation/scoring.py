"""A prior over classes: score = cosine + τ · log n_c.

Training with positives alone learns what examples of a class look like, not how many there are. The
server knows n_c, so it can put that back when it ranks classes (after Menon et al. 2021, who adjust the
logits of a softmax the same way). In vectors it is one coordinate more: 1 for every example, τ · log n_c
for every class; whatever ranks dot products ranks these.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from spreadout.core.tables import Sharded, Table, local_of


def log_prior(counts: Tensor) -> Tensor:
    """log n_c, 0 for the most frequent class; a class nobody has counts as half an example: (C,).

    >>> import torch
    >>> log_prior(torch.tensor([100.0, 1.0, 0.0])).round(decimals=2)
    tensor([ 0.0000, -4.6100, -5.3000])
    """
    known = counts.float().clamp_min(0.5)
    return torch.log(known / known.max())


def with_prior(classes: Table, prior: Tensor) -> Table:
    """Class vectors with their prior as one coordinate more: (C, dim + 1)."""

    def wider(rows: Tensor, own: Tensor) -> Tensor:
        return torch.cat([rows, own.to(rows)[:, None]], 1)

    if isinstance(classes, Sharded):
        here = slice(classes.first, classes.first + len(classes.local))
        return classes.mapped(lambda rows: wider(rows, prior[here]))
    return wider(local_of(classes), prior)


def with_one(embedded: Tensor) -> Tensor:
    """Embeddings to be compared with such vectors: (B, dim + 1)."""
    return F.pad(embedded, (0, 1), value=1.0)
