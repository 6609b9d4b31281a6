"""Hearing what a run does while it does it."""

from __future__ import annotations

from pathlib import Path

from spreadout.config.experiment import Experiment
from spreadout.core.types import Record
from spreadout.federated.round import RoundReport


class Interrupted(Exception):
    """The run was asked to stop; its state is saved up to the last finished round.

    >>> import spreadout as so
    >>> try:
    ...     so.run(so.Experiment(rounds=5), stop=lambda: True)
    ... except so.Interrupted as stopped:
    ...     print(stopped)
    stopped after round 1
    """

    def __init__(self, folder: Path | None, round: int) -> None:
        super().__init__(f"stopped after round {round}")
        self.folder, self.round = folder, round


class Observer:
    """Hears what a run does; the base class ignores it all.

    >>> import spreadout as so
    >>> class Loud(so.Observer):
    ...     def round_done(self, report):
    ...         print(f"round {report.round}: {report.accepted} updates")
    >>> result = so.run(so.Experiment(rounds=2), observer=Loud())
    round 1: 10 updates
    round 2: 10 updates
    """

    def started(self, experiment: Experiment, round: int) -> None: ...
    def round_done(self, report: RoundReport) -> None: ...
    def evaluated(self, record: Record) -> None: ...
    def warned(self, text: str) -> None: ...
