"""What a server learns from the requests of a run, logged or to be expected, and from its updates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from spreadout.config.experiment import Experiment
from spreadout.config.sound import data_of, prepared
from spreadout.core.errors import UserError
from spreadout.core.rows import Rows, sub_model
from spreadout.core.state import ServerState
from spreadout.core.types import Params
from spreadout.data.dataset import FederatedDataset
from spreadout.federated.cohort import draw_cohort
from spreadout.federated.drift.control import sent_control
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_setup
from spreadout.methods.base import Method
from spreadout.privacy.canary import Shown, attack
from spreadout.privacy.cover import blocks_of
from spreadout.privacy.one_run_audit import OneRun
from spreadout.privacy.release import released, shown_by_sum
from spreadout.privacy.request_audit import Classes, Look, Weights, audit, watch
from spreadout.privacy.thresholds import LEAST_NODES, noisy
from spreadout.privacy.update_audit import Moved, moved
from spreadout.runs.build import build_federation, pick_device
from spreadout.runs.canary_runs import of_clients, of_examples, of_sums
from spreadout.runs.claim import CONFIG
from spreadout.runs.files import RunFiles
from spreadout.runs.sums import check
from spreadout.runtime.sequential import train_client


@dataclass(frozen=True)
class Watched:
    """Requests in the order they came, and the true classes that an observer tries to guess."""

    requests: Iterable[tuple[int, Sequence[int]]]
    data: FederatedDataset
    method: Method
    row_bytes: int  # of a class row as it travels, with its number

    def looks(self) -> list[Look]:
        """What an observer knows, in the mean over clients."""
        own, popularity = self._known()
        return audit(self._seen(own), own, popularity, **self._drawn())

    def beliefs(self) -> Iterator[dict[str, Any]]:
        """After every request: the candidates for that client's classes, and how likely each is."""
        own, popularity = self._known()
        watched = watch(self._seen(own), own, popularity, **self._drawn())
        for client, turn, candidates, belief in watched:
            likely = dict(zip(candidates.tolist(), belief.round(6).tolist(), strict=True))
            yield {"client": client, "request": turn, "posterior": likely}

    def _drawn(self) -> dict[str, Any]:
        """How rows are drawn: all of it is public."""
        how = self.method.draws
        found: dict[str, Any] = {"by_popularity": how.by_popularity, "fixed": how.fixed}
        if how.cover is not None:
            found["blocks"] = blocks_of(self.data.first_class, self.data.classes, how.cover)
        return found

    def _seen(self, own: dict[int, Classes]) -> Iterator[tuple[int, Sequence[int]]]:
        """The requests, or the updates that follow them where these have a client's own rows alone."""
        for client, rows in self._sound():
            yield client, own[client].tolist() if self.method.returns_own_rows else rows

    def _sound(self) -> Iterator[tuple[int, Sequence[int]]]:
        """The requests, as long as they are of this federation."""
        none = True
        for client, rows in self.requests:
            if not 0 <= client < self.data.clients:
                raise UserError(f"a request is of client {client}; there are {self.data.clients}")
            if rows and not 0 <= min(rows) <= max(rows) < self.data.classes:
                raise UserError(f"a request of client {client} names a class beyond {self.data.classes}")
            none = False
            yield client, rows
        if none:
            raise UserError("there are no requests to look at")

    def _known(self) -> tuple[dict[int, Classes], Weights]:
        if not self.method.has_class_table:
            raise UserError(
                f"method.name = {self.method.name!r}: clients get whole networks and request no rows"
            )
        data = self.data
        rows = data.rows_of(torch.arange(data.clients))["classes"]
        own = {i: rows[i].numpy() for i in range(data.clients)}
        return own, data.popularity.double().numpy()


def logged(path: Path) -> Watched:
    """The requests a run has logged, and what is needed to judge them."""
    folder = RunFiles.open(path)
    check(path, CONFIG)
    refuse_own_parts(folder)
    experiment = Experiment.load(folder.config)
    data = data_of(experiment).train
    return Watched(folder.requests(), data, experiment.method, 4 * experiment.model.dim + 8)


