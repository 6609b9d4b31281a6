"""How far a run is, and how long it will still take; of several runs, how long all of them will."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Counts rounds and runs, and takes the time of each."""

    def __init__(self, runs: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.runs = runs  # how many there will be
        self.run = 0  # the one that is going on, from 1
        self.round = self.rounds = 0
        self._clock = clock
        self._took: list[float] = []  # seconds of those that are over
        self._since: float | None = None
        self._first = 0

    def next_run(self) -> None:
        self.run += 1

    def start(self, round: int, rounds: int) -> None:
        self.run = max(self.run, 1)
        self.round, self.rounds, self._first = round, rounds, round
        self._since = self._clock()

    def end(self) -> None:
        if self._since is not None:
            self._took.append(self._clock() - self._since)
        self._since = None

    @property
    def left(self) -> float | None:
        """Seconds until this run is over; None before its first round is."""
        done = self.round - self._first
        if self._since is None or done < 1:
            return None
        return (self._clock() - self._since) / done * (self.rounds - self.round)

    @property
    def all_left(self) -> float | None:
        """Seconds until all runs are over: the later ones will take as long as these did on average."""
        if self._since is None or (left := self.left) is None:
            return None
        times = [*self._took, self._clock() - self._since + left]
        return left + (self.runs - self.run) * sum(times) / len(times)

    @property
    def place(self) -> str:
        """ "run 3 of 8", or nothing where there is only one."""
        return f"run {self.run} of {self.runs}" if self.runs > 1 else ""

    @property
    def remaining(self) -> str:
        """ "3 min left", "3 min left, 14 min for all"; nothing where it is not known."""
        if (left := self.left) is None:
            return ""
        text = f"{human_seconds(left)} left"
        if self.runs > self.run and (whole := self.all_left) is not None:
            text += f", {human_seconds(whole)} for all"
        return text


def human_seconds(seconds: float) -> str:
    """45 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
