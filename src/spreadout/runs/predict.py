"""A trained model to be asked: inputs in, the best classes with their names and scores out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spreadout.core.errors import UserError
from spreadout.core.state import ServerState
from spreadout.core.tables import whole_of
from spreadout.data.dataset import Splits
from spreadout.data.load import DataConfig
from spreadout.data.sources.base import Source
from spreadout.evaluation.embed import blocks, class_vectors, embed, ranked
from spreadout.federated.federation import Federation
from spreadout.methods.base import Method
from spreadout.models.build import DataShape
from spreadout.models.embedding import EmbeddingModel
from spreadout.runs.asked import Asked, Inputs
from spreadout.runs.class_names import ClassNames
from spreadout.runs.stored_model import read_model


@dataclass(frozen=True)
class Guess:
    """One class, as the run's data calls it, and its score."""

    id: str
    name: str
    score: float


def load(
    folder: str | Path, encoder: nn.Module | None = None, method: Method | None = None
) -> Predictor:
    """The trained model of a run folder, ready to be asked.

    Give `encoder` and `method` again if the run was given them: the folder holds the trained weights,
    not the code. The encoder's own weights are left as they are; `.encoder` of what is returned has the
    trained ones.

    >>> import tempfile
    >>> import spreadout as so
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> result = so.run(so.Experiment(rounds=2, clients={"local_steps": 1}), out=folder)
    >>> predictor = so.load(folder)
    >>> guesses = predictor.predict([[0.5] * 64, [1.0] * 64], top=3)  # two inputs, three classes each
    >>> [len(each) for each in guesses]
    [3, 3]
    """
    return Predictor.load(Path(folder), encoder, method)


