"""The noised updates that a server has asked for: written down before it asks.

A checkpoint may be older than the last round that clients were asked for, and a crash in between must
not make the count smaller. Nodes keep ledgers of their own, over all runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from spreadout.core.chained_log import ChainedLog
from spreadout.core.written import Count, Written

LOG = "releases.jsonl"  # in the run folder's deployment part


class Line(Written):
    """One of the log."""

    round: Count
    clients: list[Count]


class ReleaseLog:
    """By client number, how often it was asked."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._log = ChainedLog(path, Line, sync=True)
        self._counts: Counter[int] = Counter()
        if not resume:
            path.unlink(missing_ok=True)
        for record in self._log.read():
            self._counts.update(record["clients"])

    def asked(self, round: int, clients: Iterable[int]) -> None:
        """These clients are asked for a noised update now."""
        some = list(clients)
        self._log.append({"round": round, "clients": some})
        self._counts.update(some)

    @property
    def counts(self) -> Mapping[int, int]:
        return self._counts
