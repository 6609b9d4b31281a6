"""A start by ridge regression: a linear encoder and the class rows from one message of every client.

A client sends G_i = Σ x̂x̂ᵀ over its examples, with x̂ = x/|x|, and of each of its classes S_c = Σ x̂. The
sums of these over clients are all that ridge regression of labels on features needs,

    B = (G + λI)⁻¹ S        (F, C), one column for each class: x̂ᵀB are the scores of all classes

so clients with positives only get what examples in one place would give: an example of another class is
in G, whoever holds it. (Here an instance with m labels is m examples, and counts m times.) With class
rows R at right angles to each other the encoder x → RᵀBᵀx has these scores as its cosines, up to a
factor that all classes share; rounds then go on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.errors import UserError
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.traffic import Traffic
from spreadout.data.dataset import FederatedDataset
from spreadout.methods.base import SetupContext
from spreadout.methods.class_counts import SetupMessage, is_row_list
from spreadout.methods.positive_only import PositiveOnly
from spreadout.models.build import DataShape, ModelConfig
from spreadout.models.embedding import EmbeddingModel

CLASSES, MOMENTS, SUMS = "classes", "ridge_moments", "ridge_sums"
MOST_FEATURES = 4096  # G has half as many numbers as their square
AT_ONCE = 4096  # examples in memory at once


class RidgeStart(PositiveOnly):
    """Training may begin at the ridge regression of all clients' labels on their features."""

    read_if: ClassVar = {"ridge_strength": ({"start": ("ridge",)},)}

    start: Literal["random", "ridge"] = "random"
    ridge_strength: float = Field(0.5, gt=0)  # λ, in units of G's mean eigenvalue

    @property
    def sends_at_setup(self) -> str | None:
        told = super().sends_at_setup
        return "second moments of their features" if self.start == "ridge" else told

    @property
    def can_shard(self) -> bool:
        return self.start == "random" and super().can_shard  # all rows at once

    def build_model(self, config: ModelConfig, shape: DataShape, seed: int) -> EmbeddingModel:
        if self.start == "ridge":
            if config.encoder != "mlp" or config.hidden != [] or config.input_scaling != "none":
                raise UserError(
                    'method.start = "ridge": is for a linear encoder; set model.encoder = "mlp", '
                    'model.hidden = [] and model.input_scaling = "none"'
                )
            if (shape.features or 0) > MOST_FEATURES:
                raise UserError(
                    f'method.start = "ridge": each client would send {shape.features:,}² / 2 numbers; '
                    f"it takes at most {MOST_FEATURES:,} features"
                )
        return super().build_model(config, shape, seed)

    def client_setup(self, data: FederatedDataset, *, key: bytes, seed: int) -> Iterator[SetupMessage]:
        """Each client's sums, beside what it sends anyway."""
        asked = super().client_setup(data, key=key, seed=seed)
        if self.start == "random":
            yield from asked
            return
        nothing: SetupMessage = {}
        for one, other in zip_longest(asked, messages_of(data), fillvalue=nothing):
            yield {**one, **other}

    def server_setup(self, setup: SetupContext, state: ServerState, model: EmbeddingModel) -> Traffic:
        if self.start == "random":
            return super().server_setup(setup, state, model)
        weight, table = linear_in(state), local_of(state.tables["classes"])
        sums = Sums(weight.shape[1], len(table))
        messages = sums.taken_from(setup.messages)
        traffic = super().server_setup(replace(setup, messages=messages), state, model)
        for _ in messages:  # where nothing else was asked for
            pass
        if sums.refused:
            state.refused["ridge start: malformed"] += sums.refused
        rows = right_angles(table, setup.seed)
        found = sums.solved(self.ridge_strength).float() @ rows.cpu()  # (F, d)
        if float(found.std()) > 0:
            table.copy_(rows)
            # As large as the random start was: rates are meant for that.
            weight.copy_((found.T * (float(weight.std()) / float(found.std()))).to(weight))
            # Without a bias, an example whose features are all dropped has no direction and an endless
            # gradient; with this one it is like the mean example.
            for name, value in state.dense.items():
                if name.endswith("bias"):
                    value.copy_(weight @ sums.mean.to(weight))
        return traffic + Traffic(once_up=sums.bytes)


