"""What a node has given away of each of its clients, over all runs: counted by the node itself.

The server counts too, but a guarantee against the server must not rest on its word. Every release is
written down before it leaves, so that a crash forgets none. The file belongs to the node, outside what
Flower keeps, and outlives runs, restarts and new versions of the data.

A look is a request that a server has seen. Where clients draw other rows to hide their own, each look
narrows down which are theirs, so there may not be many more looks than trainings. What is asked follows
from the round and from the config, which the server chooses: looks are told apart by what was answered.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from spreadout.core.chained_log import ChainedLog
from spreadout.core.errors import UserError
from spreadout.core.locks import Lock
from spreadout.core.written import Count, Written
from spreadout.privacy.accounting import REPLACE_ONE_CLIENT, epsilon_of_mu

LEDGER, LOCK = "ledger.jsonl", "ledger.lock"
RELEASE, LOOK, STEP = "release", "look", "step"
WAIT = 30.0  # seconds for another message of this node to finish writing


class Refusal(UserError):
    """Why a node does not answer; it follows from the ledger and what is asked, not from the data.

    The server is told, so it names nothing of the node's machine.
    """


class Line(Written):
    """One of the ledger."""

    kind: Literal["release", "look", "step"]
    run: str
    round: Count
    clients: list[Count]
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None  # of a release
    step: str = ""  # of a secure sum
    answers: list[str] = Field(default_factory=list)  # what requests are known by; old ledgers: none

    @model_validator(mode="after")
    def _has_noise(self) -> Line:
        if self.kind == RELEASE and self.noise is None:
            raise ValueError("a release has no noise")
        if self.answers and len(self.answers) != len(self.clients):
            raise ValueError("answers of other clients")
        return self


@dataclass(frozen=True)
class Budget:
    """What a node may give away of each client."""

    epsilon: float | None = None  # None: it is counted and not limited
    delta: float = 1e-6
    spare_looks: int = 1  # looks that no training followed


@dataclass
class Account:
    """What one client has given away."""

    mu_squared: float = 0.0  # Σ (Δ/z)²: Gaussian releases compose by it
    releases: int = 0
    last: dict[str, int] = field(default_factory=dict)  # by run, the last round it was trained in
    trained: set[str] = field(default_factory=set)  # requests that a training followed
    looks: set[str] = field(default_factory=set)  # requests that were seen: again costs nothing

    def epsilon(self, delta: float) -> float:
        return epsilon_of_mu(math.sqrt(self.mu_squared), delta)


@dataclass(frozen=True)
class Release:
    """A round of a run in which clients are to be trained, and the noise on what they send."""

    run: str
    round: int
    noise: float  # multiplier; 0: none
    data: str = ""  # what the node's data is known by

    @property
    def mu_squared(self) -> float:
        return (REPLACE_ONE_CLIENT / self.noise) ** 2 if self.noise else math.inf


class NodeLedger:
    """The ledger of a node, in a folder of its own."""

    def __init__(self, folder: Path, budget: Budget) -> None:
        self.folder, self.budget = folder, budget

    def affordable(self, release: Release, clients: Sequence[int]) -> list[int]:
        """Those of the clients that may still be trained; an error with the reason if none may."""
        with self._held() as (_, accounts):
            return self._passed(clients, accounts, lambda own: self._why_not(release, own))

    def spend(
        self, release: Release, clients: Sequence[int], answers: Mapping[int, str] | None = None
    ) -> list[int]:
        """Write a release down before it leaves; for which clients it may.

        answers: by client, what the request is known by that it was trained on, where looks count.
        """
        with self._held() as (log, accounts):
            paid = self._passed(clients, accounts, lambda own: self._why_not(release, own))
            if paid:
                about = {"noise": release.noise, "data": release.data}
                if answers:
                    about["answers"] = [answers[client] for client in paid]
                log.append(_record(RELEASE, release.run, release.round, paid) | about)
            return paid

    def look(self, run: str, round: int, answers: Mapping[int, str]) -> list[int]:
        """Write down that the server sees the requests of a round; whose it may.

        answers: by client, what its request is known by.
        """
        with self._held() as (log, accounts):
            reasons = {c: self._unlooked(answer, _of(accounts, c)) for c, answer in answers.items()}
            seen = _without_reason(reasons)
            if new := [client for client in seen if answers[client] not in _of(accounts, client).looks]:
                known = {"answers": [answers[client] for client in new]}
                log.append(_record(LOOK, run, round, new) | known)
            return seen

    def once(self, run: str, round: int, step: str) -> None:
        """Write down that a step of a round's secure sum is answered; a second time is refused."""
        with self._held() as (log, _):
            known = {(line["run"], line["round"], line.get("step")) for line in log.read()}
            if (run, round, step) in known:
                raise Refusal(f"round {round} of this run: it has answered for {step} already")
            log.append(_record(STEP, run, round, []) | {"step": step})

    def accounts(self) -> dict[int, Account]:
        """What each client has given away so far."""
        with self._held() as (_, accounts):
            return accounts

    def _why_not(self, release: Release, own: Account) -> str | None:
        last = own.last.get(release.run)
        if last is not None and release.round <= last:
            return f"round {release.round} of this run: it has answered round {last} already"
        budget = self.budget.epsilon
        if budget is None:
            return None
        after = epsilon_of_mu(math.sqrt(own.mu_squared + release.mu_squared), self.budget.delta)
        if after <= budget:
            return None
        told = f"ε = {after:.3g}" if math.isfinite(after) else "everything, without noise"
        return (
            f"another release after {own.releases} would give away {told}; its budget is "
            f"ε = {budget:g} at δ = {self.budget.delta:g}"
        )

    def _unlooked(self, answer: str, own: Account) -> str | None:
        most = len(own.trained) + 1 + self.budget.spare_looks
        if answer in own.looks or len(own.looks) < most:
            return None
        return (
            f"{len(own.looks)} of its requests were seen, and it was trained on {len(own.trained)}: "
            "it shows no more (spare-requests in --node-config allows more)"
        )

    def _passed(
        self,
        clients: Sequence[int],
        accounts: Mapping[int, Account],
        problem: Callable[[Account], str | None],
    ) -> list[int]:
        return _without_reason({client: problem(_of(accounts, client)) for client in clients})

    @contextmanager
    def _held(self) -> Iterator[tuple[ChainedLog, dict[int, Account]]]:
        """The ledger as it is, while nobody else writes it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = self._locked()
        try:
            log = ChainedLog(self.folder / LEDGER, Line, sync=True)
            yield log, _accounts(log.read())
        finally:
            lock.release()

    def _locked(self) -> Lock:
        until = time.monotonic() + WAIT
        while True:
            try:
                lock = Lock.take(self.folder / LOCK)
                break
            except UserError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
        if not lock.locked:
            lock.release()
            raise UserError(f"{self.folder}: its file system has no locks; keep the ledger on another")
        return lock


def _record(kind: str, run: str, round: int, clients: Sequence[int]) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"kind": kind, "time": now, "run": run, "round": round, "clients": list(clients)}


def _without_reason(reasons: Mapping[int, str | None]) -> list[int]:
    """The clients that nothing speaks against; an error with the first reason if there are none."""
    passed = [client for client, reason in reasons.items() if reason is None]
    for client in reasons if not passed else ():
        raise Refusal(f"client {client}: {reasons[client]}")
    return passed


def _of(accounts: Mapping[int, Account], client: int) -> Account:
    return accounts.get(client) or Account()


def _accounts(records: Sequence[Mapping[str, Any]]) -> dict[int, Account]:
    found: dict[int, Account] = {}
    for record in records:
        round = int(record["round"])
        clients = record["clients"]
        answers = record.get("answers") or [f"round {round}"] * len(clients)
        for client, answer in zip(clients, answers, strict=True):
            own = found.setdefault(int(client), Account())
            if record["kind"] == LOOK:
                own.looks.add(answer)
                continue
            release = Release(record["run"], round, float(record["noise"]))
            own.mu_squared += release.mu_squared
            own.releases += 1
            own.last[release.run] = max(round, own.last.get(release.run, round))
            own.trained.add(answer)
    return found
