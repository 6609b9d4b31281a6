"""A trained model to be asked: inputs in, the best classes with their names and scores out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate, islice
from operator import index
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spreadout.core.errors import UserError
from spreadout.core.state import ServerState
from spreadout.core.tables import whole_of
from spreadout.data.held_out import Examples
from spreadout.data.input_columns import InputColumns
from spreadout.data.load import DataConfig
from spreadout.data.sources.base import Source
from spreadout.data.splits import Splits
from spreadout.data.unlabelled.wanted import Unlabelled
from spreadout.evaluation.config import Decode
from spreadout.evaluation.embed import blocks, class_vectors, embed
from spreadout.evaluation.known import KnownExamples
from spreadout.evaluation.scoring import with_one, with_prior
from spreadout.federated.federation import Federation
from spreadout.methods.base import Method
from spreadout.models.build import DataShape
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives.neighbours import Nearest
from spreadout.runs.asked import Asked, Inputs
from spreadout.runs.class_names import ClassNames
from spreadout.runs.questions import ClassSearch, Guess, Question
from spreadout.runs.stored_model import read_model


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

    Of a run on named columns, a data frame or a dictionary of columns goes by the names. Otherwise
    inputs are arrays, tensors, data frames or SciPy's sparse matrices of numbers (n, …), paths of
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
    columns: InputColumns | None = None  # of inputs, by name, where the run's data had names
    index: ClassSearch | None = None  # finds the best classes; None: all are looked at
    known: KnownExamples | None = None  # whose votes rank classes; None: class vectors alone do

    @classmethod
    def of(
        cls, config: DataConfig, data: Splits, federation: Federation, state: ServerState
    ) -> Predictor:
        """The model of a run in this process, and what its data calls the classes."""
        shape = DataShape.of(federation.data)
        names, ids = data.class_names, data.class_ids
        columns = data.train.input_columns
        hashed = _hashing(config)
        return cls(federation.model, state, shape, names, ids, hashed, config.source, columns)

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
            found.columns,
        )

    def about(self, own: Sequence[str]) -> dict[str, Any]:
        """What `model/` says of itself; own: the parts that the run was given in Python."""
        return {
            "shape": asdict(self.shape),
            "own": [part for part in ("encoder", "method") if part in own],
            "names": list(self.names),
            "ids": list(self.ids),
            "columns": None if self.columns is None else self.columns.as_json(),
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
        histories = self.model.takes_histories
        return Inputs(self.shape, self.classes, histories, self.hashed, self.source, self.columns)

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
        return self.answer([self.question(inputs, top, unseen=unseen)])[0]

    def by_neighbours(
        self, examples: Examples, decode: Decode = "knn", neighbours: int = 10
    ) -> Predictor:
        """The same model with classes ranked by the labels of the nearest of these examples.

        With `decode = "both"` the votes, as shares of 1, are added to three times the class's own score.

        >>> import spreadout as so
        >>> data = so.load_data(so.DataConfig(source="digits", validation_fraction=0.2))
        >>> result = so.run(so.Experiment(rounds=2, clients={"local_steps": 1}), data=data)
        >>> voted = result.predictor.by_neighbours(data.validation, neighbours=5)
        >>> voted.predict([[0.0] * 64], top=1)[0][0].score <= 1.001  # a share of the votes
        True
        """
        if decode not in ("knn", "both"):
            raise UserError(f'decode = {decode!r}: must be "knn" or "both"')
        if not self.model.has_class_table:
            raise UserError("this run has no embeddings to be near to: its method scores by buckets")
        return replace(
            self, known=KnownExamples.of(self.model, self.state, examples, decode, neighbours)
        )

    def question(self, inputs: Any, top: int = 10, *, unseen: bool = False) -> Question:
        """What is asked, checked."""
        if isinstance(top, bool) or not hasattr(top, "__index__") or top < 1:
            raise UserError(f"top = {top!r}: give a whole number from 1 on")
        if unseen and not self.model.takes_histories:
            raise UserError("unseen: is for histories; this run takes " + self.inputs.wanted.described)
        return Question(self._asked(inputs), index(top), unseen)

    def _asked(self, inputs: Any) -> Asked:
        """Inputs of any form, checked; notes are said here, unless somebody else has them to say."""
        asked = self.inputs.of(inputs)
        if not isinstance(inputs, Asked | Unlabelled):
            for note in asked.notes:
                warnings.warn(note, stacklevel=4)
        return asked

    def embed(self, inputs: Any) -> Tensor:
        """Every input as it is compared with `class_vectors`: (n, dim)."""
        if not self.model.has_class_table:
            raise UserError("this run has no embeddings: its method scores classes by buckets")
        asked = self._asked(inputs).examples
        parts = blocks(asked, self.model.outputs)
        return torch.cat([embed(self.model, self.state, asked, some).cpu() for some in parts])

    def scores(self, inputs: Any) -> Tensor:
        """The scores of all classes: (n, classes), in the order of the table from its first class on."""
        asked = self._asked(inputs).examples
        found = torch.empty(len(asked), self.class_count)
        exact = replace(self, index=None)
        for some in blocks(asked, self.model.outputs + self.class_count):
            best = exact._ranking(asked, some, self.class_count)
            places = best.ids.cpu() - self.shape.first_class
            found[some] = torch.empty(places.shape).scatter_(1, places, best.scores.cpu())
        return found

    def answer(self, questions: Sequence[Question]) -> list[list[list[Guess]]]:
        """Several questions at once, each with an answer for every one of its inputs."""
        joined = Asked.joined([question.asked for question in questions])
        tops = [question.top for question in questions for _ in range(len(question.asked))]
        skipped = [rows for question in questions for rows in question.skipped]
        most = max(top + len(rows) for top, rows in zip(tops, skipped, strict=True))
        found: list[list[Guess]] = []
        for some in blocks(joined.examples, self.model.outputs):
            best = self._ranking(joined.examples, some, min(most, self.class_count))
            for rows, scores in zip(best.ids.tolist(), best.scores.tolist(), strict=True):
                at = len(found)
                found.append(self._named(rows, scores, tops[at], skipped[at]))
        ends = list(accumulate(len(question.asked) for question in questions))
        return [found[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _named(
        self, rows: list[int], scores: list[float], top: int, skip: AbstractSet[int]
    ) -> list[Guess]:
        first, pairs = self.shape.first_class, zip(rows, scores, strict=True)
        # An index that finds too few fills up with rows that are none.
        kept = ((row, score) for row, score in pairs if row >= first and row not in skip)
        return [Guess(*self.classes.called(row), score) for row, score in islice(kept, top)]

    @torch.no_grad()
    def _ranking(self, examples: Examples, some: Tensor, k: int) -> Nearest:
        """The rows of the k best classes of some examples, with their scores: (n, k)."""
        embedded = embed(self.model, self.state, examples, some)
        if self.index is not None:
            found = self.index.search(embedded, k)
            return Nearest(found.scores, found.ids + self.shape.first_class)
        if not self.model.has_class_table:
            return self.model.best_classes(embedded, None, k)
        compared = embedded if self.prior is None else with_one(embedded)
        best = self.model.best_classes(compared, self._compared, k)
        return best if self.known is None else self.known.best(compared, self._compared, best)

    @cached_property
    def _compared(self) -> Tensor:
        """Class vectors with the prior behind them, where there is one: made once."""
        vectors = self.class_vectors
        return vectors if self.prior is None else whole_of(with_prior(vectors, self.prior))


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
