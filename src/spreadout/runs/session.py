"""One run in progress: round by round, evaluated, recorded and saved, until it ends or is stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from spreadout.config.experiment import Experiment
from spreadout.config.sound import prepared
from spreadout.core.errors import UserError
from spreadout.core.kept_memory import keep_memory
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.types import Record
from spreadout.data.splits import Splits
from spreadout.evaluation.early_stopping import out_of_patience, shown_of
from spreadout.evaluation.geometry import Geometry
from spreadout.federated.central import count_releases_, settle_all_
from spreadout.federated.federation import Federation
from spreadout.federated.round import RoundReport, run_round, run_setup
from spreadout.methods.base import Method
from spreadout.runs import advice
from spreadout.runs.build import pick_device
from spreadout.runs.data_advice import of_data
from spreadout.runs.ending import Ending
from spreadout.runs.evidence import evidence
from spreadout.runs.folder import RunFolder, request_records
from spreadout.runs.given import refuse_without_own, saying_what_was_given
from spreadout.runs.keeping import keep_, kept_model
from spreadout.runs.large_steps import overshoot
from spreadout.runs.observer import Interrupted, Observer
from spreadout.runs.parts import refuse_other_kinds
from spreadout.runs.promises import epsilon_by_now, is_spent
from spreadout.runs.release_ledger import ReleaseLedger
from spreadout.runs.result import Result
from spreadout.runs.scored import Judge, refuse_diverged
from spreadout.runs.summary import record_of
from spreadout.runs.tracking import tracked
from spreadout.runtime import distributed

LONGEST_NOTE = 1000  # letters of what is said of the data, as far as it is kept
Builder = Callable[[Experiment, Splits, torch.device, nn.Module | None, Method | None], Federation]


@dataclass
class Session:
    """One run in progress."""

    experiment: Experiment
    data: Splits
    federation: Federation
    state: ServerState
    observer: Observer
    stop: Callable[[], bool]
    own: list[str]  # the parts given in Python instead of described in the config
    data_notes: list[str]  # what was said of the data before training, as far as a folder may keep it
    folder: RunFolder | None = None
    history: list[Record] = field(default_factory=list)
    seconds: float = 0.0
    collapse_warned: bool = False
    last_report: RoundReport | None = None

    @classmethod
    def build(
        cls,
        experiment: Experiment,
        device: str,
        own: tuple[Splits | None, nn.Module | None, Method | None],
        build: Builder,
        observer: Observer,
        stop: Callable[[], bool],
    ) -> Session:
        where = pick_device(device)
        if where.type == "cpu":
            keep_memory()
        data, encoder, method = own
        refuse_other_kinds(data, encoder, method)
        given = {"data": data, "encoder": encoder, "method": method}
        names = [name for name, part in given.items() if part is not None]
        refuse_without_own(experiment, names)
        experiment, held = prepared(experiment, data, method=method, own_encoder=encoder is not None)
        federation = build(experiment, held, where, encoder, method)
        if not federation.executor.clients_elsewhere:  # a deployment's config is for its nodes too
            experiment = saying_what_was_given(experiment, held, names)
        sharded = distributed.sharded(federation, experiment.run.shard_mb)
        dense, tables = federation.model.initial(experiment.seed, where, sharded)
        known = held.train.clients > 0  # a deployment's server has seen no example
        caution = federation.method.warnings(held.train) if known else None
        odd = of_data(experiment, held, federation.model.encoder)
        notes = [one for one in (*held.notes, caution, *odd, *advice.of_clients(federation)) if one]
        for said in (*notes, *advice.of_settings(federation)):
            if said:
                observer.warned(said)
        private = experiment.privacy is not None
        kept = [] if private else [note[:LONGEST_NOTE] for note in notes]  # they tell of rows
        state = ServerState(0, dense, tables)
        if where.type == "cuda":
            torch.cuda.reset_peak_memory_stats(where)
        return cls(experiment, held, federation, state, observer, stop, names, kept)

    def write_to(self, folder: RunFolder | None) -> None:
        self.folder = folder
        for note in [] if folder is None else folder.notes:
            self.observer.warned(note)

    def go_on_from(self, folder: RunFolder, state: ServerState, extra: dict[str, Any]) -> None:
        """Take up a saved state, if it is one of this very run."""
        missing = [name for name in extra["own"] if name not in self.own]
        if missing:
            raise UserError(f"{folder.path}: was run with its own {missing[0]}; give it to resume too")
        for part in ("dense", "tables"):
            ours, saved = getattr(self.state, part), getattr(state, part)
            shapes = [
                {name: (tuple(value.shape), local_of(value).dtype) for name, value in side.items()}
                for side in (ours, saved)
            ]
            if shapes[0] != shapes[1]:
                raise UserError(f"{folder.checkpoint}: does not fit config.toml ({part} parts differ)")
        if extra["data"] != self._data_id:
            raise UserError(f"{folder.checkpoint}: was trained on other data than there is now")
        self._refuse_other_parts(folder, state)
        self.state = state
        if self.federation.executor.clients_elsewhere:  # their states are gone with the run before
            self.state.control.clear()
        self.history = folder.history(self.experiment.eval.metrics)
        self.seconds, self.collapse_warned = extra["seconds"], extra["collapse_warned"]

    def _refuse_other_parts(self, folder: RunFolder, state: ServerState) -> None:
        """A state that was trained with what this version draws in another way, and nodes draw too."""
        f, remedy = self.federation, "run it again with --force (force=True)"
        if not state.setup_done:
            return
        try:
            trained = f.method.as_trained(f.model, state, self.experiment.seed)
        except UserError as error:
            raise UserError(f"{folder.checkpoint}: {error}; {remedy}") from None
        if trained is not f.model:
            raise UserError(
                f"{folder.checkpoint}: was trained with other hash functions than are drawn now; resume "
                f"it with the version that wrote it, or {remedy}"
            )

    def train(self) -> Result:
        """To the end; those who hear it hear of that too, however it comes."""
        path = self.folder.path if self.folder else None
        self.observer = tracked(self.observer, self.experiment, path)
        try:
            result = self._train()
        except BaseException:
            self.observer.ended(None)
            raise
        self.observer.ended(result.summary)
        return result

    def _train(self) -> Result:
        rounds = self.experiment.rounds
        self.observer.started(self.experiment, self.state.round)
        started = time.perf_counter() - self.seconds
        run_setup(self.federation, self.state)
        ledger = self._ledger()
        if not self.history:
            self._evaluate()
            self._save()
        if self.folder is not None and self._goes_on():
            self.folder.unfinish()
        while self._goes_on():
            self._spend(ledger)
            report = run_round(self.federation, self.state)
            self.seconds = time.perf_counter() - started
            self._hear(report)
            self._log(report)
            if self.state.round % self.experiment.eval.every == 0 or self.state.round == rounds:
                self._evaluate()
            stopping = distributed.any_of(self.stop()) and self.state.round < rounds
            if stopping or self._checkpoint_is_due():
                self._save()
            if stopping:
                if self.folder is not None:
                    self.folder.write_privacy(evidence(self.federation, self.state))
                path = self.folder.path if self.folder else None
                raise Interrupted(path, self.state.round, None if path else self._so_far)
        if self.history[-1]["round"] != self.state.round:  # the privacy budget ended it
            self._evaluate()
            self._save()
        self.seconds = time.perf_counter() - started
        return self._finish()

    def _ledger(self) -> ReleaseLedger | None:
        """Where releases are written down; sums that a crash made the state forget count again."""
        f = self.federation
        if self.folder is None or f.clients.privacy is None:
            return None
        if f.executor.clients_elsewhere and not f.noises_sums:  # it notes whom it asks itself
            return None
        ledger = ReleaseLedger(self.folder.path)
        if f.noises_sums:
            count_releases_(self.state, ledger.count)
        return ledger

    def _spend(self, ledger: ReleaseLedger | None) -> None:
        """Before a round releases anything, that it does, and what a client has given away then."""
        mechanism = self.federation.clients.privacy
        if ledger is not None and mechanism is not None:
            after = epsilon_by_now(self.federation, self.state, more=1)
            assert after is not None
            told = {"noise": mechanism.noise, "epsilon": after, "delta": mechanism.delta}
            ledger.spend(round=self.state.round + 1, **told)

    def _goes_on(self) -> bool:
        patient = not out_of_patience(self.experiment.eval, self.history)
        spent = is_spent(self.federation, self.state)
        return self.state.round < self.experiment.rounds and patient and not spent

    def _log(self, report: RoundReport) -> None:
        """Keep what the server saw of this round, if it was asked to."""
        wanted = self.experiment.run.log_requests and "classes" in report.cohort.requests
        heard = self.federation.executor.heard_requests(self.federation, report.cohort)
        if self.folder is not None and wanted:
            self.folder.log_requests(request_records(heard))

    def _hear(self, report: RoundReport) -> None:
        idle_before = self.last_report is not None and self.last_report.accepted == 0
        self.last_report = report
        self.observer.round_done(report)
        silent = report.accepted == 0 and not self.federation.noises_sums
        if silent and not idle_before:  # once for a whole stretch of such rounds
            why = ", ".join(f"{count} {reason}" for reason, count in report.refused.items())
            self.observer.warned(
                f"round {report.round}: no update was accepted ({why or 'no client answered'}); "
                "the model is unchanged"
            )

    def _evaluate(self) -> None:
        config = self.experiment.eval
        settle_all_(self.federation, self.state)
        refuse_diverged(self.state)
        scored = self._judge.scored(self.state)
        found, loss = scored.evaluation, self.last_report.loss if self.last_report else None
        record = record_of(self.federation.model, self.state, found, scored.tau, loss, self.seconds)
        record |= self.federation.method.signs(self.state) | scored.validated
        spent = epsilon_by_now(self.federation, self.state)
        if spent is not None:
            record["epsilon"] = spent if math.isfinite(spent) else None
        self.history.append(record)
        if config.keep == "best" and shown_of(config, self.history) == len(self.history) - 1:
            keep_(self.state)
        if self.folder is not None:
            self.folder.append(record)
        self.observer.evaluated(record)
        self._warn_of_collapse(record, found.geometry)

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.federation, self.data, self.experiment.eval)

    def _warn_of_collapse(self, record: Record, geometry: Geometry | None) -> None:
        """Once a run, and not of the rows it began with."""
        if self.collapse_warned or not self.state.round or not (geometry and geometry.collapsing):
            return
        self.collapse_warned = True
        overshot = overshoot([record])  # harder pushes would make that worse
        advised = self.federation.method.collapse_advice(geometry)
        self.observer.warned(str(overshot) if overshot else advised)

    @property
    def _data_id(self) -> str:
        """What a checkpoint knows the data by: a deployment's server, what clients say of theirs."""
        f = self.federation
        private = f.clients.privacy is not None and not f.executor.clients_elsewhere
        return f.data.form if private else f.data.fingerprint

    def _checkpoint_is_due(self) -> bool:
        every = self.experiment.run.checkpoint_every or self.experiment.eval.every
        return self.state.round % every == 0 or self.state.round == self.experiment.rounds

    def _gathered(self, *, slots: bool = True) -> ServerState:
        """The state to be written: all processes give their rows to the one that has a folder."""
        written = distributed.any_of(self.folder is not None)
        return self.state.whole(slots=slots) if written else self.state

    def _save(self) -> None:
        settle_all_(self.federation, self.state)  # what is written has all its noise
        whole = self._gathered()
        if self.folder is not None:
            extra = {
                "seconds": self.seconds,
                "collapse_warned": self.collapse_warned,
                "own": self.own,
                "data": self._data_id,
                "data_notes": self.data_notes,
            }
            self.folder.save(whole, extra)

    def _so_far(self) -> Result:
        """Of a run in no folder that was stopped: as if it had been meant to end here."""
        if self.history[-1]["round"] != self.state.round:
            self._evaluate()
        return self._finish()

    def _finish(self) -> Result:
        whole = kept_model(self._gathered(slots=False))
        ending = Ending(
            self.experiment,
            self.data,
            self.federation,
            self.state,
            whole,
            self.history,
            self.seconds,
            self.own,
            self.data_notes,
        )
        return ending.result(self.folder)
