"""Telling TensorBoard, Weights & Biases or MLflow what a run records: `run.track`.

`metrics.jsonl` stays the source of truth: each is told what a line there says, at its round, and nothing
else. One that fails in mid-run is warned of and told no more; training goes on.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.core.files import write_json
from spreadout.core.types import Record
from spreadout.runs.observer import Observer, Several
from spreadout.runtime import distributed

IDS = "tracking.json"  # in the run folder: by which names a resumed run is known to those it told


class Sink(Protocol):
    """One of those that are told."""

    def log(self, round: int, numbers: Mapping[str, float]) -> None: ...
    def close(self, finished: bool) -> None: ...


Opens = Callable[[Experiment, Path | None, int, str | None], tuple[Sink, str | None]]
"""Of the experiment, the run folder, the round it starts from and the id it had: a sink, and its id."""


def tracked(observer: Observer, experiment: Experiment, folder: Path | None) -> Observer:
    """The observer, and beside it those that the config names."""
    if not experiment.run.track or not distributed.is_first():
        return observer
    return Several([observer, Tracker(experiment.run.track, folder, observer.warned)])


class Tracker(Observer):
    """Hears a run and tells others what it records."""

    def __init__(self, names: Sequence[str], folder: Path | None, warn: Callable[[str], None]) -> None:
        self._names, self._folder, self._warn = names, folder, warn
        self._sinks: dict[str, Sink] = {}

    def started(self, experiment: Experiment, round: int) -> None:
        path = None if self._folder is None else self._folder / IDS
        ids: dict[str, str | None] = {} if path is None else _ids_in(path)
        for name in self._names:
            try:
                self._sinks[name], ids[name] = OPEN[name](experiment, self._folder, round, ids.get(name))
            except ImportError:
                raise UserError(
                    f"run.track: {name} is not installed; pip install 'spreadout[{name}]'"
                ) from None
            except UserError:
                raise
            except Exception as error:  # of its own: a server that does not answer, no account
                remedy = f"; {REMEDY[name]}" if name in REMEDY else ""
                raise UserError(f"run.track: {name}: {_line(error).rstrip('.')}{remedy}") from None
        if path is not None:
            write_json(path, {name: known for name, known in ids.items() if known})

    def evaluated(self, record: Record) -> None:
        self._tell(lambda sink: sink.log(record["round"], numbers_of(record)))

    def ended(self, summary: Mapping[str, Any] | None) -> None:
        self._tell(lambda sink: sink.close(summary is not None))
        self._sinks.clear()

    def _tell(self, what: Callable[[Sink], None]) -> None:
        for name, sink in list(self._sinks.items()):
            try:
                what(sink)
            except Exception as error:
                del self._sinks[name]
                self._warn(f"run.track: {name} is told no more ({_line(error)})")


def _ids_in(path: Path) -> dict[str, str | None]:
    """By which names the run is known to those it told before; none if it told nobody."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise UserError(
            f"{path}: is damaged; put it back, or delete it: what follows is a new run there"
        )
    return found


def numbers_of(record: Record) -> dict[str, float]:
    """The numbers of a line of `metrics.jsonl`, by name.

    >>> numbers_of({"round": 3, "P@1": 50.0, "loss": None, "refused": {"too long": 2}})
    {'P@1': 50.0, 'refused': 2.0}
    """
    flat = {**record, "refused": sum(record.get("refused", {}).values())}
    return {
        name: float(value)
        for name, value in flat.items()
        if name != "round" and isinstance(value, int | float) and math.isfinite(value)
    }


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class _TensorBoard:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def close(self, finished: bool) -> None:
        self._writer.close()


def _tensorboard(
    experiment: Experiment, folder: Path | None, round: int, known: str | None
) -> tuple[Sink, str | None]:
    from torch.utils.tensorboard.writer import SummaryWriter

    if folder is None:
        raise UserError("run.track: tensorboard writes into the run folder; give one (out=…)")
    place, later = str(folder / "tensorboard"), round + 1 if round else None
    writer: Any = SummaryWriter(place, purge_step=later)
    if round == 0:
        indented = "\n".join(f"    {line}" for line in experiment.to_toml().splitlines())
        writer.add_text("config", indented)
    return _TensorBoard(writer), None


class _WandB:
    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        self._run.log({"round": round, **numbers})

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


def _wandb(
    experiment: Experiment, folder: Path | None, round: int, known: str | None
) -> tuple[Sink, str | None]:
    import wandb

    run = wandb.init(
        project=experiment.run.track_project,
        name=experiment.name,
        dir=folder,
        id=known,
        resume="allow" if known else None,
        config=experiment.model_dump(mode="json"),
    )
    run.define_metric("*", step_metric="round")  # a resumed run may tell a round again
    return _WandB(run), run.id


class _MLflow:
    def __init__(self, client: Any, run: str) -> None:
        self._client, self._run = client, run

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        told = [Metric(_mlflow_name(name), value, now, round) for name, value in numbers.items()]
        self._client.log_batch(self._run, metrics=told)

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")


def _mlflow(
    experiment: Experiment, folder: Path | None, round: int, known: str | None
) -> tuple[Sink, str | None]:
    from mlflow.entities import Param
    from mlflow.tracking import MlflowClient

    client, project = MlflowClient(), experiment.run.track_project
    if known is not None:
        client.update_run(known, "RUNNING")
        return _MLflow(client, known), known
    found = client.get_experiment_by_name(project)
    where = client.create_experiment(project) if found is None else found.experiment_id
    run = client.create_run(where, run_name=experiment.name).info.run_id
    keys = list(_flat(experiment.model_dump(mode="json", exclude_none=True)).items())
    for at in range(0, len(keys), 100):  # no more are taken at once
        params = [Param(_mlflow_name(key), str(value)[:500]) for key, value in keys[at : at + 100]]
        client.log_batch(run, params=params)
    return _MLflow(client, run), run


def _mlflow_name(name: str) -> str:
    """A name as MLflow takes it: P@1 is P_at_1 there."""
    return re.sub(r"[^\w. /:-]", "_", name.replace("@", "_at_"))


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Keys by their dotted names."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inner = _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {before + key: value}
        flat.update(inner)
    return flat


REMEDY = {  # where there is no account, or no answer
    "wandb": "set WANDB_MODE=offline to write into the run folder only"
}
OPEN: dict[str, Opens] = {"mlflow": _mlflow, "tensorboard": _tensorboard, "wandb": _wandb}