def messages_of(data: FederatedDataset) -> Iterator[SetupMessage]:
    """Of each client the upper half of G_i, its classes, and S_c of these, float32."""
    x, y = data.columns["x"], data.columns["y"]
    for first, last in zip(data.offsets[:-1].tolist(), data.offsets[1:].tolist(), strict=True):
        if first == last:
            yield {}
            continue
        gram, totals = torch.zeros(()), torch.zeros(())
        classes, place = torch.unique(y.take(torch.arange(first, last)), return_inverse=True)
        for some in torch.split(torch.arange(first, last), AT_ONCE):
            rows = x.take(some).flatten(1).float()
            rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
            gram = gram + rows.T @ rows
            named = rows.new_zeros(len(classes), rows.shape[1])
            totals = totals + named.index_add_(0, place[some - first].to(rows.device), rows)
        half = gram[torch.triu_indices(len(gram), len(gram)).unbind()]
        yield {
            CLASSES: classes.cpu().numpy().astype(np.int64),
            MOMENTS: half.cpu().numpy(),
            SUMS: totals.cpu().numpy(),
        }


class Sums:
    """G and S, as the server adds them up."""

    def __init__(self, features: int, classes: int) -> None:
        self.half = np.zeros(features * (features + 1) // 2)
        self.right = np.zeros((classes, features))
        self.refused, self.bytes = 0, 0

    def taken_from(self, messages: Iterable[SetupMessage]) -> Iterator[SetupMessage]:
        """The messages without what is meant for this; that is added."""
        for message in messages:
            if MOMENTS in message or SUMS in message:
                self._add(message)
            yield {name: array for name, array in message.items() if name not in (MOMENTS, SUMS)}

    def _add(self, message: SetupMessage) -> None:
        if not self._is_sound(message):
            self.refused += 1
            return
        self.half += message[MOMENTS]
        self.right[message[CLASSES]] += message[SUMS]
        self.bytes += message[MOMENTS].nbytes + message[SUMS].nbytes

    def _is_sound(self, message: SetupMessage) -> bool:
        if not {CLASSES, MOMENTS, SUMS} <= message.keys():
            return False
        classes, moments, sums = (message[name] for name in (CLASSES, MOMENTS, SUMS))
        shaped = moments.shape == self.half.shape and sums.shape == (len(classes), self.right.shape[1])
        typed = moments.dtype == sums.dtype == np.float32 and is_row_list(classes, len(self.right))
        return bool(shaped and typed and np.isfinite(moments).all() and np.isfinite(sums).all())

    @property
    def mean(self) -> Tensor:
        """x̂ of the mean example: (F,) double. The diagonal of G sums to how many there are."""
        features = self.right.shape[1]
        diagonal = np.cumsum([0, *range(features, 1, -1)])  # where rows of the upper half begin
        return torch.from_numpy(self.right.sum(0) / max(self.half[diagonal].sum(), 1.0))

    def solved(self, strength: float) -> Tensor:
        """B = (G + λI)⁻¹ S, with λ in units of G's mean eigenvalue: (F, C) double."""
        features = self.right.shape[1]
        gram = torch.zeros(features, features, dtype=torch.float64)
        gram[torch.triu_indices(features, features).unbind()] = torch.from_numpy(self.half)
        gram = gram + gram.triu(1).T
        unit = float(gram.trace()) / features
        gram.diagonal().add_(strength * unit if unit > 0 else 1.0)
        factor, failed = torch.linalg.cholesky_ex(gram)
        if failed:
            raise UserError(
                'method.start = "ridge": what clients sent are no second moments; take start = "random"'
            )
        return torch.cholesky_solve(torch.from_numpy(self.right).T, factor)


def linear_in(state: ServerState) -> Tensor:
    """The weights of the one layer: (d, F)."""
    found = [value for value in state.dense.values() if value.dim() == 2]
    if len(found) != 1:
        raise UserError(f'method.start = "ridge": is for a linear encoder; this has {len(found)} layers')
    return found[0]


def right_angles(table: Tensor, seed: int) -> Tensor:
    """Class rows at right angles to each other, turned at random; as they are where dim is too small."""
    classes, dim = table.shape
    if classes > dim:
        return table
    draw = torch.Generator().manual_seed(randomness.key(seed, "right angles") >> 1)
    turned: Tensor = torch.linalg.qr(torch.randn(dim, classes, generator=draw))[0]
    return turned.T.to(table)
