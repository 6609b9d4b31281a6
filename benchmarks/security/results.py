"""What has been reached with a method so far, in a file: runs with their settings, seed and commit."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import record
from benchmarks.security.cases import Case, Guard, config_of
from benchmarks.security.scenarios import SCENARIOS

PAUSE = 2.0  # seconds between two writes of a file, while runs end one after another


@dataclass
class Results:
    """The runs of one method; those of another config than today's do not count."""

    method: str
    path: Path
    configs: dict[str, str] = field(default_factory=dict)  # by guard; the seed is the run's
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    written: float = 0.0

    @classmethod
    def open(cls, method: str, path: Path) -> Results:
        if not path.is_file():
            return cls(method, path)
        made = record.read(path)
        on = {"hardware": made["hardware"], "torch": made["versions"]["torch"]}
        runs = {key: {**on, **one} for key, one in made["runs"].items()}
        return cls(method, path, made["configs"], runs)

    def has(self, case: Case) -> bool:
        return case.key in self.runs and self.configs.get(str(case.guard)) == config_of(case)

    def keep_only(self, guards: Sequence[Guard]) -> None:
        """Of the rules of these guards, runs with other settings go."""
        rules, kept = {guard.rule for guard in guards}, {str(guard) for guard in guards}
        for held in (self.configs, self.runs):
            for key in [key for key in held if re.split("[,;]", key)[0] in rules]:
                if key.partition("; ")[0] not in kept:
                    del held[key]

    def add(self, case: Case, found: dict[str, Any], commit: str) -> None:
        if self.configs.get(str(case.guard)) != config_of(case):
            self.runs = {key: one for key, one in self.runs.items() if one["guard"] != str(case.guard)}
            self.configs[str(case.guard)] = config_of(case)
        about = {"rule": case.guard.rule, "attack": case.attack, "share": case.share, "seed": case.seed}
        on = {"hardware": record.hardware(), "torch": record.versions()["torch"], "commit": commit}
        self.runs[case.key] = {"guard": str(case.guard), **about, **found, **on}
        if time.monotonic() - self.written > PAUSE:
            self.write()

    def write(self) -> None:
        """In an order that does not depend on which run was done first."""
        runs = {key: self.runs[key] for key in sorted(self.runs)}
        about: dict[str, Any] = {"method": self.method, "metric": SCENARIOS[self.method].metric}
        if runs:  # not all need be of one machine
            each = {part: {one[part] for one in runs.values()} for part in ("hardware", "torch")}
            about["hardware"] = " and ".join(sorted(each["hardware"]))
            about["versions"] = record.versions() | {"torch": " and ".join(sorted(each["torch"]))}
        record.write(self.path, {**about, "configs": self.configs, "runs": runs}, quiet=True)
        self.written = time.monotonic()
