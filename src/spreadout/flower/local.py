"""A deployment rehearsed on one machine: a SuperLink, some SuperNodes and a run on loopback.

Everything is as on many machines, but for the addresses. The run folder has one more part,
`deployment/`, with the project, the keys, the logs and the server's events.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
import torch

from spreadout.config.experiment import Experiment
from spreadout.config.sound import data_of
from spreadout.core.errors import UserError
from spreadout.core.private import close_to_others, owner_only
from spreadout.flower import keys
from spreadout.flower.events import Reader, forward
from spreadout.flower.node_settings import (
    DELTA,
    EPSILON,
    LABEL_KEY,
    LEDGER,
    NODE_KEY,
    PEERS,
    SECRET,
    TRUST,
)
from spreadout.flower.processes import Processes, free_port, listens
from spreadout.flower.project import PACKAGE, complete, write_project
from spreadout.flower.server_app import STOP
from spreadout.privacy.accounting import epsilon_of
from spreadout.runs.claim import DEPLOYMENT, REHEARSAL_MARK, Claim, is_taken, refuse_foreign
from spreadout.runs.deployed import EVENTS
from spreadout.runs.folder import RunFolder, remove_run
from spreadout.runs.observer import Interrupted, Observer

ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "UV_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # all nodes share this machine's cores
}
STARTING = 600.0  # seconds a SuperLink may take to listen, while its process lives
SECURE = "keys/ca.crt"
NAMED = {"superlink": "SuperLink", "run": "server"}


@owner_only()  # there are secrets in it
def rehearse(
    experiment: Experiment,
    out: Path,
    *,
    nodes: int,
    secure: bool = False,
    force: bool = False,
    observer: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Run an experiment over Flower on this machine; its summary, and its run folder at `out`."""
    out = out.absolute()
    experiment = complete(experiment)
    if is_taken(out):
        if not force:
            raise UserError(f"{out}: exists; choose another --out, or --force to replace it")
        refuse_foreign(out)
    with held(out):
        remove_run(out, keep=(REHEARSAL_MARK,))  # what never began may be replaced too
        planned = prepare(experiment, out, nodes=nodes, secure=secure)
        return Rehearsal(planned, out, observer or Observer(), stop).run(resume=False)


@contextmanager
def held(out: Path) -> Iterator[None]:
    """The folder of a rehearsal, held by the process that starts the others."""
    claim = Claim.take(out, REHEARSAL_MARK)
    try:
        yield
    finally:
        claim.begun = (out / DEPLOYMENT).exists()
        claim.release()


def prepare(experiment: Experiment, out: Path, *, nodes: int, secure: bool) -> Experiment:
    """Keys, roster and project of a rehearsal; the experiment as it is deployed."""
    deployment = out / DEPLOYMENT
    (deployment / "keys").mkdir(parents=True)
    close_to_others(out)  # a folder that was there before
    deploy: dict[str, Any] = {"nodes": nodes, "takeover": not secure}
    if secure or _sums(experiment):
        for node in range(nodes):
            keys.make_node_key(_key_of(deployment, node))
    if secure:
        keys.make_authority(deployment / "keys")
        keys.make_certificate(deployment / "keys", ["127.0.0.1"])
        deploy["roster"] = write_roster(deployment / "roster.toml", experiment, nodes)
    keys.make_secret(deployment / "keys" / "label.key")
    if experiment.privacy is not None:
        for node in range(nodes):
            keys.make_secret(_secret_of(deployment, node))
    deploy_config = experiment.deploy.model_copy(update=deploy)
    planned = experiment.model_copy(update={"deploy": deploy_config})
    try:
        write_project(deployment / "project", planned)
    except UserError:
        shutil.rmtree(deployment)
        raise
    return planned


def _sums(experiment: Experiment) -> bool:
    """Whether nodes know each other by their keys: for secure sums."""
    return experiment.privacy is not None and experiment.privacy.needs_others


def _key_of(deployment: Path, node: int) -> Path:
    return deployment / "keys" / f"node{node}"