@dataclass(frozen=True, repr=False)
class Predictor:
    """A trained model, ready to be asked: `so.load` gives one, and `Result.predictor` is one.

    Inputs are arrays, tensors, data frames or SciPy's sparse matrices of numbers (n, …), paths of
    pictures, or for a run on histories lists of items, by id or title; or the path of a file or folder
    that holds inputs.

    >>> import spreadout as so
    >>> predictor = so.run(so.Experiment(rounds=2, clients={"local_steps": 1})).predictor
    >>> best, second = predictor.predict([[0.0] * 64], top=2)[0]
    >>> best.score >= second.score
    True
    >>> predictor.embed([[0.0] * 64]).shape, predictor.class_vectors.shape
    (torch.Size([1, 128]), torch.Size([10, 128]))
    """

    model: EmbeddingModel
    state: ServerState
    shape: DataShape
    names: Sequence[str]
    ids: Sequence[str]
    hashed: tuple[int, bool] | None = None  # features hashed into so many, with signs or without
    source: Source | None = None  # what read the run's data

    @classmethod
    def of(
        cls, config: DataConfig, data: Splits, federation: Federation, state: ServerState
    ) -> Predictor:
        """The model of a run in this process, and what its data calls the classes."""
        shape = DataShape.of(federation.data)
        names, ids = data.class_names, data.class_ids
        return cls(federation.model, state, shape, names, ids, _hashing(config), config.source)

    @classmethod
    def load(
        cls, path: Path, encoder: nn.Module | None = None, method: Method | None = None
    ) -> Predictor:
        """As `so.load`."""
        found = read_model(path, encoder, method)
        config = found.experiment.data
        return cls(
            found.model,
            found.state,
            found.shape,
            found.names,
            found.ids,
            _hashing(config),
            config.source,
        )

    def about(self, own: Sequence[str]) -> dict[str, Any]:
        """What `model/` says of itself; own: the parts that the run was given in Python."""
        return {
            "shape": asdict(self.shape),
            "own": [part for part in ("encoder", "method") if part in own],
            "names": list(self.names),
            "ids": list(self.ids),
        }

    def __repr__(self) -> str:
        takes = "histories" if self.model.takes_histories else f"{self.shape.features} numbers"
        return f"<Predictor: {takes} in, {self.class_count} classes>"

    @property
    def class_count(self) -> int:
        """How many classes are ranked."""
        return self.shape.classes - self.shape.first_class

    @cached_property
    def classes(self) -> ClassNames:
        """What classes are called."""
        return ClassNames(self.ids, self.names, self.shape.first_class, self.shape.classes)

    @cached_property
    def inputs(self) -> Inputs:
        """What inputs may look like."""
        return Inputs(self.shape, self.classes, self.model.takes_histories, self.hashed, self.source)

    @cached_property
    def encoder(self) -> nn.Module:
        """The trained encoder.

        A run's own encoder maps inputs to vectors, which are compared with `class_vectors` at length
        one: `normalize(encoder(x)) @ class_vectors.T`, plus `prior` where there is one.
        """
        return with_weights(self.model, self.state)

    @cached_property
    def class_vectors(self) -> Tensor:
        """What embeddings are compared with, a row for every class: (C, dim).

        Rows below `shape.first_class` are no class: the padding of histories has one.
        """
        if not self.model.has_class_table:
            raise UserError(
                "this run has no class vectors: its method scores classes by buckets; ask for `scores`"
            )
        return whole_of(class_vectors(self.model, self.state)).detach()

    @property
    def prior(self) -> Tensor | None:
        """What every class's score is raised by, τ · log n_c: (C,); None: nothing."""
        return self.state.scoring.get("prior")

    def predict(self, inputs: Any, top: int = 10, *, unseen: bool = False) -> list[list[Guess]]:
        """The best classes of every input, best first; unseen: none that is in the history already."""
        if isinstance(top, bool) or not isinstance(top, int) or top < 1:
            raise UserError(f"top = {top!r}: give a whole number from 1 on")
        if unseen and not self.model.takes_histories:
            raise UserError("unseen: is for histories; arrays have none")
        return list(self._best(self.inputs.of(inputs), top, unseen=unseen))

    def embed(self, inputs: Any) -> Tensor:
        """Every input as it is compared with `class_vectors`: (n, dim)."""
        if not self.model.has_class_table:
            raise UserError("this run has no embeddings: its method scores classes by buckets")
        asked = self.inputs.of(inputs).examples
        parts = blocks(asked, self.model.outputs)
        return torch.cat([embed(self.model, self.state, asked, some).cpu() for some in parts])

    def scores(self, inputs: Any) -> Tensor:
        """The scores of all classes: (n, classes), in the order of the table from its first class on."""
        asked = self.inputs.of(inputs).examples
        found = torch.empty(len(asked), self.class_count)
        for some in blocks(asked, self.model.outputs + self.class_count):
            best = ranked(self.model, self.state, asked, some, self.class_count)
            places = best.ids.cpu() - self.shape.first_class
            found[some] = torch.empty(places.shape).scatter_(1, places, best.scores.cpu())
        return found

    @torch.no_grad()
    def _best(self, asked: Asked, top: int, *, unseen: bool) -> Iterator[list[Guess]]:
        seen = asked.histories if unseen else None
        most = max((len(set(rows)) for rows in seen), default=0) if seen else 0
        k = min(top + most, self.class_count)
        for some in blocks(asked.examples, self.model.outputs):
            best = ranked(self.model, self.state, asked.examples, some, k)
            for at, rows, scores in zip(some.tolist(), best.ids, best.scores, strict=True):
                skip = set(seen[at]) if seen else set()
                pairs = zip(rows.tolist(), scores.tolist(), strict=True)
                named = [
                    Guess(*self.classes.called(row), score) for row, score in pairs if row not in skip
                ]
                yield named[:top]


def with_weights(model: EmbeddingModel, state: ServerState) -> nn.Module:
    """The model's encoder with the trained weights in it, from now on; they are shared, not copied."""
    parameters = dict(model.encoder.named_parameters())
    if any(value.is_meta for value in parameters.values()):
        model.encoder.load_state_dict(state.dense, strict=False, assign=True)
    else:  # in their places, so that parameters which are one stay one
        for name, value in state.dense.items():
            parameters[name].data = value
    return model.encoder.eval()


def _hashing(data: DataConfig) -> tuple[int, bool] | None:
    return None if data.hash_features is None else (data.hash_features, data.hash_signs)
