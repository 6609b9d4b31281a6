"""From a source to a federation's data: hold out, then assign the rest to clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.core.registry import Section
from spreadout.data import partition
from spreadout.data.columns import Column, Dense, Lists, Sparse, select_all
from spreadout.data.dataset import FederatedDataset
from spreadout.data.declared import refuse_found_in_rows
from spreadout.data.feature_hashing import hashed
from spreadout.data.gaps import Gappy, filled, usual
from spreadout.data.held_out import Examples
from spreadout.data.input_columns import InputColumns
from spreadout.data.partition import Assignment
from spreadout.data.partitions import AnyPartition, ByLabel, ByUser, Given, users_of
from spreadout.data.sources import SOURCES, AnySource
from spreadout.data.sources.base import Instances, RawDataset, Source
from spreadout.data.sources.digits import Digits
from spreadout.data.sources.python import source_for
from spreadout.data.splits import Splits


class DataConfig(Section):
    """`[data]`: what each client holds.

    >>> import spreadout as so
    >>> config = so.DataConfig(source="digits", partition={"name": "dirichlet", "clients": 5})
    >>> config.partition.alpha
    0.5
    """

    source: AnySource = Digits()
    path: Path | None = None
    partition: AnyPartition = ByLabel()
    targets: Literal["each", "one", "all", "pooled"] | None = None  # None: the partition's default
    hash_features: int | None = Field(None, ge=1)  # sparse features hashed into so many
    hash_signs: bool = False  # … each with a sign of its own
    hold_out: Literal["random", "users"] = "random"  # where the source has no test part of its own
    test_fraction: float = Field(0.3, gt=0, lt=1)
    validation_fraction: float = Field(0.0, ge=0, lt=1)  # cut off the training part
    split_seed: Annotated[int, Field(ge=0)] | Literal["run"] = (
        "run"  # draws the held-out part; "run": by the run's own seed
    )
    validation_seed: int = Field(
        0, ge=0
    )  # which of the rest are for validation: several make a cross-validation

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, values: Any) -> Any:
        """What goes with a source, such as a client for every user, unless the config says otherwise."""
        if not isinstance(values, Mapping):
            return values
        source = values.get("source")
        name = source.get("name") if isinstance(source, Mapping) else source
        if isinstance(source, Source):
            defaults = source.data_defaults
        else:
            defaults = SOURCES[str(name)].data_defaults if name in SOURCES else {}
        partition = values.get("partition")
        if isinstance(partition, Mapping) and "name" not in partition:  # options alone: of the default
            kind = defaults.get("partition", ByLabel.names()[0])
            values = {**values, "partition": {"name": kind, **partition}}
        return {**defaults, **values}

    @model_validator(mode="after")
    def _signs_of_something(self) -> DataConfig:
        if self.hash_signs and self.hash_features is None:
            raise ValueError("hash_signs: needs hash_features, what they are the signs of")
        return self

    @model_validator(mode="after")
    def _hashed_once(self) -> DataConfig:
        if self.hash_features is not None and self.source.hashes:
            raise ValueError(
                f"hash_features = {self.hash_features}: features of source = {self.source.name!r} are "
                "hashed already; leave it out, and set data.source.width to have fewer"
            )
        return self

    @model_validator(mode="after")
    def _path_is_read(self) -> DataConfig:
        """A file that nobody reads is not the data that somebody meant."""
        if self.path is not None and not self.source.reads_path:
            raise ValueError(
                f"path: source = {self.source.name!r} reads no file; for {self.path.name} set "
                f"data.source = {source_for(self.path)}"
            )
        return self

    @field_validator("path")
    @classmethod
    def _from_anywhere(cls, path: Path | None) -> Path | None:
        """Absolute, so that a run folder can be resumed from another place."""
        return None if path is None else path.expanduser().absolute()


def load_data(
    config: DataConfig, seed: int = 0, found: RawDataset | None = None, *, private: bool = False
) -> Splits:
    """Read the source, hold out test and validation, and assign the rest to clients.

    found: what `read` gives, where that was done before. private: whether nothing that the model says
    of its inputs may be found in rows, as under `[privacy]`: what would be is refused.

    >>> import spreadout as so
    >>> digits = so.load_data(so.DataConfig(source="digits"))  # a client for each digit
    >>> digits.train.clients, digits.train.examples, len(digits.test)
    (10, 1257, 540)
    """
    if not isinstance(config, DataConfig):
        kind = type(config).__name__
        raise UserError(f"config: is a {kind}; give so.DataConfig(source=…)")
    found = found or read(config)
    if private:
        refuse_found_in_rows(found, config.path or config.source.name)
    train, validation, test = _hold_out(config, found, seed)
    if found.gaps:
        by = usual(_sparse(train), found.gaps)  # what training rows alone say
        train, test = (_without_gaps(part, found.gaps, by) for part in (train, test))
        validation = None if validation is None else _without_gaps(validation, found.gaps, by)
    if config.hash_features is not None:
        train, test = _hashed(config, train), _hashed(config, test)
        validation = None if validation is None else _hashed(config, validation)
    parts = {"test": test, "training": train}
    if validation is not None:
        parts["validation"] = validation
    for part, instances in parts.items():
        if len(instances) == 0:
            raise UserError(
                f"data.source = {config.source.name!r}: no example is left for the {part} part; "
                "change data.test_fraction or data.validation_fraction"
            )
    inputs = found.input_columns
    if inputs is not None and inputs.text is None and not private:  # no cell of a text is empty
        inputs = inputs.fitted(_dense(train))
        train, test = _filled(train, inputs), _filled(test, inputs)
        validation = None if validation is None else _filled(validation, inputs)
    federated = distribute(train, _assign(config, found, train, seed), found)
    called = _clients_called(config, found, train, federated)
    federated = replace(federated, client_names=called, input_columns=inputs)
    return Splits(
        config.source.name,
        federated,
        _examples(test),
        None if validation is None else _examples(validation),
        found.class_names,
        found.class_ids,
        found.notes,
        found.test is not None,
    )


def read(config: DataConfig) -> RawDataset:
    """The source's instances, before anybody holds them."""
    found = config.source.read(config.path)
    if not len(found.train):
        raise UserError(f"{config.path or config.source.name}: has no rows to train on")
    _refuse_featureless(config, found)
    return found


