"""`releases.jsonl` of a simulated run with noise: every round's release, written before it is made.

A checkpoint may be older than the last round, and what a crash makes the run do again is released again:
the ledger is not cut back to the checkpoint. Of noise on the server's sum every line counts.
"""

from __future__ import annotations

from pathlib import Path

from spreadout.core.chained_log import ChainedLog
from spreadout.core.written import Count, Written
from spreadout.runs.written import Number, Score

RELEASES = "releases.jsonl"


class Line(Written):
    """One round: its noise in clips, and the ε at δ of any client after it, at most."""

    round: Count
    noise: Number
    epsilon: Score
    delta: Number


class ReleaseLedger:
    """How often a run has released something noised, over all of its processes."""

    def __init__(self, folder: Path) -> None:
        self._log = ChainedLog(folder / RELEASES, Line, sync=True)
        self.count = len(self._log.read())

    def spend(self, *, round: int, noise: float, epsilon: float, delta: float) -> None:
        """Something noised is about to be released."""
        self._log.append({"round": round, "noise": noise, "epsilon": epsilon, "delta": delta})
        self.count += 1
