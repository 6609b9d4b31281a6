"""Settings tried side by side on validation data: a grid, or a search by Optuna (extra `[sweep]`).

Every trial is a run in a folder of its own, made by a process of its own, and named by its settings. One
that is finished is not made again, one that was cut short goes on: the same command continues a sweep.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from spreadout.config.experiment import Experiment
from spreadout.config.values import changes_of, overlay, parse_override, read_toml
from spreadout.core.errors import UserError
from spreadout.core.files import write_atomic
from spreadout.core.registry import IMPORTED
from spreadout.evaluation.early_stopping import goodness, judged_by
from spreadout.evaluation.metrics import find_metric
from spreadout.runs.folder import RunFolder

RESULTS, BEST = "sweep.json", "best.toml"
ALWAYS = ("eval.references=false",)  # of trials: references are for the run that comes after


@dataclass(frozen=True)
class Trial:
    """Settings, and how good the best evaluation with them was."""

    settings: tuple[str, ...]
    score: float | None  # of `eval.best_by`, on validation data
    folder: str
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Sweep:
    """A config, what is tried of each key, and where the trials are."""

    config: str
    fixed: tuple[str, ...]
    tried: Mapping[str, tuple[str, ...]]
    folder: Path
    jobs: int = 1
    device: str = "auto"

    @classmethod
    def of(
        cls, config: str, values: Sequence[str], folder: Path, *, jobs: int = 1, device: str = "auto"
    ) -> Sweep:
        """values: `key=a,b,c` to try, `key=a` for all trials."""
        fixed, tried = [], {}
        for value in values:
            key, choices = _choices(value)
            if len(choices) > 1:
                tried[key] = tuple(choices)
            else:
                fixed.append(f"{key}={choices[0]}")
        if not tried:
            raise UserError(
                "sweep: nothing to try; write values with commas, such as clients.lr=0.1,0.3"
            )
        return cls(config, (*fixed, *_judged_apart(config, fixed)), tried, folder, jobs, device)

    def run(self, trials: int | None = None) -> list[Trial]:
        """All trials, the best first; `sweep.json` has them, `best.toml` the best as a config."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for settings in itertools.islice(self.grid(), 1):  # a key that is none is told of once
            Experiment.load(self.config, [*self.fixed, *settings])
        found = self._searched(trials) if trials is not None else self._made(self.grid())
        ranked = sorted(found, key=lambda one: (one.score is None, -self._sign * (one.score or 0.0)))
        self._write(ranked)
        if ranked[0].score is None:
            raise UserError(f"sweep: no trial came to an end; the first said: {ranked[0].problem}")
        return ranked

    def grid(self) -> Iterable[tuple[str, ...]]:
        """Every combination."""
        for chosen in itertools.product(*self.tried.values()):
            yield tuple(f"{key}={value}" for key, value in zip(self.tried, chosen, strict=True))

    @property
    def _sign(self) -> float:
        config = Experiment.load(self.config, self.fixed).eval
        return float(find_metric(judged_by(config)[0]).sign)

    def _made(self, settings: Iterable[tuple[str, ...]]) -> list[Trial]:
        with ThreadPoolExecutor(self.jobs) as pool:  # threads that wait for processes
            return list(pool.map(self._trial, settings))

    def _searched(self, trials: int) -> list[Trial]:
        try:
            import optuna
        except ImportError:
            raise UserError("--trials: needs an extra: pip install 'spreadout[sweep]'") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(
            direction="maximize" if self._sign > 0 else "minimize",
            sampler=optuna.samplers.TPESampler(seed=0),
        )
        found: dict[tuple[str, ...], Trial] = {}
        for _ in range(-(-trials // self.jobs)):  # as many at a time as there are processes
            asked = [study.ask() for _ in range(self.jobs)]
            some = [
                tuple(f"{key}={one.suggest_categorical(key, list(v))}" for key, v in self.tried.items())
                for one in asked
            ]
            for one, trial in zip(asked, self._made(some), strict=True):
                found[trial.settings] = trial
                state = None if trial.score is not None else optuna.trial.TrialState.FAIL
                study.tell(one, trial.score, state=state)
        return list(found.values())

    def _trial(self, settings: tuple[str, ...]) -> Trial:
        name = hashlib.sha256(json.dumps([self.config, self.fixed, settings]).encode()).hexdigest()[:12]
        place = self.folder / f"trial-{name}"
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
        best = max(run.history(config.metrics), key=lambda record: goodness(config, record))
        return Trial(settings, self._sign * goodness(config, best), place.name)

    def _write(self, ranked: Sequence[Trial]) -> None:
        shown = [one.as_dict() for one in ranked]
        write_atomic(self.folder / RESULTS, (json.dumps(shown, indent=2) + "\n").encode())
        if ranked[0].score is None:
            return
        values = overlay(read_toml(self.config), changes_of([*self.fixed, *ranked[0].settings]))
        head = f"# The best of {len(ranked)} trials on validation data: {' '.join(ranked[0].settings)}\n"
        write_atomic(self.folder / BEST, (head + tomli_w.dumps(values)).encode())


def _choices(text: str) -> tuple[str, list[str]]:
    """`key=a,b` → key and its values; a value that is a list is one."""
    key, equals, rest = text.partition("=")
    if not equals or not rest.strip():
        parse_override(text)  # says how it is written
        raise UserError(f"sweep: {text!r} has no value; write section.key=a,b,c")
    if rest.strip().startswith(("[", "{", '"', "'")):
        return key.strip(), [rest.strip()]
    return key.strip(), [part.strip() for part in rest.split(",") if part.strip()]


def _judged_apart(config: str, fixed: Sequence[str]) -> list[str]:
    """What makes trials be judged on validation data; the test part is refused."""
    said = overlay(read_toml(config), changes_of(fixed))
    if "variants" in said:
        raise UserError(f"{config}: is a suite; sweep one config")
    asked = changes_of(fixed).get("eval", {}).get("split")
    if asked == "test":
        raise UserError(
            'eval.split = "test": settings that are chosen by the test part are not tested by it; leave '
            "it out, and run best.toml with eval.split=test once, at the end"
        )
    more = ["eval.split=validation"] if asked is None else []
    if not said.get("data", {}).get("validation_fraction") and not _holds_out(said):
        more.append("data.validation_fraction=0.1")
    return more


def _holds_out(said: Mapping[str, Any]) -> bool:
    """Whether the source of a config holds a validation part out by default."""
    data = Experiment.model_validate({"data": said.get("data", {})}).data
    return data.validation_fraction > 0
