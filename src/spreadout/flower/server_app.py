"""The ServerApp: the usual training loop, with an executor whose clients are on the grid's nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from logging import INFO
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore import log
from torch import nn

from spreadout.config.experiment import DeployConfig, Experiment
from spreadout.config.sound import settled
from spreadout.core.errors import UserError
from spreadout.core.private import close_to_others, owner_only
from spreadout.data.in_words import counted
from spreadout.data.splits import Splits
from spreadout.evaluation.metrics import find_metric
from spreadout.federated.claims import WHERE_DEPLOYED
from spreadout.federated.federation import Federation
from spreadout.federated.robust import NormClipping, RobustRule
from spreadout.flower.access import LOG, AccessControl, access_log, read_roster
from spreadout.flower.agreed import MAY_DIFFER, config_digest
from spreadout.flower.data import ServerData, held_out
from spreadout.flower.events import Events
from spreadout.flower.grid import GridExecutor
from spreadout.flower.node_settings import refuse_unfit_model
from spreadout.flower.nodes import Nodes
from spreadout.flower.one_line import log_user_errors_in_one_line
from spreadout.flower.processes import end_with_starter
from spreadout.flower.refusals import Refusals
from spreadout.flower.releases import LOG as RELEASES
from spreadout.flower.releases import ReleaseLog
from spreadout.flower.remote_clients import RemoteClients
from spreadout.flower.secure_grid import SecureGridExecutor
from spreadout.methods.base import Method
from spreadout.privacy.release import Grid as NoiseGrid
from spreadout.runs import train as training
from spreadout.runs.build import build_federation, cap_of, cohort_size, refuse_spent_at_once
from spreadout.runs.claim import DEPLOYMENT
from spreadout.runs.cohort_statistics import refuse_where_deployed
from spreadout.runs.deployed import EVENTS
from spreadout.runs.folder import RunFolder
from spreadout.runs.misfits import unfit_for_robust_rules
from spreadout.runs.observer import Interrupted, Observer
from spreadout.runs.result import Result
from spreadout.runs.unprotected import refuse_unprotected

STOP = "stop"  # in the run folder's deployment part
LOOK = 0.5  # seconds between two looks for nodes


def server_app(
    experiment: str | Path,
    server_data: ServerData = held_out,
    *,
    encoder: nn.Module | None = None,
    method: Method | None = None,
) -> ServerApp:
    """The app of the server: the config, and what the model is judged on.

    Run config: `out`, the run folder; `resume`, whether to resume it; `device`.
    """
    app = ServerApp()

    @app.main()
    @owner_only()  # whoever started the SuperLink, and whatever it lets others read
    def main(grid: Grid, context: Context) -> None:
        end_with_starter()
        log_user_errors_in_one_line()
        e = Experiment.load(experiment)
        given = context.run_config
        out = Path(str(given.get("out") or f"runs/{e.name}-{context.run_id}")).absolute()
        deployment = out / DEPLOYMENT
        deployment.mkdir(parents=True, exist_ok=True)
        close_to_others(out)
        events = Events(out / EVENTS)
        log(INFO, "run folder: %s", out)
        try:
            result = serve(
                grid,
                e,
                out,
                server_data=server_data,
                encoder=encoder,
                method=method,
                resume=bool(given.get("resume", False)),
                device=str(given.get("device", "auto")),
                observer=events,
                stop=(deployment / STOP).exists,
            )
            events.done(result.summary)
        except Interrupted as stopped:
            events.interrupted(stopped.round)
        except UserError as error:
            events.failed(str(error))
            raise
        except Exception as error:
            events.failed(f"{type(error).__name__}: {error}")
            raise

    return app


def serve(
    grid: Grid,
    experiment: Experiment,
    out: Path,
    *,
    server_data: ServerData = held_out,
    encoder: nn.Module | None = None,
    method: Method | None = None,
    resume: bool = False,
    device: str = "auto",
    observer: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Train on whoever is on the grid; `resume`: from the run folder's last checkpoint.

    Keys that the config leaves open get their plain defaults, as on the nodes: nobody sees all data.
    """
    experiment = settled(experiment)
    if experiment.privacy is not None:  # nodes answer a round once: none may be lost with the server
        every = experiment.run.model_copy(update={"checkpoint_every": 1})
        experiment = experiment.model_copy(update={"run": every})
    refuse_misfits(experiment, method or experiment.method)
    if not resume and RunFolder(out).config.is_file():  # before anything of it is touched
        raise UserError(f"{out}: exists; choose another `out`, or set resume=true to continue it")
    build = Builder(grid, out, experiment.deploy, resume, stop, observer)
    parts: Mapping[str, Any] = {
        "data": server_data(experiment),
        "encoder": encoder,
        "method": method,
        "build": build,
        "observer": observer,
        "stop": stop,
        "device": device,
    }
    try:
        if not resume:
            return training.run(experiment, out=out, **parts)
        if RunFolder.open(out).finished:
            raise UserError(f"{out}: is finished; there is nothing to resume")
        if not _goes_on(Experiment.load(out / "config.toml"), experiment):
            raise UserError(
                f"{out}: its config.toml is not the deployed config; deploy that one to resume"
            )
        return training.resume(out, **parts)
    finally:
        build.refusals.flush()


