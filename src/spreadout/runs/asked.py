"""Inputs in whatever form a person has them, as the columns a model takes.

Arrays, tensors, data frames, SciPy's sparse matrices, histories of items, pictures by their paths, and
every file that `data/unlabelled` reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged, offsets_from_lengths
from spreadout.data.arrays import from_scipy, refuse_infinite
from spreadout.data.columns import Column, Dense, Lists, Sparse
from spreadout.data.feature_hashing import hashed as hash_features
from spreadout.data.held_out import Examples
from spreadout.data.input_columns import InputColumns, by_name, is_cell_of_text
from spreadout.data.sources.base import Source
from spreadout.data.sources.interactions import Interactions
from spreadout.data.sources.times import in_order
from spreadout.data.unlabelled.events import histories_of
from spreadout.data.unlabelled.files import read_inputs
from spreadout.data.unlabelled.pictures import read_picture_files
from spreadout.data.unlabelled.wanted import Unlabelled, Wanted
from spreadout.models.build import DataShape
from spreadout.runs.class_names import ClassNames


@dataclass(frozen=True)
class Asked:
    """Inputs in the form that the model takes."""

    examples: Examples  # without labels
    called: Sequence[str] = ()  # what their file calls each of them
    histories: list[list[int]] | None = None  # the rows of all items in each history
    notes: tuple[str, ...] = ()  # what whoever asks should know of how they were read

    def __len__(self) -> int:
        return len(self.examples)

    @classmethod
    def joined(cls, parts: Sequence[Asked]) -> Asked:
        """One after another; all are of one model."""
        if len(parts) == 1:
            return parts[0]
        names = parts[0].examples.inputs
        columns = {name: _joined([part.examples.inputs[name] for part in parts]) for name in names}
        return cls(_examples(columns, sum(map(len, parts))))


@dataclass(frozen=True)
class Inputs:
    """Turns what is given into what a model of this shape takes."""

    shape: DataShape
    classes: ClassNames
    takes_histories: bool
    hashed: tuple[int, bool] | None = None  # features hashed into so many, with signs or without
    source: Source | None = None  # what read the run's data
    columns: InputColumns | None = None  # by name, where the run's data had names

    @cached_property
    def wanted(self) -> Wanted:
        return Wanted(
            features=None if self.hashed else self.shape.features,
            image=self.shape.image,
            bytes_are_pixels=self.shape.bytes_as is not None,
            histories=self.takes_histories,
            source=self.source,
            columns=self.columns,
            labels=self.classes.names,
        )

    def of(self, given: Any) -> Asked:
        """Inputs of any form, checked."""
        if isinstance(given, Asked):
            return given
        if isinstance(given, Unlabelled):
            return self._unlabelled(given)
        if isinstance(given, str | Path):
            return self._unlabelled(read_inputs(Path(given), self.wanted))
        if self.takes_histories:
            return self._unlabelled(_as_histories(given, self.wanted))
        if self.columns is not None and (named := by_name(given)) is not None:
            x, notes = self.columns.encode(named)
            return self._unlabelled(Unlabelled(x, notes=notes))
        if self.wanted.texts is not None and (texts := _texts_in(given)) is not None:
            return self._unlabelled(Unlabelled(self.wanted.texts.encode_texts(texts)))
        if isinstance(given, list | tuple) and given and all(isinstance(p, str | Path) for p in given):
            return self._unlabelled(read_picture_files([Path(p) for p in given], self.wanted))
        if hasattr(given, "tocsr"):
            return self._features(from_scipy(given))
        if isinstance(given, Tensor) and given.layout is not torch.strided:
            given = given.detach().cpu().to_dense()
        return self._features(self._array(given))

    def _unlabelled(self, found: Unlabelled) -> Asked:
        if found.histories is not None:
            return self._histories(found.histories, found.called)
        if found.x is None:
            raise UserError("there are no inputs; give at least one")
        return replace(self._features(found.x, found.called), notes=found.notes)

    def _histories(self, histories: Sequence[Sequence[str]], called: Sequence[str] = ()) -> Asked:
        """The last items of each, as many as the model looks at."""
        if not self.takes_histories:
            raise UserError("this run takes arrays, not histories: give an .npy or .npz file")
        if not histories:
            raise UserError("there are no histories; give at least one")
        rows = [self.classes.rows_of(history) for history in histories]
        for history, given in zip(rows, histories, strict=True):
            if not history:
                raise UserError(f"a history is empty: {list(given)!r}")
        recent = Ragged.from_lists([history[-(self.shape.window or 1) :] for history in rows])
        column = Lists.of(recent, pad=0, width=self.shape.window)
        return Asked(_examples({"history": column}, len(rows)), called, rows)

    def _features(self, x: np.ndarray | Sparse, called: Sequence[str] = ()) -> Asked:
        if self.takes_histories:
            raise UserError("this run takes histories of items, not arrays: give lists, or a text file")
        if isinstance(x, Sparse):
            column: Column = self._sparse(x)
        else:
            column = Dense(self._dense(x))
        if not len(column):
            raise UserError("there are no inputs; give at least one")
        return Asked(_examples({"x": column}, len(column)), called)

    def _sparse(self, x: Sparse) -> Column:
        refuse_infinite(x.weights[:, None])
        if self.hashed is not None and x.width != self.hashed[0]:
            x = hash_features(x, self.hashed[0], signed=self.hashed[1])
        if x.width != self.shape.features:
            raise UserError(f"x has {x.width} features: this run takes {self.wanted.described}")
        return x if self.shape.image is None else Dense(self._images(x.dense().values, is_bytes=False))

    def _dense(self, x: np.ndarray) -> Tensor:
        if x.dtype.kind in "fiub" and x.ndim == 1 and x.size:
            raise UserError(
                f"x has shape {x.shape}: give a list of inputs, [[…]], also if it is one; this run "
                f"takes {self.wanted.described}"
            )
        if x.dtype.kind not in "fiub" or x.ndim < 2:
            raise UserError(
                f"x has shape {x.shape} and type {x.dtype}: this run takes {self.wanted.described}"
            )
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused
            features = torch.from_numpy(x.astype(np.float32))
        refuse_infinite(features)
        if self.hashed is not None and features.dim() == 2 and features.shape[1] != self.hashed[0]:
            return self._hashed(features)
        if self.shape.image is not None:
            return self._images(features, is_bytes=x.dtype == np.uint8)
        if features.shape[1:].numel() != self.shape.features:
            raise UserError(f"x has shape {x.shape}: this run takes {self.wanted.described}")
        return features

    def _hashed(self, features: Tensor) -> Tensor:
        """Raw features as the run's own hash makes them: the work of those that are not 0."""
        row, column = features.nonzero(as_tuple=True)
        offsets = offsets_from_lengths(torch.bincount(row, minlength=len(features)))
        width, signed = self.hashed or (1, False)
        raw = Sparse(column, features[row, column], offsets, features.shape[1])
        return hash_features(raw, width, signed=signed).dense().values

    def _images(self, features: Tensor, *, is_bytes: bool) -> Tensor:
        """As (n, channels, height, width), bytes scaled as in training; ink is bright, as in MNIST."""
        channels, high, wide = self.shape.image or (0, 0, 0)
        known = [(channels, high, wide), (channels * high * wide,)]
        known += [(high, wide)] if channels == 1 else []
        if tuple(features.shape[1:]) == (high, wide, channels) not in known:
            features = features.movedim(-1, 1)  # channels last
        if tuple(features.shape[1:]) not in known:
            said = f"x has shape {tuple(features.shape)}"
            raise UserError(f"{said}: this run takes {self.wanted.described}")
        if is_bytes and self.shape.bytes_as is not None:
            scale, shift = self.shape.bytes_as
            features = features * scale + shift
        return features.reshape(len(features), channels, high, wide)

    def _array(self, given: Any) -> np.ndarray:
        """Anything that is an array of numbers: lists, tensors, data frames."""
        if isinstance(given, Tensor):
            plain = given.detach().cpu()
            return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
        if hasattr(given, "columns") and hasattr(given, "to_numpy"):
            for name, kind in zip(given.columns, given.dtypes, strict=True):
                numbers = kind.is_numeric() if hasattr(kind, "is_numeric") else kind.kind in "fiub"
                if not numbers:
                    raise UserError(
                        f"x: column {str(name)!r} holds {kind}, no numbers; this run takes "
                        f"{self.wanted.described}"
                    )
            if hasattr(given, "iloc"):  # of pandas, whose numbers may be missing
                return np.asarray(given.to_numpy(dtype=np.float64, na_value=np.nan))
            return np.asarray(given.to_numpy())
        try:
            return np.asarray(given)
        except (ValueError, TypeError):
            raise UserError(
                f"x has rows of different lengths; this run takes {self.wanted.described}"
            ) from None