def refuse_own_parts(folder: RunFiles) -> None:
    """A run that was given its data or method in Python cannot be understood from its config."""
    saved = folder.saved()
    own = saved["extra"]["own"] if saved else []
    if own:
        raise UserError(f"{folder.path}: was run with its own {own[0]}, which is not in the folder")


def foreseen(config: str, overrides: Sequence[str], rounds: int | None) -> Watched:
    """The requests clients would make: they do not depend on the model, so nothing is trained."""
    experiment, splits = prepared(Experiment.load(config, overrides))
    federation = build_federation(experiment, splits, pick_device("cpu"))
    if federation.executor.hides_requests:
        raise UserError(
            f"run.executor = {experiment.run.executor!r}: no server sees which rows are wanted"
        )
    requests = _requests(federation, rounds or experiment.rounds)
    return Watched(requests, federation.data, federation.method, 4 * experiment.model.dim + 8)


def moved_rows(config: str, overrides: Sequence[str]) -> Moved:
    """What the updates of a first round give away: every client of it is trained, by itself."""
    experiment, splits = prepared(Experiment.load(config, overrides))
    f = build_federation(experiment, splits, pick_device("cpu"))
    if not f.method.has_class_table or "classes" in f.clients.training.fixed:
        raise UserError(f"method.name = {f.method.name!r}: clients send no class rows back")
    if f.shares_noise:
        raise UserError(
            'privacy.model = "distributed": the server sees no single update, and of a row that one '
            "client holds its change with the noise of the sum; --canary tries that noise"
        )
    state = ServerState(0, *f.model.initial(f.seed, f.device))
    run_setup(f, state)
    return moved(_updates(f, state))


def canaries(config: str, overrides: Sequence[str], trials: int) -> tuple[Shown | None, OneRun]:
    """Attacks on the noise of a config: of nodes on one release, and on a whole run by its canaries."""
    experiment = Experiment.load(config, overrides)
    mechanism = experiment.privacy
    if mechanism is None or not mechanism.noise:
        raise UserError(f"{config}: has no [privacy] with noise; there is no claim to try")
    if mechanism.on_the_server:
        ready, splits = prepared(experiment)
        return None, of_sums(build_federation(ready, splits, pick_device("cpu")), trials)
    if mechanism.model == "example":
        ready, splits = prepared(experiment)
        return None, of_examples(build_federation(ready, splits, pick_device("cpu")), trials)
    try:
        from spreadout.privacy.keystream import KeyStream
    except ImportError:
        raise UserError("cryptography is not installed: pip install 'spreadout[flower]'") from None

    nodes = max(experiment.deploy.nodes, LEAST_NODES)

    def release(change: Params) -> Params:
        if mechanism.needs_others:
            enough = noisy(nodes, mechanism.share, mechanism.colluding)
            return shown_by_sum(change, mechanism, enough, KeyStream())
        return released(change, mechanism, KeyStream())

    one_run = of_clients(mechanism, release, trials // 4, experiment.rounds)
    return attack(mechanism, release, trials), one_run


def _updates(f: Federation, state: ServerState) -> Iterator[tuple[Rows, Classes]]:
    cohort = draw_cohort(f, 0)
    own = f.data.rows_of(cohort.clients)["classes"]
    control = sent_control(f, state)
    for i, client in enumerate(cohort.clients.tolist()):
        request = {name: rows[i] for name, rows in cohort.requests.items()}
        sent = sub_model(0, state.dense, state.tables, request, control)
        update, _ = train_client(replace(f, data=f.data.view(client)), sent, {})
        if "classes" in update.tables:  # a client without examples sends nothing
            yield update.tables["classes"], own[i].numpy()


def _requests(federation: Federation, rounds: int) -> Iterator[tuple[int, Sequence[int]]]:
    for round in range(rounds):
        cohort = draw_cohort(federation, round)
        numbers = federation.data.number_of(cohort.clients).tolist()
        for i, number in enumerate(numbers):
            yield number, cohort.requests["classes"][i].tolist()
