"""Settings tried side by side on validation data: a grid, or a search by Optuna (extra `[sweep]`).

Every trial is a run in a folder of its own, made by a process of its own, and named by what its config
says. One that is finished is not made again, one that was cut short goes on: the same command continues
a sweep, and a config that was changed makes new trials.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.core.files import write_atomic
from spreadout.core.registry import IMPORTED
from spreadout.evaluation.early_stopping import goodness, judged_by
from spreadout.evaluation.metrics import find_metric
from spreadout.runs.folder import RunFolder
from spreadout.runs.sweep_measure import choices_of, one_measure

RESULTS, BEST = "sweep.json", "best.toml"
ALWAYS = ("eval.references=false",)  # of trials: references are for the run that comes after
PATIENCE = 20  # suggestions in a row that are known already, before the next of the grid is taken

Settings = tuple[str, ...]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Trial:
    """Settings, and how good the model is that a run with them leaves."""

    settings: Settings
    score: float | None  # the mean of the metrics, on validation data
    folder: str
    problem: str = ""
    by: tuple[str, ...] = ()  # the metrics: `eval.best_by`, or the first one

    @property
    def goodness(self) -> float:
        """The higher the better, whatever the metric."""
        if self.score is None:
            return -math.inf
        return (find_metric(self.by[0]).sign if self.by else 1) * self.score

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        said = "failed: " + self.problem if self.score is None else f"{self.score:8.3f}"
        return f"{said}  {' '.join(self.settings)}"


@dataclass(frozen=True)
class Sweep:
    """A config, what is tried of each key, and where the trials are."""

    config: str
    fixed: Settings
    tried: Mapping[str, tuple[str, ...]]
    folder: Path
    jobs: int = 1
    device: str = "auto"

    @classmethod
    def of(
        cls, config: str, values: Sequence[str], folder: Path, *, jobs: int = 1, device: str = "auto"
    ) -> Sweep:
        """values: `key=a,b,c` to try, `key=a` for all trials."""
        fixed, tried = choices_of(values)
        return cls(config, (*fixed, *one_measure(config, fixed, tried)), tried, folder, jobs, device)

    def run(self, trials: int | None = None, say: Say = lambda _: None) -> list[Trial]:
        """All trials, the best first; `sweep.json` has them, `best.toml` the best as a config.

        trials: so many at most, searched for by Optuna. say: is told of each as it ends.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for settings in itertools.islice(self.grid(), 1):  # a key that is none is told of once
            Experiment.load(self.config, [*self.fixed, *settings])
        every = math.prod(map(len, self.tried.values()))
        count = every if trials is None else min(trials, every)
        found: list[Trial] = []
        for trial in self._made(self.grid()) if trials is None else self._searched(count):
            found.append(trial)
            self._write(found := _ranked(found))
            say(f"trial {len(found)} of {count}: {trial}")
        if found[0].score is None:
            raise UserError(f"sweep: no trial came to an end; the first said: {found[0].problem}")
        self._write_best(found[0], len(found))
        return found

    def grid(self) -> Iterator[Settings]:
        """Every combination."""
        for chosen in itertools.product(*self.tried.values()):
            yield tuple(f"{key}={value}" for key, value in zip(self.tried, chosen, strict=True))

    def _made(self, some: Iterable[Settings]) -> Iterator[Trial]:
        """Trials as they end, at most `jobs` at a time."""
        pool = ThreadPoolExecutor(self.jobs)  # threads that wait for processes
        try:
            waiting = [pool.submit(self._trial, settings) for settings in some]
            for one in as_completed(waiting):
                yield one.result()
        finally:
            pool.shutdown(cancel_futures=True)  # of one that is stopped no more are begun

    def _searched(self, count: int) -> Iterator[Trial]:
        """So many different trials, as Optuna suggests them."""
        try:
            import optuna
        except ImportError:
            raise UserError("--trials: needs an extra: pip install 'spreadout[sweep]'") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
        known: dict[Settings, Trial] = {}

        def tell(asked: Any, trial: Trial) -> None:
            failed = optuna.trial.TrialState.FAIL if trial.score is None else None
            study.tell(asked, None if failed else trial.goodness, state=failed)

        while len(known) < count:
            batch: dict[Settings, list[Any]] = {}  # each once, whoever asked for it
            old = 0
            while len(batch) < min(self.jobs, count - len(known)):  # as many as there are processes
                if old >= PATIENCE:
                    new = next(s for s in self.grid() if s not in known and s not in batch)
                    study.enqueue_trial(dict(zip(self.tried, map(_value, new), strict=True)))
                asked = study.ask()
                settings = tuple(
                    f"{key}={asked.suggest_categorical(key, values)}"
                    for key, values in self.tried.items()
                )
                old = old + 1 if settings in known or settings in batch else 0
                if settings in known:
                    tell(asked, known[settings])
                else:
                    batch.setdefault(settings, []).append(asked)
            for trial in self._made(batch):
                known[trial.settings] = trial
                yield trial
            for settings, several in batch.items():  # in one order, so that the search can be repeated
                for asked in several:
                    tell(asked, known[settings])

    def _place(self, settings: Settings) -> Path:
        """The folder of a trial, by what its config says, and what of that is left open."""
        try:
            loaded = Experiment.load(self.config, [*self.fixed, *settings])
            said = [loaded.to_toml(), loaded.model_dump(mode="json", exclude_unset=True)]
        except UserError:  # the trial says it
            said = [self.config, self.fixed, settings]
        name = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]
        return self.folder / f"trial-{name}"

    def _trial(self, settings: Settings) -> Trial:
        place = self._place(settings)
        run = RunFolder(place)
        if not (place.is_dir() and run.finished):
            going = place.is_dir() and run.config.is_file() and run.has_checkpoint
            what = ["resume"] if going else ["run", self.config, *self.fixed, *settings, *ALWAYS]
            where = [str(place)] if going else ["--out", str(place), "--force"]
            own = [part for module in IMPORTED for part in ("--import", module)]
            command = [sys.executable, "-m", "spreadout", *own, *what, *where, "--device", self.device]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["it died"])[-1]
                return Trial(settings, None, place.name, said.removeprefix("error: "))
        config = Experiment.load(run.config).eval
        by = tuple(judged_by(config))
        good = goodness(config, run.summary()["metrics"])  # of the model it leaves
        if not math.isfinite(good):
            return Trial(settings, None, place.name, f"{' and '.join(by)} has no value", by)
        return Trial(settings, find_metric(by[0]).sign * good, place.name, by=by)

    def _write(self, ranked: Sequence[Trial]) -> None:
        shown = [one.as_dict() for one in ranked]
        write_atomic(self.folder / RESULTS, (json.dumps(shown, indent=2) + "\n").encode())

    def _write_best(self, best: Trial, count: int) -> None:
        """The config that the best trial ran with, complete; with references if they were asked for."""
        ran = Experiment.load(self.folder / best.folder / "config.toml")
        asked = Experiment.load(self.config, [*self.fixed, *best.settings]).eval.references
        whole = ran.model_copy(update={"eval": ran.eval.model_copy(update={"references": asked})})
        head = f"# The best of {count} trials on validation data: {' '.join(best.settings)}\n"
        write_atomic(self.folder / BEST, (head + whole.to_toml()).encode())


def _ranked(found: Iterable[Trial]) -> list[Trial]:
    """The best first; equals by their settings, whichever ended first."""
    ranked = sorted(found, key=lambda one: (-one.goodness, one.settings))
    judged = {one.by: one for one in ranked if one.score is not None}
    if len(judged) > 1:
        (by, one), (other, another) = list(judged.items())[:2]
        raise UserError(
            f"sweep: {' '.join(one.settings)} is judged by {' and '.join(by)}, "
            f"{' '.join(another.settings)} by {' and '.join(other)}; set eval.metrics"
        )
    return ranked


def _value(setting: str) -> str:
    return setting.partition("=")[2]
