"""What a trained model takes, and what was found for it in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from spreadout.core.errors import UserError
from spreadout.data.columns import Sparse
from spreadout.data.input_columns import InputColumns
from spreadout.data.sources.base import Source


@dataclass(frozen=True)
class Wanted:
    """What the files must hold to be asked about."""

    features: int | None  # numbers an input has; None: histories, or features of any number
    image: tuple[int, int, int] | None = None  # channels, height, width; None: no images
    bytes_are_pixels: bool = False  # whether the model knows how bytes become its numbers
    histories: bool = False
    source: Source | None = None  # what read the run's data
    columns: InputColumns | None = None  # by name, where the run's data had names
    labels: Sequence[str] = field(default=(), repr=False)  # classes by name; a table may hold them too

    @property
    def encoding(self) -> str | None:
        """Of files that are no UTF-8, as the run's own was."""
        return getattr(self.source, "encoding", None)

    @property
    def has_decimal_comma(self) -> bool:
        """Whether numbers of the run's own file have one."""
        return getattr(self.source, "decimal", ".") == ","

    @property
    def texts(self) -> InputColumns | None:
        """What makes numbers of texts, where the run was trained on those."""
        return self.columns if self.columns is not None and self.columns.text is not None else None

    @property
    def described(self) -> str:
        """In words, for errors."""
        if self.histories:
            return "histories of items"
        if self.image is not None:
            channels, high, wide = self.image
            return f"images of (n, {channels}, {high}, {wide})"
        if self.texts is not None:
            return f"texts ({self.texts.names[0]!r}), or the {self.texts.width} numbers made of each"
        many = "as many" if self.features is None else f"{self.features}"
        return f"{many} numbers an example"


@dataclass(frozen=True)
class Unlabelled:
    """Inputs as they stand in a file: arrays, sparse vectors, or histories of items."""

    x: np.ndarray | Sparse | None = None
    histories: list[list[str]] | None = None
    called: Sequence[str] = ()  # what the file calls each of them: a picture's name, a user's
    notes: tuple[str, ...] = ()  # what whoever asks should know of how they were read

    def __len__(self) -> int:
        if self.histories is not None:
            return len(self.histories)
        return 0 if self.x is None else len(self.x)


def refuse_empty(found: Unlabelled, origin: object) -> Unlabelled:
    if not len(found):
        raise UserError(f"{origin}: has no inputs")
    return found
