"""Memory over time: what a process holds, and whether that grows."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int | str = "self") -> int:
    """Bytes of a process that are in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE


def open_files(pid: int | str = "self") -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of y over x: the median over all pairs (Theil–Sen), which a few odd points do not move."""
    pairs = [(i, j) for j in range(len(x)) for i in range(j) if x[i] != x[j]]
    return statistics.median((y[j] - y[i]) / (x[j] - x[i]) for i, j in pairs)


@dataclass
class Course:
    """Samples of memory along the rounds of a run."""

    rounds: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)

    def add(self, round: int, held: int) -> None:
        self.rounds.append(round)
        self.bytes.append(held)

    def growth(self, skip: float = 0.2) -> float:
        """Bytes a round, without the first share of the samples, in which caches fill."""
        start = int(skip * len(self.rounds))
        return slope(self.rounds[start:], self.bytes[start:])

    def about(self) -> dict[str, object]:
        """For a result file: few numbers, and a course of at most forty points."""
        every = max(1, -(-len(self.rounds) // 40))
        return {
            "growth_bytes_a_round": round(self.growth(), 2),
            "first_mb": round(self.bytes[0] / 2**20, 2),
            "last_mb": round(self.bytes[-1] / 2**20, 2),
            "most_mb": round(max(self.bytes) / 2**20, 2),
            "rounds": self.rounds[::every],
            "mb": [round(held / 2**20, 2) for held in self.bytes[::every]],
        }
