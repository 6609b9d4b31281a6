"""Events of a run for another process: the server writes them to a file, and its starter reads them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from logging import INFO
from pathlib import Path
from typing import Any

import torch
from flwr.supercore import log

from spreadout.config.experiment import Experiment
from spreadout.core.files import as_json
from spreadout.core.traffic import Traffic
from spreadout.core.types import Record
from spreadout.federated.cohort import Cohort
from spreadout.federated.round import RoundReport
from spreadout.runs.observer import Observer


class Events(Observer):
    """Writes one JSON line for everything a run does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metrics: list[str] = []
        self._there: dict[str, int] = {}  # nodes, and the clients they answer for

    def _write(self, kind: str, **about: Any) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(as_json({"event": kind, **about}) + "\n")

    def started(self, experiment: Experiment, round: int) -> None:
        self._metrics = experiment.eval.metrics
        self._write("started", round=round)

    def nodes_there(self, nodes: int, clients: int, needed: int) -> None:
        """Who is connected now; a line only when that has changed."""
        there = {"nodes": nodes, "clients": clients}
        if there != self._there:
            self._there = there
            self._write("nodes", **there, needed=needed)

    def round_done(self, report: RoundReport) -> None:
        about = {"asked": report.clients, "accepted": report.accepted, "loss": report.loss}
        about |= {"down": report.traffic.down, "up": report.traffic.up, **self._there}
        self._write("round", round=report.round, **about, refused=dict(report.refused))
        log(INFO, "round %d: %d of %d updates", report.round, report.accepted, report.clients)

    def evaluated(self, record: Record) -> None:
        self._write("evaluated", record=record)
        scores = {name: value for name, value in record.items() if name in self._metrics}
        log(INFO, "after round %d: %s", record["round"], as_json(scores))

    def warned(self, text: str) -> None:
        self._write("warned", text=text)

    def done(self, summary: Mapping[str, Any]) -> None:
        self._write("done", summary=summary)

    def interrupted(self, round: int) -> None:
        self._write("interrupted", round=round)

    def failed(self, text: str) -> None:
        self._write("failed", text=text)


@dataclass
class Reader:
    """Follows a file of events as it grows."""

    path: Path
    refused: dict[str, int] = field(default_factory=dict)  # in the round before
    _read: int = 0

    def new(self) -> Iterator[dict[str, Any]]:
        """The events since the last call; an unfinished line is left for the next."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return
        for line in text.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                return
            self._read += len(line)
            yield json.loads(line)


def forward(
    event: Mapping[str, Any], observer: Observer, experiment: Experiment, before: dict[str, int]
) -> None:
    """Pass an event on to an observer; before: what was refused in the round before."""
    kind = event["event"]
    if kind == "round" and event["refused"] != before:  # once for a stretch of such rounds
        before.clear()
        before.update(event["refused"])
        why = ", ".join(f"{count} {reason}" for reason, count in before.items())
        if before:
            observer.warned(f"round {event['round']}: refused of {event['asked']} updates: {why}")
    if kind == "started":
        observer.started(experiment, event["round"])
    elif kind == "round":
        observer.round_done(
            RoundReport(
                event["round"],
                event["asked"],
                event["accepted"],
                float("nan") if event["loss"] is None else event["loss"] * event["accepted"],
                Counter(event["refused"]),
                Traffic(),
                Cohort(0, torch.empty(0, dtype=torch.int64), {}),
            )
        )
    elif kind == "evaluated":
        observer.evaluated(event["record"])
    elif kind == "warned":
        observer.warned(event["text"])