def _dense(part: Instances) -> Tensor:
    """The numbers of a table's rows: (n, D)."""
    return part.columns["x"].take(torch.arange(len(part)))


def _filled(part: Instances, inputs: InputColumns) -> Instances:
    """Without empty cells, by what the training rows alone say."""
    return replace(part, columns={**part.columns, "x": Dense(inputs.filled(_dense(part)))})


def _refuse_featureless(config: DataConfig, found: RawDataset) -> None:
    """Inputs that say nothing: no model can be made of them."""
    for part in (found.train, found.test):
        for name, column in () if part is None else part.columns.items():
            empty = isinstance(column, Sparse) and column.width == 0
            if empty or (isinstance(column, Dense) and 0 in column.values.shape[1:]):
                where = config.path or config.source.name
                raise UserError(f"{where}: {name} has no features; give at least one")


def _hashed(config: DataConfig, part: Instances) -> Instances:
    """The same with its sparse features hashed into fewer."""
    x = part.columns.get("x")
    if not isinstance(x, Sparse):
        raise UserError(
            f"data.hash_features: data.source = {config.source.name!r} has no sparse features"
        )
    shrunk = hashed(x.compact(), config.hash_features or 1, signed=config.hash_signs)
    return replace(part, columns={**part.columns, "x": shrunk})


def _sparse(part: Instances) -> Sparse:
    x = part.columns["x"]
    assert isinstance(x, Sparse), "gaps are of sparse inputs"
    return x


def _without_gaps(part: Instances, gaps: Sequence[Gappy], by: Sequence[tuple[int, float]]) -> Instances:
    return replace(part, columns={**part.columns, "x": filled(_sparse(part), gaps, by)})


def distribute(instances: Instances, assignment: Assignment, found: RawDataset) -> FederatedDataset:
    """Every client with its examples; an instance that several clients hold is stored once."""
    at = assignment.instance
    in_order = len(at) == len(instances) and bool((at == torch.arange(len(at))).all())
    columns: dict[str, Column] = dict(
        instances.columns if in_order else select_all(instances.columns, at)
    )
    if assignment.label is not None:
        columns["y"] = Dense(assignment.label)
    else:
        columns["y"] = Lists.of(instances.labels, index=None if in_order else at)
    return FederatedDataset(
        columns, assignment.offsets, found.classes, {**found.row_columns, "y": "classes"}
    )


