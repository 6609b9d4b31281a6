"""A run's folder: `config.toml`, `metrics.jsonl`, `summary.json`, `checkpoint/`, `model/`, on demand
`requests.jsonl`, of a deployment `refusals.jsonl`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from spreadout.core.errors import UserError
from spreadout.core.files import as_json, write_atomic, write_json
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.types import Record

COMPARISON_MARK = ".spreadout-comparison"
REQUESTS, REFUSALS = "requests.jsonl", "refusals.jsonl"
DEPLOYMENT = "deployment"  # where a rehearsal of a deployment keeps its project, keys and logs


class RunFolder:
    """Where one run writes. Created fresh, or opened to resume."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: str, *, force: bool = False) -> RunFolder:
        """A fresh folder holding the resolved config; an earlier run is replaced only by `force`."""
        if path.exists() and (not path.is_dir() or any(_apart_from_deployment(path))):
            if not force:
                raise UserError(f"{path}: exists; choose another --out, or --force to replace it")
            remove_run(path)
        path.mkdir(parents=True, exist_ok=True)
        write_atomic(path / "config.toml", config.encode())
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not (path / "config.toml").is_file():
            raise UserError(f"{path}: not a run folder (no config.toml)")
        return cls(path)

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def has_checkpoint(self) -> bool:
        return self.checkpoint.is_dir() and any(self.checkpoint.iterdir())

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    def append(self, record: Record) -> None:
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(as_json(record) + "\n")

    def log_requests(self, round: int, requests: Iterable[tuple[int, list[int]]]) -> None:
        """Add which class rows each client requested in a round."""
        with open(self.path / REQUESTS, "a", encoding="utf-8") as file:
            for client, rows in requests:
                file.write(as_json({"round": round, "client": client, "rows": rows}) + "\n")

    def log_refusals(self, refusals: Iterable[Record]) -> None:
        """Add what was refused in a deployment: round, client, node, reason."""
        with open(self.path / REFUSALS, "a", encoding="utf-8") as file:
            file.writelines(as_json(one) + "\n" for one in refusals)

    def requests(self) -> Iterator[tuple[int, list[int]]]:
        """What was logged, in the order it came; a line cut short by a crash ends it."""
        log = self.path / REQUESTS
        if not log.is_file():
            raise UserError(
                f"{self.path}: has no {REQUESTS}; run it with run.log_requests=true and a method whose "
                "clients request rows"
            )
        with open(log, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    record = json.loads(line)
                    yield int(record["client"]), [int(row) for row in record["rows"]]
                except (ValueError, KeyError, TypeError):
                    if line.endswith("\n"):  # the last one may have been cut short by a crash
                        raise UserError(f"{log}:{number}: is not a logged request") from None

    def history(self) -> list[Record]:
        """All evaluations so far; a last line cut short by a crash is left out."""
        try:
            lines = (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        records = []
        for line in lines:
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def rewind(self, round: int) -> list[Record]:
        """Forget evaluations after this round: a resumed run makes them again."""
        kept = [record for record in self.history() if record["round"] <= round]
        text = "".join(as_json(record) + "\n" for record in kept)
        write_atomic(self.path / "metrics.jsonl", text.encode())
        for name in (REQUESTS, REFUSALS):
            self._rewind_log(self.path / name, round)
        return kept

    def _rewind_log(self, log: Path, round: int) -> None:
        if not log.is_file():
            return
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        kept = [line for line in whole if json.loads(line)["round"] <= round]
        write_atomic(log, "".join(kept).encode())

    def finish(
        self,
        summary: Mapping[str, Any],
        state: ServerState,
        projection: Mapping[str, Any] | None,
        about: Mapping[str, Any],
    ) -> None:
        """The model with what is needed to use it, the projection, and last the summary."""
        model = self.path / "model"
        model.mkdir(exist_ok=True)
        tensors = {
            **{f"dense.{n}": t for n, t in state.dense.items()},
            **{f"table.{n}": local_of(t) for n, t in state.tables.items()},
            **{f"scoring.{n}": t for n, t in state.scoring.items()},
        }
        save_file(
            {n: t.detach().cpu().contiguous() for n, t in tensors.items()},
            model / "weights.safetensors",
        )
        write_json(model / "about.json", about)
        if projection is not None:
            write_json(self.path / "projection.json", projection)
        write_json(self.path / "summary.json", summary)  # last: it says the run is finished


def _apart_from_deployment(path: Path) -> Iterator[Path]:
    return (item for item in path.iterdir() if item.name != DEPLOYMENT)


def remove_run(path: Path) -> None:
    """Delete an earlier run or comparison, and refuse to delete anything else."""
    run = (path / "config.toml").is_file() and (path / "checkpoint").is_dir()
    comparison = (path / COMPARISON_MARK).is_file()
    rehearsal = (path / DEPLOYMENT).is_dir() and not any(_apart_from_deployment(path))
    if not run and not comparison and not rehearsal:
        raise UserError(f"{path}: exists and is not a run folder; choose another --out")
    shutil.rmtree(path)
