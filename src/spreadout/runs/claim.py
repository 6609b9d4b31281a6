"""Folders that runs and comparisons write: marked as ours, locked while in use, replaced only on demand.

The mark of a folder is also its lock file. It is made first and is the last to go, so a folder that was
killed at any moment is known as ours, and can be gone on with or replaced.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path

from spreadout.core.errors import UserError
from spreadout.core.locks import Lock, is_signed

RUN_MARK, COMPARISON_MARK = ".spreadout-run", ".spreadout-comparison"
REHEARSAL_MARK = ".spreadout-rehearsal"  # held by the process that starts a rehearsal's others
MARKS = (RUN_MARK, COMPARISON_MARK, REHEARSAL_MARK)
DEPLOYMENT = "deployment"  # where a rehearsal of a deployment keeps its project, keys and logs
CONFIG, SUMS = "config.toml", "SHA256SUMS"
REMOVED = ".removed"  # what is being deleted
FIRST = ("summary.json", "comparison.json", CONFIG)  # without these nothing takes it for a run
WRITTEN = frozenset(  # what runs of earlier versions, which had no mark, wrote
    {CONFIG, "metrics.jsonl", "summary.json", "picture.json", "report.html", "requests.jsonl"}
    | {"refusals.jsonl", "access.jsonl", "privacy.json", "checkpoint", "model"}
)
EXISTS = "exists; choose another --out (out=), or --force (force=True) to replace it"
NO_LOCKS = (
    "{}: this file system has no locks; see to it that no other process works in this folder "
    "(docs/reliability.md)"
)


class Claim:
    """A folder that no other process writes to until `release`."""

    def __init__(self, path: Path, lock: Lock, made: list[Path]) -> None:
        self.path, self.lock, self._made = path, lock, made
        self.begun = False  # whether there is something in it to keep

    @classmethod
    def take(cls, path: Path, mark: str) -> Claim:
        """Make the folder if need be, and hold it. Nothing in it is touched."""
        made = [one for one in (path / mark, path, *path.parents) if not one.exists()]
        path.mkdir(parents=True, exist_ok=True)
        return cls(path, Lock.take(path / mark), made)

    @property
    def warning(self) -> str | None:
        return None if self.lock.locked else NO_LOCKS.format(self.path)

    def clear(self, keep: Collection[str] = ()) -> None:
        """Delete what is in the folder. Each thing goes whole: what is deleted in part is out of sight.

        What another process is working on is not deleted, be it a run of a comparison.
        """
        trash, own = self.path / REMOVED, self.lock.path
        marks = [self.path / mark for mark in MARKS if mark not in keep]
        marks += self.path.glob(f"*/*/{RUN_MARK}")
        others = [mark for mark in marks if mark != own and mark.is_file()]
        with ExitStack() as held:
            for mark in others:
                held.callback(Lock.take(mark).release)
            self.empty_trash()
            items = [item for item in self.path.iterdir() if item != own and item.name not in keep]
            if items:
                trash.mkdir()
                for item in sorted(items, key=lambda item: item.name not in FIRST):
                    os.rename(item, trash / item.name)
                shutil.rmtree(trash)

    def empty_trash(self) -> None:
        """Remove what a process that was killed had begun to delete."""
        trash = self.path / REMOVED
        if trash.is_dir() and not trash.is_symlink():
            shutil.rmtree(trash)
        else:  # somebody else's: what a link leads to stays
            trash.unlink(missing_ok=True)

    def release(self) -> None:
        """Let others have it; if nothing was begun, what was made for it is gone again."""
        undone = [] if self.begun else self._made
        self.lock.release(remove=self.lock.path in undone)
        for folder in undone:
            with suppress(OSError):  # somebody else has put something there
                folder.rmdir()


def contents(path: Path) -> set[str]:
    """What is in a folder, apart from what is there before a run begins and what a killed one left."""
    before = {RUN_MARK, REHEARSAL_MARK, DEPLOYMENT, SUMS, REMOVED}
    names = {item.name for item in path.iterdir()} - before
    return {name for name in names if not _UNFINISHED.fullmatch(name)}


_UNFINISHED = re.compile(
    rf"\.({re.escape(CONFIG)}|{re.escape(SUMS)})\.\d+"
)  # as `core/files.py` names it


def is_taken(path: Path) -> bool:
    """Whether something is there that only `--force` replaces."""
    return path.exists() and (not path.is_dir() or bool(contents(path)))


def refuse_foreign(path: Path) -> None:
    """Nothing is deleted but earlier runs and comparisons."""
    if not path.is_dir() or not is_ours(path):
        raise UserError(f"{path}: exists and is not a run folder; choose another --out (out=)")


def is_ours(path: Path) -> bool:
    """Whether it is the folder of a run, a comparison or a rehearsal, be it of an earlier version."""
    if any(is_signed(path / mark) for mark in MARKS):
        return True
    if (path / DEPLOYMENT).is_dir() and not contents(path):
        return True
    if not (path / CONFIG).is_file() or not contents(path) <= WRITTEN:
        return False  # no run, or somebody keeps something else beside it
    try:  # a run of an earlier version
        config = tomllib.loads((path / CONFIG).read_text(encoding="utf-8"))
    except ValueError:
        return False
    return {"rounds", "method", "clients"} <= config.keys()