@dataclass
class Builder:
    """Puts a federation together whose clients are those that are there when the run begins."""

    grid: Grid
    out: Path
    deploy: DeployConfig  # of a resumed run not always that of its config.toml
    resume: bool
    stop: Callable[[], bool]
    observer: Observer | None = None
    refusals: Refusals = field(init=False)

    def __post_init__(self) -> None:
        self.refusals = Refusals(self._write)

    def __call__(
        self,
        experiment: Experiment,
        splits: Splits,
        device: torch.device,
        encoder: nn.Module | None,
        method: Method | None,
    ) -> Federation:
        e, deploy = experiment, self.deploy
        everyone = e.clients.model_copy(update={"per_round": "all", "selection": "uniform"})
        form = build_federation(
            e.model_copy(update={"clients": everyone}),
            splits,
            device,
            encoder,
            method,
            clients_known=False,
        )
        refuse_where_deployed(e, form.model.encoder)
        access = AccessControl(
            form.method.row_access,
            {name: table.count for name, table in form.model.tables.items()},
            deploy.max_rows,
            deploy.takeover,
            None if deploy.roster is None else read_roster(deploy.roster),
            frozenset(form.data.features.values()) if form.clients.requests_seen else frozenset(),
        )
        folder = RunFolder(self.out)
        access.log = access_log(self.out / DEPLOYMENT / LOG)
        if self.resume:
            access.recall()
        else:
            access.log.path.parent.mkdir(parents=True, exist_ok=True)
            access.log.path.unlink(missing_ok=True)
        access.name_run()
        nodes = Nodes(
            self.grid,
            access,
            deploy.timeout,
            splits.train.classes,
            self.refusals,
            self._told(deploy.nodes),
            deploy.max_clients,
            int(deploy.max_hello_mb * 2**20),
        )
        self._gather(nodes, setup=not (self.resume and folder.has_checkpoint))
        access.close()
        data = RemoteClients.of(form.data, access.sizes)
        per_round, selection = cohort_size(e, data, form.method)
        server = replace(
            form.server,
            per_round=per_round,
            selection=selection,
            robust=_rule(e, form),
            claim_cap=cap_of(e, form.method, data.sizes, WHERE_DEPLOYED),
            real_noise=True,
        )
        log = None
        if e.privacy is not None and not e.privacy.on_the_server:  # else the run notes its sums
            log = ReleaseLog(self.out / DEPLOYMENT / RELEASES, resume=self.resume)
        secure = e.privacy is not None and e.privacy.needs_others
        executor: GridExecutor = GridExecutor(nodes, log)
        if secure:
            executor = SecureGridExecutor(nodes, log, config=config_digest(e))
        federation = replace(form, data=data, executor=executor, server=server)
        refuse_spent_at_once(federation)
        return federation

    def _told(self, needed: int) -> Callable[[int, int], None]:
        """Who hears of nodes that come and go."""
        events = self.observer
        if not isinstance(events, Events):
            return lambda nodes, clients: None
        return lambda nodes, clients: events.nodes_there(nodes, clients, needed)

    def _write(self, refusals: Sequence[Mapping[str, Any]]) -> bool:
        """Put refusals down once there is a run folder: the first nodes come in before that."""
        folder = RunFolder(self.out)
        if not folder.config.is_file():
            return False
        folder.log_refusals(map(dict, refusals))
        return True

    def _gather(self, nodes: Nodes, *, setup: bool) -> None:
        """Wait for the nodes a run needs to begin."""
        deploy = self.deploy
        until = time.monotonic() + deploy.wait
        while True:
            nodes.meet(
                0,
                setup=setup,
                longer=lambda there: there < deploy.nodes and not self.stop(),
                longest=until - time.monotonic(),
            )
            nodes.tell()
            if len(nodes) >= deploy.nodes and nodes.node_of:
                return
            if self.stop():
                raise UserError("stopped while waiting for nodes; nothing was trained")
            if time.monotonic() >= until:
                why = f"; one that came failed: {nodes.last_problem}" if nodes.last_problem else ""
                raise UserError(
                    f"deploy.nodes = {deploy.nodes}: {counted(len(nodes), 'node')} came within "
                    f"deploy.wait = {deploy.wait:g} s{why or '; start more, or wait longer'}"
                )
            time.sleep(LOOK)


def _goes_on(before: Experiment, now: Experiment) -> bool:
    """Whether a run of the one config may be resumed by the other: it is the same, but for who is waited
    for, how long, and who may stand in for whom."""
    own = {key: getattr(now.deploy, key) for key in MAY_DIFFER}
    kept = before.deploy.model_copy(update=own)
    return before.model_copy(update={"deploy": kept}) == now


def _rule(e: Experiment, form: Federation) -> RobustRule | None:
    """How updates are made one here: unless the config says otherwise, none is longer than most are."""
    if e.server.robust is None and unfit_for_robust_rules(e) is None:
        return NormClipping()
    return form.server.robust


def refuse_misfits(e: Experiment, method: Method) -> None:
    """What runs in a simulation and has no meaning here."""
    if method.is_centralized:
        raise UserError(
            f"method.name = {method.name!r}: pools the data, and here it stays on its clients"
        )
    if e.server.robust is None and (problem := method.unguarded_setup):
        raise UserError(
            f'a deployment limits what clients send, and {problem}, or server.robust = "mean"'
        )
    refuse_where_deployed(e)
    refuse_unfit_model(e.privacy)
    refuse_unprotected(e, method)  # as it stands: what is built first has no cohorts
    if e.privacy is not None and e.privacy.on_the_server:
        NoiseGrid.of(e.privacy)  # too little noise for a promise, before anybody is asked
    for name in e.eval.metrics:
        if "frequencies" in find_metric(name).needs:
            raise UserError(
                f"eval.metrics: {name} needs how often clients have each class, which a deployment's "
                "server does not know; take P@k, R@k or nDCG@k"
            )
