"""What a run left in its folder, read back whole or refused: its checksums, then its schemas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from spreadout.core.checksums import read_json
from spreadout.core.errors import UserError
from spreadout.core.types import Record
from spreadout.core.written import Written, as_written
from spreadout.runs import checkpoint, logs
from spreadout.runs.claim import CONFIG, RUN_MARK
from spreadout.runs.logs import METRICS, REQUESTS
from spreadout.runs.sums import check, read_sums, remedy_for
from spreadout.runs.written import (
    About,
    Details,
    Evaluated,
    PrivacySaid,
    Progress,
    Projection,
    Requested,
    Summary,
)

SUMMARY, PROJECTION, PRIVACY = "summary.json", "projection.json", "privacy.json"
DETAILS = "details.json"
WEIGHTS, ABOUT = "model/weights.safetensors", "model/about.json"


class RunFiles:
    """The files of a run: finished, going on, or cut short."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> Self:
        """To read what a run left."""
        if not (path / CONFIG).is_file():
            killed = (path / RUN_MARK).is_file()
            hint = "; it was stopped before it began: run it again" if killed else ""
            raise UserError(f"{path}: not a run folder (no {CONFIG}){hint}")
        return cls(path)

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def has_checkpoint(self) -> bool:
        return self.saved() is not None

    def saved(self) -> dict[str, Any] | None:
        """What the checkpoint says of itself; None before the first one."""
        found = checkpoint.read_pointer(self.checkpoint)
        if found is not None:
            as_written(Progress, found["extra"], self.checkpoint / checkpoint.POINTER, checkpoint.REMEDY)
        return found

    @property
    def finished(self) -> bool:
        return (self.path / SUMMARY).is_file()

    def requests(self) -> Iterator[tuple[int, list[int]]]:
        """What was logged up to the last checkpoint, in the order it came."""
        path = self.path / REQUESTS
        if not path.is_file():
            raise UserError(
                f"{self.path}: has no {REQUESTS}; run it with run.log_requests=true and a method whose "
                "clients request rows"
            )
        for record in self._records(REQUESTS, Requested):
            yield record["client"], record["rows"]

    def history(self, numbers: Iterable[str] = ()) -> list[Record]:
        """All evaluations, of an unfinished run those up to its last checkpoint.

        numbers: the metrics, and whatever else has a value in every one of them, be it null.
        """
        path, wanted = self.path / METRICS, list(numbers)
        found = list(self._records(METRICS, Evaluated)) if path.is_file() else []
        for number, record in enumerate(found, 1):
            for name in wanted:
                if name not in record or isinstance(record[name], bool):
                    raise UserError(
                        f"{path}:{number}: has no value of {name!r}; evaluate the run as it was begun "
                        "(eval.metrics), or run it again with --force (force=True)"
                    )
        return found

    def _records(self, name: str, kind: type[Written]) -> Iterator[dict[str, Any]]:
        """The records of a log, as far as they are sure."""
        for number, record in enumerate(self._sure(name), 1):
            yield as_written(kind, record, f"{self.path / name}:{number}", logs.REMEDY)

    def _sure(self, name: str) -> Iterator[dict[str, Any]]:
        if self.finished:
            check(self.path, name)
            return logs.read_log(self.path / name)
        saved = self.saved()
        marks = saved["logs"] if saved else {}
        marks = {name: marks[name]} if name in marks else {}
        logs.check_marks(self.path, marks)
        return logs.read_log(self.path / name, marks[name]["bytes"] if marks else 0)

    def summary(self) -> dict[str, Any]:
        """What the run reached, if it is finished and whole."""
        path = self.path / SUMMARY
        if not path.is_file():
            raise UserError(f"{self.path}: no finished run here (no {SUMMARY})")
        return self.read_json(SUMMARY, Summary)

    def projection(self) -> dict[str, Any] | None:
        """The classes and some examples in the plane, if the run has left that."""
        return self._optional(PROJECTION, Projection)

    def privacy(self) -> dict[str, Any] | None:
        """What its clients gave away; those of earlier versions did not write it down."""
        return self._optional(PRIVACY, PrivacySaid)

    def details(self) -> dict[str, Any] | None:
        """What it found by class and by client; those of earlier versions did not write it down."""
        return self._optional(DETAILS, Details)

    def names(self) -> list[str]:
        """The names of classes; none where they have none, or the run is not finished."""
        return list(found["names"]) if (found := self._optional(ABOUT, About)) else []

    def _optional(self, name: str, kind: type[Written]) -> dict[str, Any] | None:
        there = name in (read_sums(self.path) or {}) or (self.path / name).is_file()
        return self.read_json(name, kind) if there else None

    def read_json(self, name: str, kind: type[Written]) -> dict[str, Any]:
        """One of its JSON files, if it is whole."""
        check(self.path, name)
        path = self.path / name
        try:
            found = read_json(path)
        except ValueError as error:
            raise UserError(f"{path}: is damaged ({error}); {remedy_for(self.path, name)}") from None
        return as_written(kind, found, path, remedy_for(self.path, name))
