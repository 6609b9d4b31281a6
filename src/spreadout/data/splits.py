"""The parts of one data set: what clients train on, and what models are scored on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spreadout.core.errors import UserError
from spreadout.data.columns import Column, Dense
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.naming import joined


@dataclass(frozen=True, repr=False)
class Splits:
    """Data kept apart by construction: only `train` has clients, only the others are scored.

    >>> import spreadout as so
    >>> x, y = [[0.0, 1.0], [1.0, 0.0]], [0, 1]
    >>> train = so.FederatedDataset.from_arrays(x, y, client=y)
    >>> data = so.Splits("toy", train, test=so.Examples.from_arrays(x, y))
    >>> so.run(so.Experiment(rounds=2), data=data).summary["dataset"]
    'toy'
    """

    name: str
    train: FederatedDataset
    test: Examples
    validation: Examples | None = None
    class_names: tuple[str, ...] = ()
    class_ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what a user should know of how the files were read
    published_test: bool = False  # whether the source has a test part of its own

    def __post_init__(self) -> None:
        """Classes with names are numbered alike in all parts, and keep their names."""
        for name, kind in (("train", FederatedDataset), ("test", Examples)):
            if not isinstance(getattr(self, name), kind):
                found = type(getattr(self, name)).__name__
                raise UserError(f"{name}: is a {found}; give so.{kind.__name__}.from_arrays(…)")
        names = called = self.train.class_names
        for part, held in (("test", self.test), ("validation", self.validation)):
            if held is None:
                continue
            if held.class_names[: len(names)] != names or (held.class_names and not names):
                raise UserError(
                    f"{part}: its classes are not numbered as those of the training data are; make it "
                    "with like=train, so that names mean the same"
                )
            trained = self.train.input_columns.names if self.train.input_columns else ()
            if trained and held.column_names and held.column_names != trained:
                raise UserError(
                    f"{part}: its columns are {', '.join(held.column_names)[:80]}, those of the "
                    f"training data {', '.join(trained)[:80]}; make it with like=train"
                )
            x, own = self.train.columns.get("x"), held.inputs.get("x")
            if x is not None and own is not None and x.example_bytes != own.example_bytes:
                raise UserError(
                    f"{part}: its inputs have {own.example_bytes // 4} numbers, those of the training "
                    f"data {x.example_bytes // 4}; they must agree"
                )
            if own is not None and _are_bytes(x) != _are_bytes(own):  # a node scores nothing
                raise UserError(
                    f"{part}: its images or those of the training data are bytes, the others numbers; "
                    "bytes are scaled, so give both as bytes or neither"
                )
            if part == "test":
                called = held.class_names
                continue
            called, places = joined(called, held.class_names, len(names))
            if places != list(range(len(places))):  # new classes of both parts are numbered together
                object.__setattr__(self, part, held.renumbered(places, called))
        if called and not self.class_names:
            object.__setattr__(self, "class_names", called)
            object.__setattr__(self, "class_ids", called)

    def scored(self, split: Literal["test", "validation"]) -> Examples | None:
        """The held-out part of that name; None where there is none."""
        return self.test if split == "test" else self.validation

    def __repr__(self) -> str:
        held = "" if self.validation is None else f", validation {self.validation!r}"
        return f"<Splits {self.name}: train {self.train!r}, test {self.test!r}{held}>"


def _are_bytes(column: Column | None) -> bool:
    return isinstance(column, Dense) and column.scale is not None