def _secret_of(deployment: Path, node: int) -> Path:
    return deployment / "keys" / f"node{node}.secret"


def _ledger_of(deployment: Path, node: int) -> str:
    return str(deployment / "ledgers" / f"node{node}")


def _private(experiment: Experiment, deployment: Path, node: int) -> dict[str, Any]:
    """What a node of a private run must have: a secret, a ledger, and a budget for all rounds."""
    assert experiment.privacy is not None
    if experiment.privacy.on_the_server:  # it has no noise of its own to count
        return {SECRET: str(_secret_of(deployment, node)), TRUST: "true"}
    delta = experiment.privacy.delta
    planned = epsilon_of(experiment.privacy.noise, experiment.rounds, delta)
    return {
        SECRET: str(_secret_of(deployment, node)),
        LEDGER: _ledger_of(deployment, node),
        EPSILON: planned * (1 + 1e-6) + 1e-6,
        DELTA: delta,
    }


@owner_only()
def resume(
    out: Path, *, observer: Observer | None = None, stop: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """Resume a rehearsal from its last checkpoint: new processes, the same keys."""
    out = out.absolute()
    if not out.is_dir():
        raise UserError(f"{out}: no such folder")
    if not (out / DEPLOYMENT / "project").is_dir():
        how = "`flwr run … resume=true`" if (out / DEPLOYMENT).is_dir() else "`spreadout resume`"
        raise UserError(f"{out}: was not made by `spreadout deploy local`; try {how}")
    if RunFolder(out).finished:
        raise UserError(f"{out}: is finished; there is nothing to resume")
    experiment = Experiment.load(out / DEPLOYMENT / "project" / PACKAGE / "experiment.toml")
    with held(out):
        close_to_others(out)
        begun = RunFolder(out).config.is_file()
        return Rehearsal(experiment, out, observer or Observer(), stop).run(resume=begun)


def write_roster(path: Path, experiment: Experiment, nodes: int) -> Path:
    """The key of each client's node and, where the server learns them anyway, its classes."""
    data = data_of(experiment).train
    clients: dict[str, dict[str, Any]] = {}
    rows = data.rows_of(torch.arange(data.clients))["classes"]
    for client in range(data.clients):
        about: dict[str, Any] = {"key": f"keys/node{client % nodes}.pub"}
        if experiment.method.names_own_rows:
            about["classes"] = rows[client].tolist()
        clients[str(client)] = about
    path.write_text(tomli_w.dumps({"clients": clients}), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Rehearsal:
    """One run of the whole: start everything, listen, end everything."""

    experiment: Experiment
    out: Path
    observer: Observer
    stop: Callable[[], bool]

    @property
    def deployment(self) -> Path:
        return self.out / DEPLOYMENT

    @property
    def secure(self) -> bool:
        return (self.deployment / SECURE).is_file()

    def run(self, *, resume: bool) -> dict[str, Any]:
        for path in (self.out / EVENTS, self.deployment / STOP):
            path.unlink(missing_ok=True)
        self.observer.started(self.experiment, 0)  # the next event takes a while
        home = self.deployment / "flwr"
        environment = {**ENVIRONMENT, "FLWR_HOME": str(home)}
        with Processes(self.deployment / "logs", environment) as processes:
            port = start_link(processes, self.deployment if self.secure else None)
            write_connection(home, port, self.deployment / SECURE if self.secure else None)
            for node in range(self.experiment.deploy.nodes):
                if self.secure:
                    public = str(self.deployment / "keys" / f"node{node}.pub")
                    processes.call(f"register{node}", "flwr", "supernode", "register", public, "here")
            for node in range(self.experiment.deploy.nodes):
                self.start_node(processes, node, port)
            given = f'out="{self.out}" resume={str(resume).lower()}'
            run = ["flwr", "run", str(self.deployment / "project"), "here", "--stream"]
            processes.start("run", *run, "--run-config", given)
            return self._listen(processes)

    def start_node(self, processes: Processes, node: int, port: int) -> None:
        """A SuperNode with every so-many-th client."""
        config: dict[str, Any] = {
            "partition-id": node,
            "num-partitions": self.experiment.deploy.nodes,
            LABEL_KEY: str(self.deployment / "keys" / "label.key"),
        }
        if self.experiment.privacy is not None and self.experiment.privacy.noise:
            config |= _private(self.experiment, self.deployment, node)
        if _sums(self.experiment):
            keys_folder = self.deployment / "keys"  # all nodes' public halves are in it
            config |= {NODE_KEY: str(_key_of(self.deployment, node)), PEERS: str(keys_folder)}
            config[LEDGER] = _ledger_of(self.deployment, node)
        key = _key_of(self.deployment, node) if self.secure else None
        start_node(
            processes, f"node{node}", port, config, self.deployment / SECURE if key else None, key
        )

    def _listen(self, processes: Processes) -> dict[str, Any]:
        """Pass the server's events on, until it is done, stopped or dead."""
        reader = Reader(self.out / EVENTS)
        while True:
            dead = [name for name in ("superlink", "run") if processes.ended(name)]
            for event in reader.new():
                if event["event"] == "done":
                    return dict(event["summary"])
                if event["event"] == "interrupted":
                    raise Interrupted(self.out, event["round"])
                if event["event"] == "failed":
                    raise UserError(event["text"])
                forward(event, self.observer, self.experiment, reader.refused)
            if dead:
                log = self.deployment / "logs" / f"{dead[0]}.log"
                raise UserError(
                    f"{self.out}: the {NAMED[dead[0]]} ended early ({processes.how(dead[0])}; {log}); "
                    f"resume it with `spreadout deploy resume {self.out}`"
                )
            if self.stop():
                (self.deployment / STOP).touch()
            time.sleep(0.1)


def start_link(processes: Processes, secure: Path | None) -> int:
    """A SuperLink on a free port; secure: the folder whose `keys` it serves with."""
    port = free_port()
    safety = ["--insecure"]
    if secure is not None:
        made = secure / "keys"
        safety = ["--ssl-ca-certfile", str(made / "ca.crt"), "--ssl-certfile", str(made / "server.crt")]
        safety += ["--ssl-keyfile", str(made / "server.key"), "--enable-supernode-auth"]
    processes.start(
        "superlink",
        "flower-superlink",
        *("--host", "127.0.0.1", "--port", str(port), *safety),
        "--disable-runtime-dependency-installation",
    )
    until = time.monotonic() + STARTING
    while not listens(port):
        if processes.ended("superlink") or time.monotonic() > until:
            raise UserError(f"flower-superlink does not come up: {processes.last('superlink')}")
        time.sleep(0.1)
    return port


def write_connection(home: Path, port: int, authority: Path | None) -> None:
    """How `flwr` reaches the SuperLink, under the name `here`."""
    safety: dict[str, Any] = {"insecure": True}
    if authority is not None:
        safety = {"root-certificates": str(authority)}
    home.mkdir(parents=True, exist_ok=True)
    connection = {"superlink": {"here": {"address": f"127.0.0.1:{port}", **safety}}}
    (home / "config.toml").write_text(tomli_w.dumps(connection), encoding="utf-8")


def start_node(
    processes: Processes,
    name: str,
    port: int,
    config: dict[str, Any],
    authority: Path | None = None,
    key: Path | None = None,
) -> None:
    """A SuperNode; authority: the CA it trusts, key: what it is known by."""
    safety = ["--insecure"] if authority is None else ["--root-certificates", str(authority)]
    if key is not None:
        safety += ["--auth-supernode-private-key", str(key)]
    node_config = " ".join(f'{k}="{v}"' if isinstance(v, str) else f"{k}={v}" for k, v in config.items())
    processes.start(
        name,
        "flower-supernode",
        *("--superlink", f"127.0.0.1:{port}", "--port", str(free_port()), *safety),
        *("--node-config", node_config),
    )
