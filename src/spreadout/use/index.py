"""An index of class vectors: the best classes of an input without a look at all of them (faiss)."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.evaluation.scoring import with_one, with_prior
from spreadout.objectives.approximate_neighbours import lists_for
from spreadout.objectives.neighbours import Nearest
from spreadout.runs.predict import Predictor

IndexKind = Literal["flat", "ivf"]
MANY = 100_000  # classes; from here on all are too many to look at for every input
PROBED = 32  # a 32nd of the lists is searched, if not told otherwise


@dataclass(frozen=True)
class ClassIndex:
    """Finds the classes with the largest dot products; places count from the first class."""

    index: Any
    has_prior: bool

    @classmethod
    def of(cls, predictor: Predictor, kind: IndexKind, probes: int | None = None) -> ClassIndex:
        vectors = index_vectors(predictor)
        return cls(made(vectors, kind, probes), predictor.prior is not None)

    def search(self, embedded: Tensor, k: int) -> Nearest:
        """The k best places for embeddings (B, dim); where too few are found, −1 with the score −∞."""
        queries = with_one(embedded) if self.has_prior else embedded
        scores, places = self.index.search(np.ascontiguousarray(queries.float().cpu().numpy()), k)
        found = torch.from_numpy(places)
        return Nearest(torch.from_numpy(scores).masked_fill(found < 0, -torch.inf), found)


def index_vectors(predictor: Predictor) -> np.ndarray:
    """Every class, with its prior as one coordinate more where there is one: (C, dim [+ 1]) float32."""
    if not predictor.model.has_class_table:
        raise UserError(
            "an index needs a vector for every class, and this method scores classes by buckets; "
            "export to torch-export, onnx or safetensors, which have all scores"
        )
    ranked = slice(predictor.shape.first_class, None)
    vectors = predictor.class_vectors[ranked].float().cpu()
    if predictor.prior is not None:
        wide = with_prior(vectors, predictor.prior[ranked].cpu())
        assert isinstance(wide, Tensor)
        vectors = wide
    return np.ascontiguousarray(vectors.numpy())


def made(vectors: np.ndarray, kind: IndexKind, probes: int | None = None) -> Any:
    """A faiss index by dot product: `flat` looks at every class, `ivf` at the nearest lists of them."""
    faiss = library()
    count, width = vectors.shape
    if kind == "flat":
        flat = faiss.IndexFlatIP(width)
        flat.add(vectors)
        return flat
    lists = lists_for(count)
    index = faiss.index_factory(width, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    index.nprobe = min(lists, probes or max(8, lists // PROBED))
    return index


def kind_for(classes: int) -> IndexKind:
    return "ivf" if classes >= MANY else "flat"


def library() -> Any:
    if importlib.util.find_spec("faiss") is None:
        raise UserError("an index needs an extra: pip install 'spreadout[export]'")
    import faiss

    return faiss