def _texts_in(given: Any) -> Sequence[Any] | None:
    """A list of texts, of which some may be numbers or missing, or an array or a series of them."""
    listed = getattr(given, "tolist", None) or getattr(given, "to_list", None)
    if listed is not None and getattr(given, "ndim", 1) == 1:
        given = listed()
    if not isinstance(given, list | tuple) or not all(map(is_cell_of_text, given)):
        return None
    return given if any(isinstance(one, str) for one in given) else None


def _joined(columns: Sequence[Column]) -> Column:
    """Columns of one input one after another; sparse and dense ones together are dense."""
    if all(isinstance(column, Lists) for column in columns):
        lists = [column for column in columns if isinstance(column, Lists)]
        every = Ragged.concatenated([column.ragged() for column in lists])
        return Lists.of(every, pad=0, width=lists[0].width)
    if all(isinstance(column, Sparse) for column in columns):
        return Sparse.joined([column for column in columns if isinstance(column, Sparse)])
    return Dense(torch.cat([column.take(torch.arange(len(column))) for column in columns]))


def _examples(columns: dict[str, Column], count: int) -> Examples:
    return Examples(columns, Ragged(torch.zeros(count + 1, dtype=torch.int64), torch.empty(0)))


def _as_histories(given: Any, wanted: Wanted) -> Unlabelled:
    """Lists of items, or a data frame of events."""
    if hasattr(given, "columns") and hasattr(given, "to_numpy"):
        named = wanted.source if isinstance(wanted.source, Interactions) else Interactions()
        if not {named.user, named.item} <= set(given.columns):
            raise UserError(
                f"a data frame of events has the columns {named.user!r} and {named.item!r}; "
                f"this one has {', '.join(map(str, given.columns))[:80]!r}"
            )
        user, item = (np.asarray(given[name].to_numpy()) for name in (named.user, named.item))
        user = user.astype(str) if user.dtype.kind == "O" else user  # text and numbers may be mixed
        if named.time not in given.columns:
            return histories_of(user, item, None)
        time = np.asarray(given[named.time].to_numpy())
        if time.dtype.kind in "OUT":  # as a file has them
            time = np.array([str(one).encode() for one in time.tolist()])
        return histories_of(user, item, in_order("events", time))
    if isinstance(given, Tensor):
        given = given.tolist()
    if any(isinstance(one, str | int | float) or not hasattr(one, "__iter__") for one in given):
        raise UserError(
            "this run takes histories, each a list of items: give [[10, 20]] rather than [10, 20]"
        )
    return Unlabelled(histories=[[str(item) for item in history] for history in given])
