"""What is known of the classes themselves, on the server: features from their names, or from a file.

The outlook of Yu et al. 2020 (section 7): class embeddings made from class-level features. Only the
server's step changes. Clients get one row, as ever, and do not know where it comes from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self
from zipfile import BadZipFile

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.methods.context import ServerContext
from spreadout.methods.positive_only import PositiveOnly
from spreadout.methods.spreadout_state import SpreadoutState
from spreadout.objectives import class_tower
from spreadout.objectives.class_tower import ClassFeatures

NAMES = "names"
GRAMS = (3, 4, 5)  # letters of a piece of a name


class FromFeatures(PositiveOnly):
    """Class rows that lie near what features of the class say, the nearer the fewer examples it has."""

    state_type: ClassVar[type[SpreadoutState]] = SpreadoutState

    class_features: str | None = None  # "names", or a file of an array (C, f)
    borrow: float = Field(10.0, gt=0)  # examples from which on a class owes its features nothing
    tower_ridge: float = Field(1.0, gt=0)  # ρ: the larger, the less the tower makes of single features
    tower_steps: int = Field(5, ge=1)  # of conjugate gradients a round

    @model_validator(mode="after")
    def _of_features(self) -> Self:
        for key in ("borrow", "tower_ridge", "tower_steps"):
            if (
                self.class_features is None
                and getattr(self, key) != type(self).model_fields[key].default
            ):
                raise ValueError(f"{key}: is for class_features; give those, or leave it out")
        return self

    @property
    def ranks_unseen(self) -> bool:
        return self.class_features is not None

    @property
    def collects_counts(self) -> bool:
        return super().collects_counts or self.class_features is not None

    def learn_classes(self, names: Sequence[str], state: ServerState) -> None:
        """Keep the features of the classes, and a tower that says nothing yet."""
        if self.class_features is None:
            return
        table = local_of(state.tables["classes"])
        found = features_of(self.class_features, names, len(table))
        memory, device = state.recall(self.state_type), table.device
        memory.feature_ids, memory.feature_weights = found.ids.to(device), found.weights.to(device)
        memory.feature_offsets = found.offsets.to(device)
        memory.tower = table.new_zeros(found.width, table.shape[1])
        memory.taught = torch.zeros(len(table), dtype=torch.bool, device=device)

    def realise_(self, state: ServerState, context: ServerContext) -> None:
        """Fit the tower to the rows as they are, and bring rows within reach of what it says."""
        memory, table = state.recall(self.state_type), local_of(state.tables["classes"])
        parts = memory.feature_ids, memory.feature_weights, memory.feature_offsets
        ids, weights, offsets = (part for part in parts if part is not None)  # since `learn_classes`
        assert memory.tower is not None
        assert memory.taught is not None
        features = ClassFeatures(ids, weights, offsets, len(memory.tower))
        memory.taught[context.touched["classes"].ids] = True
        counts = self._counts(state, table)
        trust = memory.taught * counts / (counts + self.borrow)  # a row of few examples is mostly noise
        memory.tower = class_tower.fit(
            features, table, trust, memory.tower, ridge=self.tower_ridge, steps=self.tower_steps
        )
        predicted = features.times(memory.tower)
        table.copy_(class_tower.realised(table, predicted, counts / self.borrow))

    def _counts(self, state: ServerState, table: Tensor) -> Tensor:
        return state.scoring["counts"].to(table)


def features_of(source: str, names: Sequence[str], classes: int) -> ClassFeatures:
    """Those that `method.class_features` names."""
    if source != NAMES:
        return read_features(Path(source), classes)
    if len(names) < classes:
        raise UserError(
            'method.class_features = "names": this data has no names of its classes; give a file of '
            "an array with a row for each class"
        )
    return of_names(names[:classes])


def of_names(names: Sequence[str]) -> ClassFeatures:
    """Words and pieces of words that names share, by how few share them.

    A piece that one class has alone says nothing of its kin, one that all have nothing of any.

    >>> of_names(["data mining", "text mining", "sports"]).offsets.diff().tolist()  # words and pieces
    [16, 16, 0]
    """
    pieces = [Counter(_pieces(name)) for name in names]
    shared = Counter(piece for own in pieces for piece in own)
    kept = sorted(piece for piece, times in shared.items() if 1 < times < len(names))
    place = {piece: i for i, piece in enumerate(kept)}
    rows = [np.array([place[p] for p in own if p in place], dtype=np.int64) for own in pieces]
    rarity = np.log(len(names) / np.array([shared[piece] for piece in kept], dtype=np.float64))
    return ClassFeatures.of(rows, [rarity[row] for row in rows], max(len(kept), 1))


def _pieces(name: str) -> set[str]:
    found = set()
    for word in re.findall(r"\w+", name.lower().replace("_", " ")):
        whole = f"<{word}>"
        found.add(whole)
        found.update(whole[i : i + n] for n in GRAMS for i in range(len(whole) - n + 1))
    return found


def read_features(path: Path, classes: int) -> ClassFeatures:
    """From a `.npy` array (C, f), or a `.npz` as scipy's `save_npz` writes a CSR matrix."""
    try:
        stored = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or ["empty"])[0]
        raise UserError(f"method.class_features = {str(path)!r}: cannot be read ({reason})") from None
    if isinstance(stored, np.ndarray):
        if stored.ndim != 2:
            raise UserError(f"{path}: has shape {stored.shape}; class features are (classes, features)")
        rows = [np.flatnonzero(row) for row in stored]
        values, width = [row[at] for row, at in zip(stored, rows, strict=True)], stored.shape[1]
    elif {"indices", "indptr", "data", "shape"} <= set(stored.files):
        bounds = stored["indptr"][1:-1]
        rows, values = np.split(stored["indices"], bounds), np.split(stored["data"], bounds)
        width = int(stored["shape"][1])
    else:
        raise UserError(f"{path}: is no CSR matrix as scipy.sparse.save_npz writes one")
    if len(rows) != classes:
        raise UserError(f"{path}: has {len(rows)} rows; there are {classes} classes, one row for each")
    if any(v.dtype.kind not in "biuf" for v in values):
        raise UserError(f"{path}: has values that are no numbers; class features are numbers")
    if any(len(row) and not 0 <= row.min() <= row.max() < width for row in rows):
        raise UserError(f"{path}: names features beyond the {width} that its shape says")
    if not all(np.isfinite(v).all() for v in values):
        raise UserError(f"{path}: has values that are not finite")
    return ClassFeatures.of(rows, [np.asarray(v, dtype=np.float64) for v in values], width)
