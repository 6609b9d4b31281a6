"""Running an experiment: build its parts, train round by round, evaluate, record, save, resume."""

from __future__ import annotations

import copy
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from spreadout import __version__
from spreadout.data import splits
from spreadout.data.federated import FederatedDataset, Splits
from spreadout.errors import UserError
from spreadout.evaluation import evaluate
from spreadout.experiment import Experiment
from spreadout.federated.augment import Augment
from spreadout.federated.local import LocalTraining
from spreadout.federated.round import Federation, RoundReport, run_round
from spreadout.federated.server import ServerOptimizers, ServerState
from spreadout.gauges import Gauges
from spreadout.models import encoders
from spreadout.models.embedding import EmbeddingModel, Table
from spreadout.picture import picture_of
from spreadout.privacy.accounting import epsilon_of
from spreadout.runtime.sequential import sequential
from spreadout.runtime.simulator import Simulator
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
    observer: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Train and evaluate. Without `out`, nothing is written to disk.

    `data` and `encoder` replace what `[data]` and `[model]` describe; the encoder's own weights are
    where training starts.
    """
    session = _Session.build(experiment, device, data, encoder, observer or Observer(), stop)
    if out is not None:
        session.folder = RunFolder.create(Path(out), experiment.to_toml(), force=force)
    return session.train()


def resume(
    folder: str | Path,
    *,
    device: str = "auto",
    data: Splits | None = None,
    encoder: nn.Module | None = None,
    observer: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Go on from a run folder's last checkpoint, to the same end as if never interrupted."""
    opened = RunFolder.open(Path(folder))
    experiment = Experiment.load(opened.config)
    session = _Session.build(experiment, device, data, encoder, observer or Observer(), stop)
    state, extra = checkpoint.load(opened.checkpoint, session.federation.device)
    session.go_on_from(state, extra, opened)
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
        data: Splits | None,
        encoder: nn.Module | None,
        observer: Observer,
        stop: Callable[[], bool],
    ) -> _Session:
        where = pick_device(device)
        held = data or splits.load(experiment.data, experiment.seed)
        federation = build_federation(experiment, held, where, encoder)
        dense, tables = federation.model.initial(experiment.seed, where)
        if caution := experiment.method.caution(held.train):
            observer.warned(caution)
        return cls(experiment, held, federation, ServerState(0, dense, tables), observer, stop)

    def go_on_from(self, state: ServerState, extra: dict[str, Any], folder: RunFolder) -> None:
        for name, table in self.state.tables.items():
            if name not in state.tables or state.tables[name].shape != table.shape:
                raise UserError(f"{folder.checkpoint}: does not fit config.toml and its data ({name})")
        self.state, self.folder = state, folder
        self.history = folder.rewind(state.round)
        self.seconds, self.collapse_told = extra["seconds"], extra["collapse_told"]

    def train(self) -> Result:
        rounds = self.experiment.rounds
        self.observer.started(self.experiment, self.state.round)
        started = time.perf_counter() - self.seconds
        if not self.history:
            self._evaluate()
            self._save()
        while self.state.round < rounds:
            report = run_round(self.federation, self.state)
            self.seconds = time.perf_counter() - started
            self._hear(report)
            if self.state.round % self.experiment.eval.every == 0 or self.state.round == rounds:
                self._evaluate()
            stopping = self.stop() and self.state.round < rounds
            if stopping or self._checkpoint_is_due():
                self._save()
            if stopping:
                raise Interrupted(self.folder.path if self.folder else None, self.state.round)
        return self._finish()

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
        found = evaluate(self.federation.model, self.state, examples, config.metrics)
        report = self.last_report
        record: Record = {
            "round": self.state.round,
            **found.metrics,
            "loss": report.loss if report else None,
            "bytes_down": self.state.traffic.down,
            "bytes_up": self.state.traffic.up,
            "seconds": round(self.seconds, 6),
            **asdict(found.gauges),
            "refused": dict(self.state.refused),
        }
        self.history.append(record)
        if self.folder is not None:
            self.folder.append(record)
        self.observer.evaluated(record)
        if found.gauges.collapsing and self.state.round and not self.collapse_told:
            self.collapse_told = True
            self.observer.warned(collapse_advice(self.experiment, found.gauges))

    def _checkpoint_is_due(self) -> bool:
        every = self.experiment.run.checkpoint_every or self.experiment.eval.every
        return self.state.round % every == 0 or self.state.round == self.experiment.rounds

    def _save(self) -> None:
        if self.folder is not None:
            extra = {"seconds": self.seconds, "collapse_told": self.collapse_told}
            checkpoint.save(self.folder.checkpoint, self.state, extra)

    def _finish(self) -> Result:
        summary = self._summary()
        if self.folder is not None:
            picture = picture_of(self.federation.model, self.state, self.data.test)
            self.folder.finish(summary, self.state, picture)
        path = self.folder.path if self.folder else None
        return Result(summary, self.history, self.state, self.federation, path)

    def _summary(self) -> dict[str, Any]:
        names = self.experiment.eval.metrics
        last = self.history[-1]
        best = max(self.history, key=lambda record: float(record[names[0]]))
        traffic = self.state.traffic
        return {
            "name": self.experiment.name,
            "method": self.experiment.method.name,
            "dataset": self.data.name,
            "clients": self.federation.data.clients,
            "classes": self.data.train.classes,
            "rounds": self.state.round,
            "metrics": {name: last[name] for name in names},
            "best": {"round": best["round"], **{name: best[name] for name in names}},
            "gauges": {name: last[name] for name in Gauges.__dataclass_fields__},
            "bytes": {"down": traffic.down, "up": traffic.up, **asdict(traffic)},
            "seconds": self.seconds,
            "peak_memory_bytes": peak_memory(self.federation.device),
            "refused_updates": dict(self.state.refused),
            "privacy": self._privacy(),
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
            "guarantee": "local, per client, against the server",
            "clip": mechanism.clip,
            "noise": mechanism.noise,
            "delta": mechanism.delta,
            "most_releases_by_a_client": releases,
            "epsilon": epsilon if epsilon != float("inf") else None,
        }


