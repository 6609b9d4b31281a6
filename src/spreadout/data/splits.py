"""From a source to a federation's data: hold out, then deal the rest to clients."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from sklearn.model_selection import train_test_split
from torch import Tensor

from spreadout.data import partition
from spreadout.data.federated import Examples, FederatedDataset, Splits
from spreadout.data.sources import SOURCES
from spreadout.data.sources.base import Labelled
from spreadout.errors import UserError
from spreadout.ragged import Ragged


class DataConfig(BaseModel):
    """`[data]`: what each client holds."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    source: Literal["digits", "bibtex", "npz"] = "digits"
    path: Path | None = None
    partition: Literal["by_label", "iid", "given"] = "by_label"
    clients: int | None = Field(None, ge=1)  # iid only
    test_fraction: float = Field(0.3, gt=0, lt=1)  # where the source has no test split of its own
    validation_fraction: float = Field(0.0, ge=0, lt=1)  # cut off the training part
    split_seed: int | Literal["run"] = "run"  # draws the held-out part; "run": by the run's own seed
    validation_seed: int = 0  # which of the rest are for validation: several make a cross-validation

    @model_validator(mode="after")
    def _used(self) -> DataConfig:
        if self.clients is not None and self.partition != "iid":
            raise ValueError(f'data.clients = {self.clients}: only partition = "iid" takes it')
        return self

    @field_validator("path")
    @classmethod
    def _from_anywhere(cls, path: Path | None) -> Path | None:
        """Absolute, so that a run folder can be resumed from another place."""
        return None if path is None else path.expanduser().absolute()


def load(config: DataConfig, seed: int) -> Splits:
    """Read the source, hold out test and validation, and deal the rest to clients."""
    source = SOURCES[config.source](config.path)
    train = torch.arange(len(source.labels))
    if source.test is None:
        cut = seed if config.split_seed == "run" else config.split_seed
        train, test_at = _stratified(source.labels, train, config.test_fraction, cut)
        test = _examples(source.x, source.labels, test_at)
    else:
        test = Examples({"x": source.test[0]}, source.test[1])
    validation = None
    if config.validation_fraction:
        train, valid_at = _stratified(
            source.labels, train, config.validation_fraction, config.validation_seed
        )
        validation = _examples(source.x, source.labels, valid_at)
    parts = {"test": len(test), "training": len(train)}
    if validation is not None:
        parts["validation"] = len(validation)
    for part, size in parts.items():
        if size == 0:
            raise UserError(
                f"data.source = {config.source!r}: no example is left for the {part} part; "
                "change data.test_fraction or data.validation_fraction"
            )
    return Splits(config.source, _deal(config, source, train, seed), test, validation)


def _deal(config: DataConfig, source: Labelled, at: Tensor, seed: int) -> FederatedDataset:
    x, labels = source.x[at], source.labels.select(at)
    if config.partition == "by_label":
        return partition.by_label(x, labels, source.classes)
    if config.partition == "iid":
        if config.clients is None:
            raise UserError('data.partition = "iid": set data.clients to the number of clients')
        return partition.iid(x, labels, source.classes, clients=config.clients, seed=seed)
    if source.client is None:
        raise UserError(
            f'data.partition = "given": the source {config.source!r} does not say who holds what; '
            "an npz file may, with an array `client`"
        )
    clients = int(source.client.max()) + 1
    return FederatedDataset.by_owner(x, labels.values, source.client[at], source.classes, clients)


def _stratified(labels: Ragged, at: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """scikit-learn's stratified `train_test_split`: (kept, cut off), ascending.

    A multi-label instance counts under its first label; where classes are too small to be cut in
    proportion, the split is plain.
    """
    some = labels.select(at)
    first = torch.full((len(at),), -1)
    labelled = some.lengths > 0
    first[labelled] = some.values[some.offsets[:-1][labelled]]
    for strata in (first.numpy(), None):
        try:
            kept, cut = train_test_split(
                at.numpy(), test_size=fraction, stratify=strata, random_state=seed
            )
            return torch.from_numpy(np.sort(kept)), torch.from_numpy(np.sort(cut))
        except ValueError:
            continue
    return at, at[:0]  # too few for any cut; the caller says so


def _examples(x: Tensor, labels: Ragged, at: Tensor) -> Examples:
    return Examples({"x": x[at]}, labels.select(at))
