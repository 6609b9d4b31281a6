"""A trained model as one module: plain tensors in, embeddings and the scores of all classes out.

It has all that an answer needs: the scaling of inputs, the encoder, the class table, the prior over
classes. What `Predictor` computes piece by piece, this computes as a graph that other programs run.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spreadout.core.tables import whole_of
from spreadout.core.types import Params
from spreadout.evaluation.scoring import with_one
from spreadout.models.buckets import BucketModel
from spreadout.models.lookup import LookupModel
from spreadout.runs.predict import Predictor

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Port:
    """One input of the graph; the first dimension is the batch, None is any number."""

    name: str
    kind: torch.dtype
    shape: tuple[int | None, ...]  # of one example
    about: str


class Scorer(nn.Module):
    """Inputs as `ports` says → (embeddings, scores); of a model over buckets the scores alone.

    query: stop at what an index is searched with: the embedding, with a 1 behind it where there is a
    prior.
    """

    classes: Tensor  # (C, dim)
    prior: Tensor  # (C,)
    buckets: Tensor  # (R, C)
    rows_of_classes: Tensor
    rows_of_inputs: Tensor

    def __init__(self, predictor: Predictor, *, query: bool = False) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(predictor.encoder).to(CPU).requires_grad_(False).eval()
        self.model = replace(predictor.model, encoder=self.encoder).on(CPU)
        self.query, self.shape = query, predictor.shape
        self.has_prior = predictor.prior is not None
        for name, table in predictor.state.tables.items():
            if name == "inputs" or self.model.takes_histories:
                self.register_buffer(f"rows_of_{name}", whole_of(table).detach().to(CPU))
        if isinstance(self.model, BucketModel):
            every = torch.arange(self.model.class_count)
            self.register_buffer("buckets", self.model.buckets_of(every))
        elif not query:
            ranked = slice(self.model.first_class, None)
            self.register_buffer("classes", predictor.class_vectors[ranked].to(CPU).clone())
            if predictor.prior is not None:
                self.register_buffer("prior", predictor.prior[ranked].to(CPU).clone())

    @property
    def ports(self) -> list[Port]:
        """What it takes."""
        shape = self.shape
        if self.model.takes_histories:
            about = "places in classes.json, the latest last; −1 fills up on the right"
            return [Port("history", torch.int64, (shape.window,), about)]
        if isinstance(self.model, LookupModel):
            ids = Port("ids", torch.int64, (None,), "the features that are not 0, each once")
            return [ids, Port("values", torch.float32, (None,), "their values; 0 fills up on the right")]
        if shape.image is None:
            return [Port("x", torch.float32, (shape.features,), "as the run's data has them")]
        if shape.bytes_as is None:
            return [
                Port("x", torch.float32, shape.image, "channels, height, width, scaled as in training")
            ]
        return [Port("pixels", torch.uint8, shape.image, "channels, height, width; bytes 0 … 255")]

    @property
    def outputs(self) -> list[str]:
        if self.query:
            return ["query"]
        return ["scores"] if isinstance(self.model, BucketModel) else ["embeddings", "scores"]

    def example(self, count: int = 2) -> tuple[Tensor, ...]:
        """Some inputs, at random but always the same."""
        draw = torch.Generator().manual_seed(0)
        made = []
        for port in self.ports:
            shape = [count, *(3 if side is None else side for side in port.shape)]
            if port.name == "history":
                made.append(torch.randint(0, self.model.class_count, shape, generator=draw))
            elif port.name == "ids":
                made.append(torch.arange(count * 3).reshape(shape) % (self.shape.features or 1))
            elif port.kind is torch.uint8:
                made.append(torch.randint(0, 256, shape, generator=draw, dtype=torch.uint8))
            else:
                made.append(torch.rand(shape, generator=draw))
        return tuple(made)

    def forward(self, *given: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Of the inputs that `ports` names, in that order."""
        embedded = self._embedded(*given)
        if isinstance(self.model, BucketModel):
            return self._by_buckets(embedded)
        if self.query:
            return with_one(embedded) if self.has_prior else embedded
        scores = embedded @ self.classes.T
        return embedded, scores + self.prior if self.has_prior else scores

    def _embedded(self, *given: Tensor) -> Tensor:
        # The encoder has the weights itself, so no dense tensors are handed over.
        if self.model.takes_histories:
            first = self.model.first_class
            rows = {"classes": self.rows_of_classes}
            history = torch.where(given[0] >= 0, given[0] + first, -1)
            return self.model.embed(Params({}, rows), {"history": history})
        if isinstance(self.model, LookupModel):
            ids, values = given
            own = F.embedding(ids, self.rows_of_inputs)  # (B, L, width)
            # Each example has rows of its own: one more dimension, which the encoder flattens.
            return self.model.embed(Params({}, {"inputs": own}), {"x": values[:, None]})
        (x,) = given
        if self.shape.image is not None and self.shape.bytes_as is not None:
            scale, shift = self.shape.bytes_as
            x = x.float() * scale + shift
        return self.model.embed(Params({}, {}), {"x": x})

    def _by_buckets(self, logits: Tensor) -> Tensor:
        """(R, B, buckets) → (B, C): the mean over networks of what a class's bucket has."""
        assert isinstance(self.model, BucketModel)
        each = F.logsigmoid(logits) if self.model.decoding == "log-probability" else logits
        found = [one.index_select(1, at) for one, at in zip(each, self.buckets, strict=True)]
        return torch.stack(found).mean(0)
