"""Asking a finished run: inputs in, the best classes with their names and scores out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.core.state import ServerState
from spreadout.data.arrays import refuse_infinite
from spreadout.data.columns import Column, Dense, Lists, Sparse
from spreadout.data.dataset import Examples, Splits
from spreadout.data.feature_hashing import hashed as hash_features
from spreadout.data.load import DataConfig
from spreadout.evaluation.embed import ranked
from spreadout.federated.federation import Federation
from spreadout.methods.base import Method
from spreadout.models.build import DataShape
from spreadout.models.embedding import EmbeddingModel
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
    not the code. The encoder's own weights are left as they are.

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

    >>> import spreadout as so
    >>> predictor = so.run(so.Experiment(rounds=2, clients={"local_steps": 1})).predictor
    >>> best, second = predictor.predict([[0.0] * 64], top=2)[0]
    >>> best.score >= second.score
    True
    """

    model: EmbeddingModel
    state: ServerState
    shape: DataShape
    names: Sequence[str]
    ids: Sequence[str]
    hashed: tuple[int, bool] | None = None  # features hashed into so many, with signs or without

    @classmethod
    def of(
        cls, config: DataConfig, data: Splits, federation: Federation, state: ServerState
    ) -> Predictor:
        """The model of a run in this process, and what its data calls the classes."""
        shape = DataShape.of(federation.data)
        names, ids = data.class_names, data.class_ids
        return cls(federation.model, state, shape, names, ids, _hashing(config))

    @classmethod
    def load(
        cls, path: Path, encoder: nn.Module | None = None, method: Method | None = None
    ) -> Predictor:
        """As `so.load`."""
        found = read_model(path, encoder, method)
        hashed = _hashing(found.experiment.data)
        return cls(found.model, found.state, found.shape, found.names, found.ids, hashed)

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
        return f"<Predictor: {takes} in, {self.shape.classes - self.shape.first_class} classes>"

    def predict(self, inputs: Any, top: int = 10, *, unseen: bool = False) -> list[list[Guess]]:
        """The best classes of every input, best first.

        inputs: arrays of numbers (n, …), or for a run on histories a list of lists of items, by id or
        title. unseen: leave out items that are in the history already.
        """
        if self.model.takes_histories:
            return self.from_histories(
                [[str(one) for one in each] for each in inputs], top, unseen=unseen
            )
        if unseen:
            raise UserError("unseen: is for histories; arrays have none")
        return self.from_arrays(np.asarray(inputs), top)

    def from_histories(
        self, histories: Sequence[Sequence[str]], top: int = 10, *, unseen: bool = False
    ) -> list[list[Guess]]:
        """The next items after each history of ids or titles; `unseen`: none that it has already."""
        if not self.model.takes_histories:
            raise UserError("this run takes arrays, not histories: give an .npy or .npz file")
        rows = [[self.row_of(item) for item in self._items(history)] for history in histories]
        for history, given in zip(rows, histories, strict=True):
            if not history:
                raise UserError(f"a history is empty: {list(given)!r}")
        recent = Ragged.from_lists([history[-(self.shape.window or 1) :] for history in rows])
        column = Lists.of(recent, pad=0, width=self.shape.window)
        return self._best({"history": column}, len(rows), top, rows if unseen else None)

    def from_arrays(self, x: np.ndarray, top: int = 10) -> list[list[Guess]]:
        """The best classes of every example."""
        if self.model.takes_histories:
            raise UserError("this run takes histories of items, not arrays: give a text file")
        if x.dtype.kind not in "fiub" or x.ndim < 2:
            raise UserError(
                f"x has shape {x.shape} and type {x.dtype}: "
                f"this run takes {self.shape.features} numbers an example"
            )
        features = torch.from_numpy(x.astype(np.float32))
        refuse_infinite(features)
        if self.hashed is not None and features.dim() == 2 and features.shape[1] != self.hashed[0]:
            features = self._hashed(features)
        if self.shape.image is not None:
            features = self._images(features, is_bytes=x.dtype == np.uint8)
        elif features[:1].numel() != self.shape.features:
            raise UserError(
                f"x has shape {x.shape}: this run takes {self.shape.features} numbers an example"
            )
        return self._best({"x": Dense(features)}, len(x), top, None)

    def _hashed(self, features: Tensor) -> Tensor:
        """Raw features as the run's own hash makes them."""
        width, signed = self.hashed or (1, False)
        count = features.shape[1]
        each = Sparse(torch.arange(count), torch.ones(count), torch.arange(count + 1), count)
        return features @ hash_features(each, width, signed=signed).take(torch.arange(count))

    def _images(self, features: Tensor, *, is_bytes: bool) -> Tensor:
        """As (n, channels, height, width), bytes scaled as in training; ink is bright, as in MNIST."""
        channels, high, wide = self.shape.image or (0, 0, 0)
        known = [(channels, high, wide), (channels * high * wide,)]
        known += [(high, wide)] if channels == 1 else []
        if tuple(features.shape[1:]) == (high, wide, channels) not in known:
            features = features.movedim(-1, 1)  # channels last
        if tuple(features.shape[1:]) not in known:
            wanted = f"images of (n, {channels}, {high}, {wide})"
            raise UserError(f"x has shape {tuple(features.shape)}: this run takes {wanted}")
        if is_bytes and self.shape.bytes_as is not None:
            scale, shift = self.shape.bytes_as
            features = features * scale + shift
        return features.reshape(len(features), channels, high, wide)

    def _items(self, history: Sequence[str]) -> Sequence[str]:
        """A line that is no title may be ids with commas or spaces between them."""
        if len(history) == 1 and history[0].strip().casefold() not in self._by_name:
            pieces = re.split(r"[,;\s]+", history[0].strip())
            if all(piece in self._by_id for piece in pieces):
                return pieces
        return history

    def row_of(self, item: str) -> int:
        """The table row of an item given by its id, its title, or a part of one title only."""
        key = item.strip()
        if key in self._by_id:
            return self._by_id[key]
        named = self._by_name.get(key.casefold(), [])
        if not named and not key.isdigit():  # a number is an id, known or not
            named = [
                row for name, rows in self._by_name.items() if key.casefold() in name for row in rows
            ]
        if len(named) == 1:
            return named[0]
        known = ", ".join(f"{self.names[row]!r} (id {self._called(row)[0]})" for row in named[:3])
        if named:
            raise UserError(f"item {key!r}: may be {known}{' and others' * (len(named) > 3)}; say which")
        raise UserError(
            f"item {key!r}: no such id or title; write items with tabs between them, or JSON lists"
        )

    @cached_property
    def _by_id(self) -> dict[str, int]:
        first = self.shape.first_class
        return {name: row for row, name in enumerate(self.ids) if row >= first and name}

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row, name in enumerate(self.names):
            if row >= self.shape.first_class and name:
                found.setdefault(name.casefold(), []).append(row)
        return found

    @torch.no_grad()
    def _best(
        self, inputs: dict[str, Column], count: int, top: int, seen: list[list[int]] | None
    ) -> list[list[Guess]]:
        first = self.shape.first_class
        known = self.shape.classes - first
        most = max((len(set(rows)) for rows in seen), default=0) if seen else 0
        examples = Examples(inputs, Ragged(torch.zeros(count + 1, dtype=torch.int64), torch.empty(0)))
        found: list[list[Guess]] = []
        for some in torch.split(torch.arange(count), 4096):
            best = ranked(self.model, self.state, examples, some, min(top + most, known))
            for i, (rows, scores) in enumerate(zip(best.ids, best.scores, strict=True)):
                skip = set(seen[int(some[i])]) if seen else set()
                found.append(self._guesses(rows, scores, skip)[:top])
        return found

    def _guesses(self, rows: Tensor, scores: Tensor, skip: set[int]) -> list[Guess]:
        pairs = zip(rows.tolist(), scores.tolist(), strict=True)
        return [Guess(*self._called(row), score) for row, score in pairs if row not in skip]

    def _called(self, row: int) -> tuple[str, str]:
        known = str(self.ids[row]) if row < len(self.ids) else str(row)
        return known, str(self.names[row]) if row < len(self.names) else known


def _hashing(data: DataConfig) -> tuple[int, bool] | None:
    return None if data.hash_features is None else (data.hash_features, data.hash_signs)