def build_federation(
    experiment: Experiment, held: Splits, device: torch.device, encoder: nn.Module | None = None
) -> Federation:
    """All fixed parts of a run, from its description and its data."""
    e, method = experiment, experiment.method
    data = held.train
    if complaint := method.complaint(data):
        raise UserError(complaint)
    if method.pools_data:
        data = data.pooled()
    per_round, selection = e.clients.per_round, e.clients.selection
    if method.pools_data or per_round == "all":
        per_round, selection = data.clients, "full"
    elif per_round > data.clients:
        raise UserError(
            f"clients.per_round = {per_round}: there are only {data.clients} clients; "
            'take fewer, or "all"'
        )
    module, dim = _encoder(e, data, encoder)
    tables = {"classes": Table(data.classes, dim)}
    unknown = set(e.server.tables) - set(tables)
    if unknown:
        raise UserError(f"server.tables.{min(unknown)}: no such table; known: {', '.join(tables)}")
    simulator = Simulator(int(e.run.memory_gb * 2**30))
    return Federation(
        data=data.to(device),
        model=EmbeddingModel(module, tables),
        method=method,
        schedule=e.clients.schedule,
        training=LocalTraining(
            dense=e.clients.optimizer_for(),
            rows={name: e.clients.optimizer_for(e.clients.row_lr) for name in tables},
            sphere=frozenset(name for name, table in tables.items() if table.sphere),
            fixed=method.fixed_tables(),
        ),
        optimizers=ServerOptimizers(
            e.server.optimizer_for(), {name: e.server.optimizer_for(name) for name in tables}
        ),
        executor=sequential if e.run.executor == "sequential" else simulator,
        device=device,
        seed=e.seed,
        selection=selection,
        per_round=per_round,
        max_norm=e.clients.max_update_norm,
        privacy=e.privacy,
        augment=Augment(e.clients.input_noise, e.clients.input_dropout),
        bf16=e.run.precision == "bf16",
    )


def _encoder(e: Experiment, data: FederatedDataset, given: nn.Module | None) -> tuple[nn.Module, int]:
    """The encoder and its output's width: the config's, or a copy of the user's own."""
    one = data.columns["x"].values[:1]
    if given is None:
        built = encoders.seeded(e.seed, encoders.mlp, one.numel(), e.model.hidden, e.model.dim)
        return built, e.model.dim
    module = copy.deepcopy(given)
    try:
        with torch.no_grad():
            shape = module.cpu()(one).shape
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"encoder: fails on an input of shape {tuple(one.shape)} ({reason})") from None
    if len(shape) != 2:
        raise UserError(f"encoder: gives shape {tuple(shape)} for one example; it must give (1, dim)")
    return module, int(shape[1])


def collapse_advice(experiment: Experiment, gauges: Gauges) -> str:
    """What a user should know, and try, when classes fall onto each other."""
    said = (
        f"classes are collapsing: the nearest two have cosine {gauges.max_cosine:.3f}, "
        f"the mean over all pairs is {gauges.mean_cosine:.3f}"
    )
    if experiment.method.name == "fedaws":
        return said + "; raise method.strength or method.spreadout_margin, or lower clients.row_lr"
    return said + '; nothing keeps them apart here: try method.name = "fedaws"'


def pick_device(name: str) -> torch.device:
    """`auto` takes CUDA where there is one; asking for CUDA where there is none is an error."""
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {name}: unknown; known: auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no CUDA device is available here; use --device cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def peak_memory(device: torch.device) -> int:
    """Peak bytes: of the GPU's allocator, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
