"""Running an experiment: train round by round, evaluate, record, save, stop and resume."""

from __future__ import annotations

import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from spreadout import __version__, metrics
from spreadout.assembly import build_federation, pick_device
from spreadout.data import splits
from spreadout.data.federated import Splits
from spreadout.errors import UserError
from spreadout.evaluation import evaluate, frequencies
from spreadout.experiment import Experiment
from spreadout.federated.round import Federation, RoundReport, begin, run_round
from spreadout.federated.rows import nbytes
from spreadout.federated.server import ServerState
from spreadout.gauges import Gauges
from spreadout.methods.base import Method
from spreadout.methods.fedaws import Spreadout
from spreadout.methods.positive_only import PositiveOnly
from spreadout.metrics import Frequencies
from spreadout.models.build import DataShape
from spreadout.picture import picture_of
from spreadout.privacy.accounting import epsilon_of
from spreadout.store import checkpoint
from spreadout.store.run_folder import Record, RunFolder


class Interrupted(Exception):
    """The run was asked to stop; its state is saved up to the last finished round."""

    def __init__(self, folder: Path | None, round: int) -> None:
        super().__init__(f"stopped after round {round}")
        self.folder, self.round = folder, round


class Observer:
    """Hears what a run does; the base class ignores it all."""

    def started(self, experiment: Experiment, round: int) -> None: ...
    def round_done(self, report: RoundReport) -> None: ...
    def evaluated(self, record: Record) -> None: ...
    def warned(self, text: str) -> None: ...


@dataclass
class Result:
    """A finished run."""

    summary: dict[str, Any]
    history: list[Record]  # one record per evaluation, as in metrics.jsonl
    state: ServerState
    federation: Federation
    folder: Path | None = None

    @property
    def metrics(self) -> dict[str, float]:
        return dict(self.summary["metrics"])


