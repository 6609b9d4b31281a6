"""A run's folder: `config.toml`, `metrics.jsonl`, `summary.json`, `checkpoint/`, `model/`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from spreadout.errors import UserError
from spreadout.federated.server import ServerState

Record = dict[str, Any]


class RunFolder:
    """Where one run writes. Created fresh, or opened to go on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: str, *, force: bool = False) -> RunFolder:
        """A fresh folder holding the resolved config; an earlier run is replaced only by `force`."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if not force:
                raise UserError(f"{path}: exists; choose another --out, or --force to replace it")
            remove_run(path)
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.toml").write_text(config, encoding="utf-8")
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
    def finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    def append(self, record: Record) -> None:
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

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
        text = "".join(json.dumps(record) + "\n" for record in kept)
        (self.path / "metrics.jsonl").write_text(text, encoding="utf-8")
        return kept

    def finish(self, summary: Mapping[str, Any], state: ServerState, picture: Mapping[str, Any]) -> None:
        model = self.path / "model"
        model.mkdir(exist_ok=True)
        tensors = {
            **{f"dense.{n}": t for n, t in state.dense.items()},
            **{f"table.{n}": t for n, t in state.tables.items()},
        }
        save_file(
            {n: t.detach().cpu().contiguous() for n, t in tensors.items()},
            model / "weights.safetensors",
        )
        (self.path / "picture.json").write_text(json.dumps(picture), encoding="utf-8")
        (self.path / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def remove_run(path: Path) -> None:
    """Delete an earlier run or comparison, and refuse to delete anything else."""
    ours = {"config.toml", "comparison.json", "suite.toml"}
    if not path.is_dir() or not any((path / name).is_file() for name in ours):
        raise UserError(f"{path}: exists and is not a run folder; choose another --out")
    shutil.rmtree(path)
