"""A run's folder: `config.toml`, `metrics.jsonl`, `summary.json`, `checkpoint/`, `model/`, `SHA256SUMS`,
on demand `requests.jsonl`, of a deployment `refusals.jsonl`, of noise on the server `releases.jsonl`.

Every moment at which the process may die leaves a folder that can be resumed, or started again:

- without `config.toml` nothing has begun, and `run` begins it;
- without `checkpoint/state.json` it starts from round 0;
- without `summary.json` it goes on from the checkpoint;
- `summary.json` is written last, so with it everything else is there.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from spreadout.core.checksums import digest_of, sha256
from spreadout.core.errors import UserError
from spreadout.core.files import append, as_json, json_bytes, sweep, write_atomic, write_json
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.tensor_files import write_tensors
from spreadout.core.types import Record
from spreadout.federated.executor import Heard
from spreadout.runs import checkpoint, logs
from spreadout.runs.bound import digests_of, refuse_another
from spreadout.runs.claim import (
    CONFIG,
    DEPLOYMENT,
    EXISTS,
    REHEARSAL_MARK,
    RUN_MARK,
    SUMS,
    Claim,
    is_taken,
    refuse_foreign,
)
from spreadout.runs.files import ABOUT, DETAILS, PRIVACY, PROJECTION, SUMMARY, WEIGHTS, RunFiles
from spreadout.runs.logs import LOGS, METRICS, REFUSALS, REQUESTS, Marker
from spreadout.runs.release_ledger import RELEASES
from spreadout.runs.sums import check, read_sums, unchecked, write_sums

WRITTEN = {
    ".": {CONFIG, SUMS, SUMMARY, PROJECTION, PRIVACY, DETAILS, *LOGS},
    "model": {Path(WEIGHTS).name, Path(ABOUT).name},
}


class RunFolder(RunFiles):
    """Where one run writes, or what it left; a process that writes has a claim to it."""

    def __init__(self, path: Path, claim: Claim | None = None) -> None:
        super().__init__(path)
        self.claim = claim
        self.notes = [claim.warning] if claim and claim.warning else []  # to be told before it is used
        self._marker = Marker(path)

    @classmethod
    def claimed(cls, path: Path, *, force: bool = False) -> RunFolder:
        """For a fresh run: a free place, or an earlier run if `force`. Nothing is replaced yet."""
        if is_taken(path):
            if not force:
                raise UserError(f"{path}: {EXISTS}")
            refuse_foreign(path)
        claim = Claim.take(path, RUN_MARK)
        if not force and is_taken(path):  # another process was faster, and is done
            claim.release()
            raise UserError(f"{path}: {EXISTS}")
        return cls(path, claim)

    def begin(self, config: str) -> None:
        """Replace whatever is there by a run that has a config and nothing else."""
        assert self.claim is not None
        self.claim.clear(keep=() if is_taken(self.path) else (DEPLOYMENT, REHEARSAL_MARK))
        self.claim.begun = True
        payload = config.encode()
        write_sums(self.path, {CONFIG: sha256(payload)})
        write_atomic(self.config, payload)

    @classmethod
    def reopened(cls, path: Path) -> RunFolder:
        """To go on with a run: whole up to its checkpoint, or refused."""
        cls.open(path)
        claim = Claim.take(path, RUN_MARK)
        claim.begun = True
        try:
            folder = cls(path, claim)
            claim.empty_trash()
            for inner, names in WRITTEN.items():
                sweep(path / inner, names)
            checkpoint.sweep(folder.checkpoint)
            check(path, CONFIG)
            if said := unchecked(path):
                folder.notes.append(said)
                write_sums(path, {CONFIG: digest_of(path / CONFIG)})
            saved = folder.saved()
            refuse_another(folder.checkpoint, folder.config, saved.get("config") if saved else None)
            if saved is None and folder.finished:
                raise UserError(f"{path}: is finished and has no checkpoint; there is nothing to resume")
            logs.check_marks(path, saved["logs"] if saved else {})
            folder._rewind(saved)
        except BaseException:
            claim.release()
            raise
        return folder

    def release(self) -> None:
        if self.claim is not None:
            self.claim.release()

    def append(self, record: Record) -> None:
        self._log(METRICS, [record])

    def log_requests(self, requests: Iterable[Record]) -> None:
        """Add which class rows clients have requested: `request_records`."""
        self._log(REQUESTS, requests)

    def log_refusals(self, refusals: Iterable[Record]) -> None:
        """Add what was refused in a deployment: round, client, node, reason."""
        self._log(REFUSALS, refusals)

    def _log(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        self._refuse_if_deleted()
        lines = "".join(as_json(record) + "\n" for record in records)
        append(self.path / name, lines.encode())

    def save(self, state: ServerState, extra: Mapping[str, Any]) -> None:
        """Replace the checkpoint."""
        self._refuse_if_deleted()
        checkpoint.save(self.checkpoint, state, extra, self._marker.marks(), self._bound)

    @cached_property
    def _bound(self) -> dict[str, str]:
        """The config that is being trained with, as a checkpoint names it."""
        return digests_of(self.config)

    def _refuse_if_deleted(self) -> None:
        if self.claim is not None and self.claim.lock.lost:
            raise UserError(f"{self.path}: was deleted while the run was going on; start it again")

    def explained(self, error: OSError) -> UserError | None:
        """What a person is told of a failed write in this folder; None of other errors."""
        try:
            self._refuse_if_deleted()
        except UserError as deleted:
            return deleted
        name = None if error.filename is None else Path(str(error.filename))
        if name is None or not name.is_relative_to(self.path):
            return None
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "make room" if full else "mend that"
        kept = "nothing was trained yet"
        with suppress(UserError):
            kept = "the last checkpoint is whole" if self.has_checkpoint else kept
        again = f"`spreadout resume {self.path}`" if self.config.is_file() else "run it again"
        return UserError(f"{name}: cannot be written ({error.strerror}); {kept}: {remedy}, then {again}")

    def _rewind(self, saved: Mapping[str, Any] | None) -> None:
        """Take off what came after the checkpoint: a resumed run makes it again."""
        if self.finished and not self._ended_at(saved):
            self.unfinish()
            self.notes.append(f"{self.path}: what it left at its end is made again from the checkpoint")
        if not self.finished:
            logs.rewind(self.path, saved["logs"] if saved else {})

    def _ended_at(self, saved: Mapping[str, Any] | None) -> bool:
        """Whether the run ended at its checkpoint and everything it left is whole."""
        try:
            check(self.path, *(read_sums(self.path) or {}), SUMMARY)
            ended = self.summary()["rounds"]
        except UserError:
            return False
        return saved is not None and ended == saved["round"]

    def write_privacy(self, privacy: Mapping[str, Any]) -> None:
        """What clients have given away so far, for a run that is interrupted."""
        digest = write_json(self.path / PRIVACY, privacy)
        write_sums(self.path, {**(read_sums(self.path) or {}), PRIVACY: digest})

    def unfinish(self) -> None:
        """It is going on: what it left at its end is to be made again."""
        (self.path / SUMMARY).unlink(missing_ok=True)

    def finish(
        self,
        summary: Mapping[str, Any],
        state: ServerState,
        projection: Mapping[str, Any] | None,
        about: Mapping[str, Any],
        privacy: Mapping[str, Any],
        details: Mapping[str, Any],
    ) -> None:
        """The model, what is needed to use it, what is said of it, the sums, and last the summary."""
        self._refuse_if_deleted()
        (self.path / "model").mkdir(exist_ok=True)
        sums = {CONFIG: digest_of(self.config)}
        sums |= {name: mark["sha256"] for name, mark in self._marker.marks().items()}
        sums[WEIGHTS] = write_tensors(self.path / WEIGHTS, model_tensors(state))
        sums[ABOUT] = write_json(self.path / ABOUT, about)
        if projection is not None:
            sums[PROJECTION] = write_json(self.path / PROJECTION, projection)
        sums[PRIVACY] = write_json(self.path / PRIVACY, privacy)
        if (self.path / RELEASES).is_file():
            sums[RELEASES] = digest_of(self.path / RELEASES)
        sums[DETAILS] = write_json(self.path / DETAILS, details)
        payload = json_bytes(summary)
        write_sums(self.path, {**sums, SUMMARY: sha256(payload)})
        write_atomic(self.path / SUMMARY, payload)  # last: it says the run is finished


def model_tensors(state: ServerState) -> dict[str, Tensor]:
    """What `model/` has of a state: all that answers need."""
    return {
        **{f"dense.{n}": t for n, t in state.dense.items()},
        **{f"table.{n}": local_of(t) for n, t in state.tables.items()},
        **{f"scoring.{n}": t for n, t in state.scoring.items()},
    }


def request_records(heard: Iterable[Heard]) -> Iterator[Record]:
    """Which class rows clients requested, as it is logged."""
    return ({"round": one.round + 1, "client": one.client, "rows": one.rows} for one in heard)


def remove_run(path: Path, keep: Collection[str] = ()) -> None:
    """Delete an earlier run, comparison or rehearsal, and refuse to delete anything else."""
    refuse_foreign(path)
    claim = Claim.take(path, RUN_MARK)
    try:
        claim.clear(keep)
    finally:
        claim.release()
