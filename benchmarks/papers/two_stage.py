"""Settings and the number of rounds chosen on validation data, then every arm run as chosen and tested.

An arm is a label, the changes to a base config that make it, and a grid of settings to choose from.
Every point is trained once with a part of the training data held out; the best evaluation of all its
points says which setting an arm gets and for how many rounds. Where rates fall to the last round, the
last evaluation counts, and rounds are a setting as others are. Then it is trained on all training data:
as soon as all its own points are there, with its first seed before other arms' points, with further
seeds when all arms have one.

Where a run is dear (`long`), points are short and choose the setting only. If the second stage then
leaves a part out too, that says when to stop and which round is scored: one long training in place of
all points' and one more. If not, its rounds are given.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.common.record import read, write
from benchmarks.papers.side_by_side import Job, Kept, More, Running, config_of, run_plans
from benchmarks.papers.suite import Runs, keep
from spreadout.config.effect import without_inherited
from spreadout.config.experiment import Experiment
from spreadout.config.values import overlay, read_toml
from spreadout.core.checksums import sha256
from spreadout.core.errors import UserError
from spreadout.runs.compare import Suite

Changes = dict[str, Any]
TUNING, FINAL, RANKS = 1, 0, 3  # ranks; further seeds come after both


@dataclass(frozen=True)
class Candidate:
    """One arm of a comparison, and what is still to be chosen about it."""

    label: str
    changes: Changes
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # "section.key", "rounds" → values

    def points(self) -> list[tuple[str, Changes]]:
        """Every setting: a name for it, and its changes to the base."""
        found = []
        for values in itertools.product(*self.grid.values()):
            config = dict(self.changes)
            for key, value in zip(self.grid, values, strict=True):
                section, _, name = key.partition(".")
                config = overlay(config, {section: {name: value} if name else value})
            found.append(("-".join(map(_name, values)) or "only", config))
        return found


def _name(value: Any) -> str:
    """A setting in the name of a run: a section by what it holds."""
    return "-".join(map(str, value.values())) if isinstance(value, Mapping) else str(value)


@dataclass(frozen=True)
class Point:
    """A setting of an arm, as it is tried."""

    arm: str
    name: str
    changes: Changes
    job: Job

    @property
    def settings(self) -> str:
        """A few letters that tell all its settings from others: its name has those of the grid alone."""
        return sha256(json.dumps(config_of(self.job.experiment), sort_keys=True).encode())[:16]


@dataclass(frozen=True)
class TwoStage:
    """The plan of both stages.

    fraction: of the training data, chosen on; still_held: as much of it stays held out in the second
    stage. long: changes of the second stage, its rounds among them. more: what else is kept of a run of
    the second stage. into: whether the arms take the place of those with their names in files that are
    there. whole: whether rates fall to the last round, so that a point is judged by its last evaluation
    and trained again for all its rounds. turn: all runs of an earlier turn are begun before those of a
    later one. once: arms whose second stage is of one seed. beside: all arms of the suite's file, where
    these are only some. tried: by arm and name, points of a file; those with the same settings are not
    tried again.
    """

    name: str
    base: Path
    arms: Mapping[str, Candidate]
    seeds: int = 3
    fraction: float = 0.2
    still_held: float = 0.0
    changes: Changes = field(default_factory=dict)  # of every arm
    long: Changes | None = None
    into: bool = False
    more: More | None = None
    whole: bool = False
    turn: int = 0
    once: Collection[str] = ()
    beside: Sequence[str] = ()
    tried: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    done: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def suite(self) -> str:
        """Several methods have a suite of one name; their configs are in folders of their own."""
        return f"{self.base.parent.name}-{self.name}"

    @property
    def stops(self) -> bool:
        """Whether runs of the second stage choose their own rounds."""
        return self.long is not None and self.still_held > 0

    @cached_property
    def points(self) -> list[Point]:
        held = {
            "data": {"validation_fraction": self.fraction},
            "eval": {"split": "validation", "references": False},
        }
        found = []
        for arm, candidate in self.arms.items():
            for point, config in candidate.points():
                changes, name = overlay(config, self.changes), f"{arm}-{point}"
                made = experiment_of(self.base, name, changes, held)
                job = Job(self.suite, arm, f"tuning-{name}", made, self._rank(TUNING))
                found.append(Point(arm, point, changes, job))
        return found

    @cached_property
    def known(self) -> dict[tuple[str, str], Mapping[str, Any]]:
        """Those of `tried` that were made with the settings that the points have now."""
        now = {(one.arm, one.name): one.settings for one in self.points}
        return {key: one for key, one in self.tried.items() if one.get("settings") == now.get(key, "")}

    def jobs(self, kept: Kept) -> Sequence[Job]:
        """All points, and the second stage of arms whose points are all there."""
        chosen = self.chosen(kept)
        runs = Runs(self.final(chosen), self.more, self._rank(FINAL), self.stops)
        untried = [one.job for one in self.points if (one.arm, one.name) not in self.known]
        final = (
            job for job in runs.jobs(kept) if job.variant not in self.once or not job.experiment.seed
        )
        return [*untried, *final]

    def scores(self, one: Point, kept: Kept) -> Mapping[str, Any] | None:
        """What a point has scored, or how it failed; None while it is still to be tried."""
        if (one.arm, one.name) in self.known:
            return self.known[one.arm, one.name]
        run = kept.of(one.job)
        if run is None:
            return None
        return {"failed": run["failed"]} if "failed" in run else self._judged(run["summary"])

    def chosen(self, kept: Kept) -> dict[str, tuple[Point, Mapping[str, float]]]:
        """The best point of each arm whose points are all there, and its best evaluation."""
        found: dict[str, tuple[Point, Mapping[str, float]]] = {}
        for arm in self.arms:
            tried = [(one, self.scores(one, kept)) for one in self.points if one.arm == arm]
            ended = [(one, scores) for one, scores in tried if scores and "failed" not in scores]
            if ended and all(scores for _, scores in tried):
                found[arm] = max(ended, key=lambda one: _mean(one[0].job.experiment, one[1]))
        return found

    def _judged(self, summary: Mapping[str, Any]) -> Mapping[str, float]:
        """The evaluation that a point is chosen by."""
        last = {"round": summary["rounds"], **summary["metrics"]}
        return last if self.whole else summary["best"]

    def _rank(self, rank: int) -> int:
        return RANKS * self.turn + rank

    def final(self, chosen: Mapping[str, tuple[Point, Mapping[str, float]]]) -> Suite:
        """As many rounds as were best, without the early stopping that found them; or `long` ones."""
        tested = {"data": {"validation_fraction": self.still_held}, "eval": {"split": "test"}}
        variants = {}
        for arm, (point, best) in chosen.items():
            rounds = self.long if self.long is not None else {"rounds": max(int(best["round"]), 1)}
            variants[arm] = experiment_of(
                self.base,
                arm,
                point.changes,
                overlay(tested, rounds),
                patience=self.stops,
            )
        variants = {arm: one for arm, one in variants.items() if config_of(one) != self.done.get(arm)}
        labels = {arm: self.arms[arm].label for arm in variants}
        return Suite(self.suite, tuple(range(self.seeds)), variants, labels)

    def write(self, kept: Kept, out: Path) -> None:
        """`NAME-tuning.json` and `NAME.json`, of what is there."""
        if not any(kept.of(one.job) for one in self.points) and not self.known:
            print(f"{self.name}: no point has been tried yet; its files stay as they are")
            return
        table = _others(out / f"{self.name}-tuning.json", self.arms) if self.into else []
        for one in self.points:
            if scores := self.scores(one, kept):
                table.append({"arm": one.arm, "point": one.name, "settings": one.settings, **scores})
        seeds = sorted({one.job.experiment.seed for one in self.points})
        about = {"base": self.base.name, "fraction": self.fraction, "seeds": seeds}
        tuning = {**about, "points": table}
        write(out / f"{self.name}-tuning.json", tuning)
        chosen = self.chosen(kept)
        suite, missing = self.final(chosen), len(self.arms) - len(chosen)
        if not suite.variants and not missing:
            print(f"{self.name}: every arm has chosen what it had before")
            return
        keep(suite, kept, out / f"{self.name}.json", into=self.into, missing=missing, beside=self.beside)


def add_extend(parser: argparse.ArgumentParser) -> None:
    said = "with more points: an arm that chooses what it had before keeps its scores in the file"
    parser.add_argument("--extend", action="store_true", help=said)


def done_before(path: Path, given: argparse.Namespace) -> dict[str, Mapping[str, Any]]:
    """Configs of the arms of a file that have as many seeds as are asked for, where those may stay."""
    if not given.extend or not path.is_file():
        return {}
    made = read(path)
    whole = {row["name"] for row in made["variants"] if row.get("seeds") == list(range(given.seeds))}
    return {arm: config for arm, config in made["configs"].items() if arm in whole}


def choose_and_run(plans: Sequence[TwoStage], out: Path, running: Running) -> None:
    """Both stages of all plans, their runs in one pool; then their files."""
    for plan in plans:
        there = sum((one.arm, one.name) in plan.tried for one in plan.points)
        if stale := there - len(plan.known):
            print(f"{plan.name}: tries {stale} of {there} points again, which are of other settings")
    for plan, kept in zip(plans, run_plans(plans, running), strict=True):
        plan.write(kept, out)


def refuse_unknown(
    only: Sequence[str] | None, plans: Sequence[TwoStage], option: str = "--only"
) -> None:
    """Arms that were asked for and are in none of the plans."""
    known = [arm for plan in plans for arm in plan.arms]
    if unknown := [name for name in only or () if name not in known]:
        raise UserError(f"{option} {unknown[0]}: no such arm in what is to be run")


def _others(path: Path, arms: Mapping[str, Candidate]) -> list[dict[str, Any]]:
    """The points of a file, less those of these arms, each with what made it."""
    tried = tried_points(path).items()
    return [{"arm": arm, "point": point, **one} for (arm, point), one in tried if arm not in arms]


def tried_points(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The points of a tuning file by arm and name, with what made them; none where there is no file."""
    if not path.is_file():
        return {}
    made, found = read(path), dict[tuple[str, str], dict[str, Any]]()
    for point in made["points"]:
        about = {"commit": made["commit"], "hardware": made["hardware"], **point}
        found[about.pop("arm"), about.pop("point")] = about
    return found


def _mean(experiment: Experiment, scores: Mapping[str, float]) -> float:
    """By what the run's own best round is chosen, points are compared too."""
    names = experiment.eval.best_by or experiment.eval.metrics[:1]
    return float(sum(scores[name] for name in names) / len(names))


def experiment_of(
    base: Path, name: str, changes: Changes, more: Changes, *, patience: bool = True
) -> Experiment:
    merged = {**overlay(overlay(read_toml(str(base)), changes), more), "name": name}
    merged = without_inherited(merged, changes, Experiment.model_validate)
    if not patience:
        merged["eval"] = {key: value for key, value in merged["eval"].items() if key != "patience"}
    return Experiment.of(merged)
