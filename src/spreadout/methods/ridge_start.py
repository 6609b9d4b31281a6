"""A start by ridge regression: a linear encoder and the class rows from one message of every client.

A client sends G_i = Σ x̂x̂ᵀ over its examples, with x̂ = x/|x|, and of each of its classes S_c = Σ x̂. The
sums of these over clients are all that ridge regression of labels on features needs,

    B = (G + λI)⁻¹ S        (F, C), one column for each class: x̂ᵀB are the scores of all classes

so clients with positives only get what examples in one place would give: an example of another class is
in G, whoever holds it. (Here an instance with m labels is m examples, and counts m times.) With class
rows R at right angles to each other the encoder x → RᵀBᵀx has these scores as its cosines, up to a
factor that all classes share (and but for a small bias); rounds then go on from there.
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
from spreadout.methods.class_counts import SetupMessage, is_row_list
from spreadout.methods.context import SetupContext
from spreadout.methods.positive_only import PositiveOnly
from spreadout.models.build import DataShape, ModelConfig
from spreadout.models.embedding import EmbeddingModel

CLASSES, MOMENTS, SUMS, LENGTHS = "classes", "ridge_moments", "ridge_sums", "ridge_lengths"
MOST_FEATURES = 4096  # G has half as many numbers as their square
AT_ONCE = 4096  # examples in memory at once
LITTLE = 1 / 8  # of an example's length, the bias's: it is to matter where features are dropped alone
SLACK = 1e-3  # of a client's examples, for sums in float32


class RidgeStart(PositiveOnly):
    """Training may begin at the ridge regression of all clients' labels on their features."""

    read_if: ClassVar = {"ridge_strength": ({"start": ("ridge",)},)}

    start: Literal["random", "ridge"] = "random"
    ridge_strength: float = Field(0.5, gt=0)  # λ, in units of G's mean eigenvalue

    @property
    def sends_at_setup(self) -> str | None:
        told = super().sends_at_setup
        if self.start == "random":
            return told
        return " and ".join(filter(None, (told, "second moments of their features")))

    @property
    def without_setup(self) -> str:
        return super().without_setup if self.start == "random" else 'method.start = "random"'

    @property
    def unguarded_setup(self) -> str | None:
        if self.start == "random":
            return super().unguarded_setup
        return 'method.start = "ridge" adds up whatever clients send once; take start = "random"'

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
        sums = Sums(weight.shape[1], len(table), setup.most)
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
            # gradient; with this one it is like the mean example, and others are hardly moved.
            little = min(1.0, LITTLE * sums.length)
            for name, value in state.dense.items():
                if name.endswith("bias"):
                    value.copy_(little * (weight @ sums.mean.to(weight)))
        return traffic + Traffic(once_up=sums.bytes)


def messages_of(data: FederatedDataset) -> Iterator[SetupMessage]:
    """Of each client the upper half of G_i, its classes, S_c of these, and Σ|x|; float32."""
    x, y = data.columns["x"], data.columns["y"]
    for first, last in zip(data.offsets[:-1].tolist(), data.offsets[1:].tolist(), strict=True):
        if first == last:
            yield {}
            continue
        gram, totals, length = torch.zeros(()), torch.zeros(()), 0.0
        classes, place = torch.unique(y.take(torch.arange(first, last)), return_inverse=True)
        for some in torch.split(torch.arange(first, last), AT_ONCE):
            rows = x.take(some).flatten(1).float()
            norms = rows.norm(dim=1, keepdim=True)
            length += float(norms.double().sum())
            rows = rows / norms.clamp_min(torch.finfo(torch.float32).tiny)
            gram = gram + rows.T @ rows
            named = rows.new_zeros(len(classes), rows.shape[1])
            totals = totals + named.index_add_(0, place[some - first].to(rows.device), rows)
        half = gram[torch.triu_indices(len(gram), len(gram)).unbind()]
        yield {
            CLASSES: classes.cpu().numpy().astype(np.int64),
            MOMENTS: half.cpu().numpy(),
            SUMS: totals.cpu().numpy(),
            LENGTHS: np.array([length], np.float32),
        }


