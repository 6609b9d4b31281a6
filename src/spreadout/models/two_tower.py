"""Two towers over one table of items (003, Fig. 2): a context tower and an item tower share its rows.

The context tower turns the rows of the items a user had into a vector, the item tower the row of an
item; their similarity is a cosine or a dot product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from spreadout.core.types import Batch, Params
from spreadout.models.embedding import EmbeddingModel
from spreadout.models.nn.gather import gathered
from spreadout.models.nn.unit import unit
from spreadout.models.nn.untouched import output_of

Similarity = Literal["cosine", "dot"]


@dataclass(frozen=True)
class TwoTower(EmbeddingModel):
    """`encoder` is a `Towers`; histories are places among the client's rows, −1 for padding."""

    takes_histories: ClassVar[bool] = True

    inputs: tuple[str, ...] = ("history",)
    similarity: Similarity = "cosine"

    def embed(self, params: Params, batch: Batch) -> Tensor:
        """f(x): the contexts of a batch, (B, dim)."""
        history = batch[self.inputs[0]]  # (B, L)
        present = history >= 0
        rows = gathered(history.clamp_min(0), params.rows["classes"])  # (B, L, d)
        rows = rows * present[..., None]
        found = output_of(self.encoder, params.dense, (rows, present))
        return self._sized(found.float())

    def class_vectors(self, params: Params) -> Tensor:
        """g(y): every item of the client, (m, dim)."""
        found = output_of(self.encoder, params.dense, (params.rows["classes"], None))
        return self._sized(found.float())

    def _sized(self, vectors: Tensor) -> Tensor:
        return unit(vectors) if self.similarity == "cosine" else vectors


class Towers(nn.Module):
    """Both towers in one module: with a mask it is the context tower, without one the item tower."""

    def __init__(self, context: nn.Module, item: nn.Module) -> None:
        super().__init__()
        self.context, self.item = context, item

    def forward(self, rows: Tensor, present: Tensor | None) -> Tensor:
        found: Tensor = self.item(rows) if present is None else self.context(rows, present)
        return found


class MaskedMean(nn.Module):
    """The mean of the rows there are, then dense layers; the paper's is one Dense(16, relu)."""

    def __init__(self, dim: int, hidden: Sequence[int], *, relu: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for narrow, wide in pairwise([dim, *hidden, dim]):
            layers += [_dense(narrow, wide), nn.ReLU()]
        self.layers = nn.Sequential(*(layers if relu else layers[:-1]))

    def forward(self, rows: Tensor, present: Tensor) -> Tensor:
        """rows: (B, L, d), zero where nothing is present; present: (B, L). → (B, d)"""
        mean = rows.sum(-2) / present.sum(-1, keepdim=True).clamp_min(1)
        found: Tensor = self.layers(mean)
        return found


def _dense(narrow: int, wide: int) -> nn.Linear:
    """A dense layer that starts as the paper's does in Keras: Glorot's weights, no bias.

    Rows start short (`init`). A random bias would outweigh them and kill units for all inputs at once.
    """
    layer = nn.Linear(narrow, wide)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class SelfAttention(nn.Module):
    """A small causal transformer over the history, read at its last item (as SASRec does).

    Positions count back from the last item, so that the most recent one always has the same.
    """

    def __init__(self, dim: int, length: int, layers: int = 1) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.02 * torch.randn(length, dim))
        self.blocks = nn.ModuleList([_Block(dim) for _ in range(layers)])

    def forward(self, rows: Tensor, present: Tensor) -> Tensor:
        """rows: (B, L, d), the oldest first, padded on the right; present: (B, L). → (B, d)"""
        count = present.sum(-1, keepdim=True)  # (B, 1)
        place = torch.arange(present.shape[-1], device=rows.device)
        back = (count - 1 - place).clamp(0, len(self.positions) - 1)  # (B, L) steps before the last
        x = (rows + self.positions[back]) * present[..., None]
        earlier = place[:, None] >= place  # (L, L)
        seen = earlier & present[..., None, :]  # (B, L, L)
        for block in self.blocks:
            x = block(x, seen)
        last = (place == (count - 1).clamp_min(0)).to(x.dtype)  # (B, L) one-hot
        return (x * last[..., None]).sum(-2)


class _Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.before_attention, self.before_dense = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.dense = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        y = self.before_attention(x)
        logits = self.query(y) @ self.key(y).transpose(-1, -2) / y.shape[-1] ** 0.5  # (B, L, L)
        weight = torch.where(seen, logits, -1e9).softmax(-1)
        x = x + weight @ self.value(y)
        found: Tensor = x + self.dense(self.before_dense(x))
        return found


class Lookup(nn.Module):
    """The item tower of the paper: an item is its row."""

    def forward(self, rows: Tensor) -> Tensor:
        return rows
