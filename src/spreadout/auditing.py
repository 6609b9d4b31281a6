"""Looking at a run from outside: as the server that reads requests, and at one client's classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from spreadout.assembly import build_federation, pick_device
from spreadout.data.federated import FederatedDataset
from spreadout.data.splits import load_data
from spreadout.errors import UserError
from spreadout.experiment import Experiment
from spreadout.federated.round import Federation, cohort_of
from spreadout.methods.base import Method
from spreadout.methods.fedss import FedSS
from spreadout.prediction import Predictor
from spreadout.privacy.request_audit import Classes, Look, audit
from spreadout.report.confusion import confusion, write_confusion
from spreadout.store.run_folder import RunFolder


def audit_run(path: Path) -> list[Look]:
    """From the requests a run has logged."""
    folder = RunFolder.open(path)
    experiment = Experiment.load(folder.config)
    data = load_data(experiment.data, experiment.seed).train
    return _audit(folder.requests(), data, experiment.method)


def audit_config(config: str, overrides: Sequence[str], rounds: int | None) -> list[Look]:
    """From the requests clients would make: they do not depend on the model, so nothing is trained."""
    experiment = Experiment.load(config, overrides)
    held = load_data(experiment.data, experiment.seed)
    federation = build_federation(experiment, held, pick_device("cpu"))
    return _audit(_requests(federation, rounds or experiment.rounds), federation.data, federation.method)


def _requests(federation: Federation, rounds: int) -> Iterator[tuple[int, Sequence[int]]]:
    for round in range(rounds):
        cohort = cohort_of(federation, round)
        numbers = federation.data.number_of(cohort.clients).tolist()
        for i, number in enumerate(numbers):
            yield number, cohort.requests["classes"][i].tolist()


def _audit(
    requests: Iterable[tuple[int, Sequence[int]]], data: FederatedDataset, method: Method
) -> list[Look]:
    rows = data.rows_of(torch.arange(data.clients))["classes"]
    own: dict[int, Classes] = {i: rows[i].numpy() for i in range(data.clients)}
    popular = isinstance(method, FedSS) and method.needs_popularity
    fixed = isinstance(method, FedSS) and method.draw.endswith("fixed")
    weights = data.popularity.double().numpy() if popular else None
    return audit(requests, own, popularity=weights, fixed=fixed)


def draw_confusion(path: Path, client: int, output: Path) -> Path:
    """The page for one client of a finished run."""
    predictor = Predictor.load(path)
    experiment = Experiment.load(RunFolder.open(path).config)
    held = load_data(experiment.data, experiment.seed)
    if client >= held.train.clients:
        raise UserError(f"--client {client}: the run has {held.train.clients} clients, numbered from 0")
    view = held.train.view(client)
    if not view.examples:
        raise UserError(f"--client {client}: has no examples")
    classes, shares = confusion(predictor.model, predictor.state, view)
    names = [held.class_names[c] if c < len(held.class_names) else str(c) for c in classes.tolist()]
    return write_confusion(shares, names, output, title=f"{experiment.name}, client {client}")
