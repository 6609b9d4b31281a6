"""What is refused in a deployment: noted as it happens, written down and logged a batch at a time.

A client that was asked and is refused has a line of its own, so there are never more than were asked. Of
what nobody asked for a few are named and the rest are counted: a reply costs one write, however much it
names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from logging import WARNING
from typing import Any

from flwr.supercore import log

NOBODY = -1  # where a refusal is no client's, or a client has no node
NAMED = 10  # clients that nobody asked for and that are named, of one node at one time
Record = dict[str, Any]  # round, client, node, reason; count where it stands for several


@dataclass
class Refusals:
    """Those that are not written yet. `write` puts some down, or keeps them all by returning False."""

    write: Callable[[Sequence[Record]], bool] = lambda records: True
    _waiting: list[Record] = field(default_factory=list)
    _unsaid: Counter[tuple[int, int, str]] = field(default_factory=Counter)

    def add(self, round: int, client: int, node: int, reason: str, count: int = 1) -> None:
        """Note one; nothing is written yet. count: how many it stands for."""
        record: Record = {"round": round, "client": client, "node": node, "reason": reason}
        self._waiting.append(record | {"count": count} if count > 1 else record)
        self._unsaid[round, node, reason] += count

    def add_unasked(self, round: int, clients: Iterable[int], node: int, reason: str) -> int:
        """Note clients that a node named by itself; returns how many they are."""
        every = sorted(clients)
        for client in every[:NAMED]:
            self.add(round, client, node, reason)
        if len(every) > NAMED:
            self.add(round, NOBODY, node, reason, len(every) - NAMED)
        return len(every)

    def flush(self) -> None:
        """Write and log what has come since the last time."""
        for (round, node, reason), count in self._unsaid.items():
            log(WARNING, "round %d: %d refused of node %s: %s", round, count, node, reason)
        self._unsaid.clear()
        if self._waiting and self.write(self._waiting):
            self._waiting = []