class Sums:
    """G and S, as the server adds them up.

    What a client can change is bounded: a message that no examples could have made is refused, and
    one of more than `most` examples counts as so many.
    """

    def __init__(self, features: int, classes: int, most: int | None = None) -> None:
        self.half = np.zeros(features * (features + 1) // 2)
        self.right = np.zeros((classes, features))
        self.most, self.lengths, self.refused, self.bytes = most, 0.0, 0, 0
        self.diagonal = np.cumsum([0, *range(features, 1, -1)])  # where rows of the upper half begin

    def taken_from(self, messages: Iterable[SetupMessage]) -> Iterator[SetupMessage]:
        """The messages without what is meant for this; that is added."""
        ours = (MOMENTS, SUMS, LENGTHS)
        for message in messages:
            if any(name in message for name in ours):
                self._add(message)
            yield {name: array for name, array in message.items() if name not in ours}

    def _add(self, message: SetupMessage) -> None:
        if not self._is_sound(message):
            self.refused += 1
            return
        said = float(message[MOMENTS][self.diagonal].sum(dtype=np.float64))  # how many examples
        share = 1.0 if self.most is None or said <= self.most else self.most / said
        self.half += share * message[MOMENTS]
        self.right[message[CLASSES]] += share * message[SUMS]
        self.lengths += share * float(message[LENGTHS][0])
        self.bytes += sum(message[name].nbytes for name in (MOMENTS, SUMS, LENGTHS))

    def _is_sound(self, message: SetupMessage) -> bool:
        """Whether some examples of unit length, each of one of these classes, can have made it."""
        if not {CLASSES, MOMENTS, SUMS, LENGTHS} <= message.keys():
            return False
        classes, moments, sums, length = (message[name] for name in (CLASSES, MOMENTS, SUMS, LENGTHS))
        if not is_row_list(classes, len(self.right)):
            return False
        shaped = moments.shape == self.half.shape and sums.shape == (len(classes), self.right.shape[1])
        typed = moments.dtype == sums.dtype == length.dtype == np.float32
        if not (shaped and typed and length.shape == (1,)):
            return False
        if not all(np.isfinite(one).all() for one in (moments, sums, length)) or length[0] < 0:
            return False
        examples = float(moments[self.diagonal].sum(dtype=np.float64))
        longest = float(np.linalg.norm(sums.astype(np.float64), axis=1).sum())
        if longest > examples * (1 + SLACK):
            return False
        gram = self._square(moments)
        gram.diagonal().add_(SLACK * max(examples, 1.0))  # rounding
        return not bool(torch.linalg.cholesky_ex(gram)[1])

    def _square(self, half: np.ndarray) -> Tensor:
        """The symmetric matrix of its upper half: (F, F) double."""
        features = self.right.shape[1]
        gram = torch.zeros(features, features, dtype=torch.float64)
        gram[torch.triu_indices(features, features).unbind()] = torch.from_numpy(half).double()
        return gram + gram.triu(1).T

    @property
    def examples(self) -> float:
        """The diagonal of G sums to how many there are."""
        return max(float(self.half[self.diagonal].sum()), 1.0)

    @property
    def mean(self) -> Tensor:
        """x̂ of the mean example: (F,) double."""
        return torch.from_numpy(self.right.sum(0) / self.examples)

    @property
    def length(self) -> float:
        """Of the mean example."""
        return self.lengths / self.examples

    def solved(self, strength: float) -> Tensor:
        """B = (G + λI)⁻¹ S, with λ in units of G's mean eigenvalue: (F, C) double."""
        gram = self._square(self.half)
        unit = float(gram.trace()) / len(gram)
        gram.diagonal().add_(strength * unit if unit > 0 else 1.0)
        factor, failed = torch.linalg.cholesky_ex(gram)
        assert not failed  # each client's part was looked at
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
