"""Hearing what a run does while it does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.core.types import Record
from spreadout.federated.round import RoundReport

if TYPE_CHECKING:
    from spreadout.runs.result import Result


class Interrupted(Exception):
    """The run was asked to stop; its state is saved up to the last finished round.

    A run in a folder is gone on with by `so.resume`. One without has left its model here, in `result`.

    >>> import spreadout as so
    >>> try:
    ...     so.run(so.Experiment(rounds=5), stop=lambda: True)
    ... except so.Interrupted as stopped:
    ...     print(stopped)
    ...     stopped.result.summary["rounds"]
    stopped after round 1
    1
    """

    def __init__(
        self, folder: Path | None, round: int, so_far: Callable[[], Result] | None = None
    ) -> None:
        again = f"; go on with so.resume({str(folder)!r})" if folder is not None else ""
        super().__init__(f"stopped after round {round}{again}")
        self.folder, self.round, self._so_far = folder, round, so_far

    @property
    def result(self) -> Result:
        """The run as if it had been meant to end here."""
        if self._so_far is None:
            raise UserError(f"result: the run is in {self.folder}; so.resume goes on with it")
        return self._so_far()


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

    def started(self, experiment: Experiment, round: int) -> None:
        """Training begins after this round; the experiment has nothing left open."""

    def round_done(self, report: RoundReport) -> None:
        """A round is over. Reading `report.loss` may wait for the device."""

    def evaluated(self, record: Record) -> None:
        """The model was scored: a line of `metrics.jsonl`."""

    def warned(self, text: str) -> None:
        """Something that a person should know."""

    def ended(self, summary: Mapping[str, Any] | None) -> None:
        """The last call of a run that had started; the summary is None if it was stopped or failed."""


class Several(Observer):
    """Tells each of some observers all it hears."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers

    def started(self, experiment: Experiment, round: int) -> None:
        for one in self.observers:
            one.started(experiment, round)

    def round_done(self, report: RoundReport) -> None:
        for one in self.observers:
            one.round_done(report)

    def evaluated(self, record: Record) -> None:
        for one in self.observers:
            one.evaluated(record)

    def warned(self, text: str) -> None:
        for one in self.observers:
            one.warned(text)

    def ended(self, summary: Mapping[str, Any] | None) -> None:
        for one in self.observers:
            one.ended(summary)