def run(
    experiment: Experiment,
    *,
    out: str | Path | None = None,
    force: bool = False,
    device: str = "auto",
    data: Splits | None = None,
    encoder: nn.Module | None = None,
    method: Method | None = None,
    observer: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Train and evaluate. Without `out`, nothing is written to disk.

    `data`, `encoder` and `method` replace what `[data]`, `[model]` and `[method]` describe; training
    starts from the encoder's own weights and leaves them as they are.
    """
    session = _Session.build(experiment, device, (data, encoder, method), observer or Observer(), stop)
    if out is not None:
        session.folder = RunFolder.create(Path(out), experiment.to_toml(), force=force)
    return session.train()


def resume(
    folder: str | Path,
    *,
    device: str = "auto",
    data: Splits | None = None,
    encoder: nn.Module | None = None,
    method: Method | None = None,
    observer: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Go on from a run folder's last checkpoint, to the same end as if never interrupted.

    Give `data`, `encoder` and `method` again if the run was given them.
    """
    opened = RunFolder.open(Path(folder))
    experiment = Experiment.load(opened.config)
    session = _Session.build(experiment, device, (data, encoder, method), observer or Observer(), stop)
    if opened.has_checkpoint:
        session.go_on_from(opened, *checkpoint.load(opened.checkpoint, session.federation.device))
    else:  # it died before its first checkpoint: from the beginning
        session.folder = opened
        opened.rewind(-1)
        session.observer.warned(f"{opened.path}: no checkpoint yet; starting from round 0")
    return session.train()


@dataclass
class _Session:
    """One run in progress."""

    experiment: Experiment
    data: Splits
    federation: Federation
    state: ServerState
    observer: Observer
    stop: Callable[[], bool]
    own: list[str]  # the parts given in Python instead of described in the config
    folder: RunFolder | None = None
    history: list[Record] = field(default_factory=list)
    seconds: float = 0.0
    collapse_told: bool = False
    last_report: RoundReport | None = None

    @classmethod
    def build(
        cls,
        experiment: Experiment,
        device: str,
        own: tuple[Splits | None, nn.Module | None, Method | None],
        observer: Observer,
        stop: Callable[[], bool],
    ) -> _Session:
        where = pick_device(device)
        data, encoder, method = own
        held = data or splits.load_data(experiment.data, experiment.seed)
        federation = build_federation(experiment, held, where, encoder, method)
        dense, tables = federation.model.initial(experiment.seed, where)
        for caution in (federation.method.caution(held.train), idle_clients(federation)):
            if caution:
                observer.warned(caution)
        given = {"data": data, "encoder": encoder, "method": method}
        names = [name for name, part in given.items() if part is not None]
        state = ServerState(0, dense, tables)
        if where.type == "cuda":
            torch.cuda.reset_peak_memory_stats(where)
        return cls(experiment, held, federation, state, observer, stop, names)

    def go_on_from(self, folder: RunFolder, state: ServerState, extra: dict[str, Any]) -> None:
        """Take up a saved state, if it is one of this very run."""
        missing = [name for name in extra["own"] if name not in self.own]
        if missing:
            raise UserError(f"{folder.path}: was run with its own {missing[0]}; give it to resume too")
        for part in ("dense", "tables"):
            ours, saved = getattr(self.state, part), getattr(state, part)
            shapes = [{name: value.shape for name, value in side.items()} for side in (ours, saved)]
            if shapes[0] != shapes[1]:
                raise UserError(f"{folder.checkpoint}: does not fit config.toml ({part} parts differ)")
        if extra["data"] != self.federation.data.fingerprint:
            raise UserError(f"{folder.checkpoint}: was trained on other data than there is now")
        self.state, self.folder = state, folder
        self.history = folder.rewind(state.round)
        self.seconds, self.collapse_told = extra["seconds"], extra["collapse_told"]

    def train(self) -> Result:
        rounds = self.experiment.rounds
        self.observer.started(self.experiment, self.state.round)
        started = time.perf_counter() - self.seconds
        begin(self.federation, self.state)
        if not self.history:
            self._evaluate()
            self._save()
        while self.state.round < rounds and not self._out_of_patience():
            report = run_round(self.federation, self.state)
            self.seconds = time.perf_counter() - started
            self._hear(report)
            self._log(report)
            if self.state.round % self.experiment.eval.every == 0 or self.state.round == rounds:
                self._evaluate()
            stopping = self.stop() and self.state.round < rounds
            if stopping or self._checkpoint_is_due():
                self._save()
            if stopping:
                raise Interrupted(self.folder.path if self.folder else None, self.state.round)
        return self._finish()

    def _log(self, report: RoundReport) -> None:
        """Keep what the server saw of this round, if it was asked to."""
        asked = report.cohort.requests.get("classes")
        if self.folder is None or not self.experiment.run.log_requests or asked is None:
            return
        numbers = self.federation.data.number_of(report.cohort.clients).tolist()
        rows = (asked[i].tolist() for i in range(len(asked)))
        self.folder.log_requests(report.round, zip(numbers, rows, strict=True))

    def _hear(self, report: RoundReport) -> None:
        idle_before = self.last_report is not None and self.last_report.accepted == 0
        self.last_report = report
        self.observer.round_done(report)
        if report.accepted == 0 and not idle_before:  # once for a whole stretch of such rounds
            why = ", ".join(f"{count} {reason}" for reason, count in report.refused.items())
            self.observer.warned(
                f"round {report.round}: no update was accepted ({why or 'no client answered'}); "
                "the model is unchanged"
            )

    def _evaluate(self) -> None:
        config = self.experiment.eval
        examples = self.data.test if config.split == "test" else self.data.validation
        assert examples is not None
        for name, value in (*self.state.tables.items(), *self.state.dense.items()):
            if not bool(value.isfinite().all()):
                what = f"the table of {name}" if name in self.state.tables else name
                raise UserError(
                    f"diverged by round {self.state.round}: {what} is not finite; "
                    "lower the rates (clients.lr, clients.row_lr, server.lr, method.strength)"
                )
        found = evaluate(self.federation.model, self.state, examples, config.metrics, seen=self._seen)
        report = self.last_report
        record: Record = {
            "round": self.state.round,
            **found.metrics,
            "loss": report.loss if report else None,
            "bytes_down": self.state.traffic.down,
            "bytes_up": self.state.traffic.up,
            "seconds": round(self.seconds, 6),
            **(asdict(found.gauges) if found.gauges else {}),
            "refused": dict(self.state.refused),
        }
        self.history.append(record)
        if self.folder is not None:
            self.folder.append(record)
        self.observer.evaluated(record)
        if found.gauges and found.gauges.collapsing and self.state.round and not self.collapse_told:
            self.collapse_told = True
            self.observer.warned(collapse_advice(self.federation.method, found.gauges))

    @cached_property
    def _seen(self) -> Frequencies | None:
        kinds = [metrics.parse(name)[0] for name in self.experiment.eval.metrics]
        wanted = any(kind in metrics.NEED_FREQUENCIES for kind in kinds)
        config = self.experiment.eval
        if not wanted:
            return None
        return frequencies(self.federation.data, config.frequent, config.propensity)

    def _goodness(self, record: Record) -> float:
        names = self.experiment.eval.best_by or self.experiment.eval.metrics[:1]
        sign = -1 if names[0] in metrics.LOWER_IS_BETTER else 1
        return sign * sum(float(record[name]) for name in names) / len(names)

    def _best(self) -> int:
        """The place of the best evaluation so far, the first of equals."""
        return max(range(len(self.history)), key=lambda i: self._goodness(self.history[i]))

    def _out_of_patience(self) -> bool:
        patience = self.experiment.eval.patience
        return patience is not None and len(self.history) - 1 - self._best() >= patience

    def _checkpoint_is_due(self) -> bool:
        every = self.experiment.run.checkpoint_every or self.experiment.eval.every
        return self.state.round % every == 0 or self.state.round == self.experiment.rounds

    def _save(self) -> None:
        if self.folder is not None:
            extra = {
                "seconds": self.seconds,
                "collapse_told": self.collapse_told,
                "own": self.own,
                "data": self.federation.data.fingerprint,
            }
            checkpoint.save(self.folder.checkpoint, self.state, extra)

    def _finish(self) -> Result:
        summary = self._summary()
        if self.folder is not None:
            drawable = "classes" in self.state.tables
            test = self.data.test
            picture = picture_of(self.federation.model, self.state, test) if drawable else None
            about = {
                "shape": asdict(DataShape.of(self.federation.data)),
                "own": [part for part in ("encoder", "method") if part in self.own],
                "names": list(self.data.class_names),
                "ids": list(self.data.class_ids),
            }
            self.folder.finish(summary, self.state, picture, about)
        path = self.folder.path if self.folder else None
        return Result(summary, self.history, self.state, self.federation, path)

    def _summary(self) -> dict[str, Any]:
        names = self.experiment.eval.metrics
        last, best = self.history[-1], self.history[self._best()]
        moved = {"bytes": best["bytes_down"] + best["bytes_up"]}
        traffic = self.state.traffic
        return {
            "name": self.experiment.name,
            "method": self.federation.method.name,
            "dataset": self.data.name,
            "clients": self.federation.data.clients,
            "classes": self.data.train.classes,
            "rounds": self.state.round,
            "metrics": {name: last[name] for name in names},
            "best_by": self.experiment.eval.best_by,
            "stopped_early": self._out_of_patience() and self.state.round < self.experiment.rounds,
            "best": {"round": best["round"], **{name: best[name] for name in names}, **moved},
            "gauges": {name: last.get(name) for name in Gauges.__dataclass_fields__},
            "model_bytes": nbytes([*self.state.dense.values(), *self.state.tables.values()]),
            "bytes": {"down": traffic.down, "up": traffic.up, **asdict(traffic)},
            "seconds": self.seconds,
            "peak_memory_bytes": peak_memory(self.federation.device),
            "refused_updates": dict(self.state.refused),
            "privacy": self._privacy(),
            "table_privacy": self.federation.method.privacy(self.state),
            "seed": self.experiment.seed,
            "device": str(self.federation.device),
            "versions": {
                "spreadout": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        }

    def _privacy(self) -> dict[str, Any] | None:
        mechanism = self.experiment.privacy
        if mechanism is None:
            return None
        releases = int(self.state.memory["releases"].max())
        epsilon = epsilon_of(mechanism.noise, releases, mechanism.delta)
        return {
            "guarantee": "local: the values of a client's updates, against the server"
            if mechanism.noise
            else "none: updates are clipped, but no noise is added",
            "not_protected": [
                "row ids asked for",
                "number of examples",
                "loss",
                "participation",
                *(["label sets"] if self.state.traffic.once_up else []),
            ],
            "clip": mechanism.clip,
            "noise": mechanism.noise,
            "delta": mechanism.delta,
            "most_releases_by_a_client": releases,
            "epsilon": epsilon if epsilon != float("inf") else None,
        }


def idle_clients(federation: Federation) -> str | None:
    """What to say of clients that have nothing to train on."""
    idle = int((federation.schedule.usable(federation.data.sizes) == 0).sum())
    if idle == 0:
        return None
    return (
        f"{idle} of {federation.data.clients} clients have no examples to train on; "
        "whenever they are chosen their updates are refused"
    )


def collapse_advice(method: Method, gauges: Gauges) -> str:
    """What a user should know, and try, when classes fall onto each other."""
    said = (
        f"classes are collapsing: the nearest two have cosine {gauges.max_cosine:.3f}, "
        f"the mean over all pairs is {gauges.mean_cosine:.3f}"
    )
    if isinstance(method, Spreadout):
        return said + "; raise method.strength or method.spreadout_margin, or lower clients.row_lr"
    if "classes" in method.fixed_tables():
        return said + "; they are fixed: more dimensions, or another table, would keep them apart"
    if not isinstance(method, PositiveOnly):  # it has negatives
        return said + "; lower clients.lr and clients.row_lr, or the server's rate"
    return said + '; nothing keeps them apart here: try method.name = "fedaws"'


def peak_memory(device: torch.device) -> int:
    """Peak bytes: of the GPU's allocator, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