def _assign(config: DataConfig, found: RawDataset, train: Instances, seed: int) -> Assignment:
    chosen = config.partition
    drawn = seed if chosen.seed == "run" else chosen.seed
    targets = config.targets or chosen.default_targets
    if targets == "pooled":  # whoever would hold them: a partition may need one label each, or copy sets
        return partition.iid(partition.label_sets(train.labels), clients=1, seed=drawn)
    if targets == "each":
        pairs = partition.each_label(train.labels)
    elif targets == "one":
        pairs = partition.one_label(train.labels, seed=drawn)
    else:
        pairs = partition.label_sets(train.labels)
    return chosen.assign(train, pairs, found.classes, drawn)


def _clients_called(
    config: DataConfig, found: RawDataset, train: Instances, held: FederatedDataset
) -> tuple[str, ...]:
    """What clients are called, where they are the source's own users."""
    own_users = isinstance(config.partition, ByUser | Given) and config.targets != "pooled"
    if not found.client_names or train.user is None or not own_users:
        return ()
    if isinstance(config.partition, Given):
        return found.client_names[: held.clients]
    users = torch.unique(train.user[train.labels.lengths > 0]).tolist()  # as `by_user` numbers them
    return tuple(found.client_names[user] for user in users)


def training_size(config: DataConfig, found: RawDataset, seed: int = 0) -> int:
    """How many instances are left to train on."""
    return len(_places(config, found, seed)[0])


def _hold_out(
    config: DataConfig, found: RawDataset, seed: int
) -> tuple[Instances, Instances | None, Instances]:
    """The training, validation and test instances; no instance is in two of them."""
    every = found.train
    at, valid_at, test_at = _places(config, found, seed)
    train = every if len(at) == len(every) else every.select(at).compact()
    test = found.test if test_at is None else every.select(test_at)
    assert test is not None, "a test part is published or cut off"
    return train, None if valid_at is None else every.select(valid_at), test


def _places(
    config: DataConfig, found: RawDataset, seed: int
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Which instances are for training, validation and testing; None: no such part is cut off."""
    every, test_at, valid_at = found.train, None, None
    if config.hold_out == "users" and (found.test is None or config.validation_fraction):
        return _places_by_user(config, found)
    train = torch.arange(len(every))
    if found.test is None:
        drawn = seed if config.split_seed == "run" else config.split_seed
        train, test_at = _stratified(every.labels, train, config.test_fraction, drawn)
    if config.validation_fraction:
        train, valid_at = _stratified(
            every.labels, train, config.validation_fraction, config.validation_seed
        )
    return train, valid_at, test_at


def _places_by_user(
    config: DataConfig, found: RawDataset
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Whole users, by ascending id: the first train, the next validate, the last test."""
    user = users_of(found.train, 'data.hold_out = "users"')
    _, rank = torch.unique(user, return_inverse=True)
    count = int(rank.max()) + 1
    test_share = config.test_fraction if found.test is None else 0.0  # a published one stays apart
    first_test = int(count * (1 - test_share) + 1e-9)
    share = test_share + config.validation_fraction
    first_valid = int(count * (1 - share) + 1e-9) if config.validation_fraction else first_test
    train, between, last = (
        part.nonzero()[:, 0]
        for part in (rank < first_valid, (rank >= first_valid) & (rank < first_test), rank >= first_test)
    )
    valid = between if config.validation_fraction else None
    return train, valid, last if found.test is None else None


def _stratified(labels: Ragged, at: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """scikit-learn's stratified `train_test_split`: (kept, cut off), ascending.

    A multi-label instance counts under its first label; where classes are too small to be cut in
    proportion, the split is plain.
    """
    from sklearn.model_selection import train_test_split  # slow to import, and not always needed

    some = labels.select(at)
    first = torch.full((len(at),), -1)
    labelled = some.lengths > 0
    first[labelled] = some.values[some.offsets[:-1][labelled]]
    for strata in (first.numpy(), None):
        try:
            kept, cut = train_test_split(
                at.numpy(), test_size=fraction, stratify=strata, random_state=seed % 2**32
            )
            return torch.from_numpy(np.sort(kept)), torch.from_numpy(np.sort(cut))
        except ValueError:
            continue
    # Too few for any cut; the caller says which part is empty.
    return (at[:0], at) if round(len(at) * fraction) >= len(at) else (at, at[:0])


def _examples(part: Instances) -> Examples:
    return Examples(part.columns, part.labels, user=part.user)
