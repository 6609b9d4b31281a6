"""A deployment as its server tells it while it runs: nodes, answers, refusals and bytes by round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spreadout.core.traffic import human_bytes
from spreadout.core.written import Count, Written, as_written
from spreadout.runs.claim import DEPLOYMENT
from spreadout.runs.logs import read_log

EVENTS = f"{DEPLOYMENT}/events.jsonl"
REMEDY = "delete it, and the run is shown without its nodes"
ENDS = {"done": "finished", "interrupted": "interrupted", "failed": "failed"}


class NodesThere(Written):
    """An event: how many nodes are connected, and how many clients they answer for."""

    nodes: Count
    clients: Count
    needed: Count  # nodes, before training begins


class RoundHeard(Written):
    """An event: what came of a round; those of earlier versions have no nodes and no bytes."""

    round: Count
    asked: Count
    accepted: Count
    refused: dict[str, Count]
    nodes: Count | None = None
    down: Count | None = None
    up: Count | None = None


@dataclass
class Deployed:
    """What is known by now; of a round that a crash made the server repeat, the last time counts."""

    state: str = "waiting for nodes"
    there: dict[str, int] | None = None  # as in `NodesThere`
    rounds: dict[int, dict[str, Any]] = field(default_factory=dict)  # as in `RoundHeard`

    def total(self, name: str) -> int:
        return sum(one.get(name) or 0 for one in self.rounds.values())

    @property
    def refused(self) -> Counter[str]:
        """How many updates were refused, by reason."""
        return sum((Counter(one["refused"]) for one in self.rounds.values()), Counter())


def deployed_of(folder: Path) -> Deployed | None:
    """Of a run folder; None if it is no deployment's."""
    path = folder / EVENTS
    if not path.is_file():
        return None
    found = Deployed()
    for number, event in enumerate(read_log(path, remedy=REMEDY), 1):
        where, kind = f"{path}:{number}", event.get("event")
        if kind == "nodes":
            found.there = as_written(NodesThere, event, where, REMEDY)
            if found.state in ENDS.values():  # it was resumed
                found.state = Deployed.state
        elif kind == "round":
            heard = as_written(RoundHeard, event, where, REMEDY)
            found.rounds[heard["round"]] = heard
        if kind in ("started", "round"):
            found.state = "training"
        elif kind in ENDS:
            found.state = ENDS[kind]
    return found


def lines_of(found: Deployed) -> Iterator[str]:
    """One line for the nodes that are there and for each round, for a terminal."""
    if found.there is not None and not found.rounds:
        there = found.there
        yield f"{there['nodes']} of {there['needed']} nodes, for {_many(there['clients'], 'client')}"
    for _, one in sorted(found.rounds.items()):
        yield _line(one)


def _line(heard: Mapping[str, Any]) -> str:
    said = f"round {heard['round']}: {heard['accepted']} of {heard['asked']} updates accepted"
    if heard.get("nodes") is not None:
        said += f", {_many(heard['nodes'], 'node')}"
    if heard.get("down") is not None:
        said += f", {human_bytes(heard['down'])} down, {human_bytes(heard['up'])} up"
    why = ", ".join(f"{count} {reason}" for reason, count in heard["refused"].items())
    return f"{said}; refused: {why}" if why else said


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
