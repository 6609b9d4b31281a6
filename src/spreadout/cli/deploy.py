"""`spreadout deploy`: the same config on real clients, over Flower."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from spreadout.cli.common import CONFIG_HELP, Config, Force, Out, fresh_folder, resumable
from spreadout.cli.data import AsJson
from spreadout.core.errors import UserError
from spreadout.runs.stopping import Stop

app = typer.Typer(help="Put a config on real clients, over Flower.", no_args_is_help=True)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A folder for the project; new or empty.")],
    config: Annotated[str, typer.Option("--config", help=CONFIG_HELP)],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="section.key=value …", metavar="[KEY=VALUE]...")
    ] = None,
) -> None:
    """Write a Flower project that runs a config: change where it reads data, and run it."""
    _need_flower()
    from spreadout.config.experiment import Experiment
    from spreadout.flower.project import write_project

    def warn(text: str) -> None:
        print(f"warning: {text}", file=sys.stderr)

    for path in write_project(folder, Experiment.load(config, overrides or []), warn):
        print(path)
    print(f"\nread {folder / 'README.md'} next")


@app.command()
def local(
    config: Config,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="section.key=value …", metavar="[KEY=VALUE]...")
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="SuperNodes to start.")] = 2,
    secure: Annotated[
        bool, typer.Option("--secure", help="TLS and node keys, all made for this run.")
    ] = False,
    out: Out = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Rehearse on this machine: a SuperLink and SuperNodes on loopback, each with some clients."""
    _need_flower()
    from spreadout.config.experiment import Experiment
    from spreadout.flower.local import rehearse
    from spreadout.report.terminal import print_summary
    from spreadout.runs.progress import Progress

    experiment = Experiment.load(config, overrides or [])
    folder = out or fresh_folder(experiment.name)
    with Stop() as stop, Progress() as observer:
        summary = resumable(
            lambda: rehearse(
                experiment,
                folder,
                nodes=nodes,
                secure=secure,
                force=force,
                observer=observer,
                stop=stop.requested,
            ),
            _again(folder),
        )
    print_summary(summary, folder, as_json=as_json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="A run folder that `deploy local` made.")],
    as_json: AsJson = False,
) -> None:
    """Continue a stopped or killed rehearsal from its last checkpoint."""
    _need_flower()
    from spreadout.flower.local import resume as resume_rehearsal
    from spreadout.report.terminal import print_summary
    from spreadout.runs.progress import Progress

    with Stop() as stop, Progress() as observer:
        summary = resumable(
            lambda: resume_rehearsal(folder, observer=observer, stop=stop.requested), _again(folder)
        )
    print_summary(summary, folder, as_json=as_json)


@app.command()
def ledger(
    folder: Annotated[Path, typer.Argument(help="A node's ledger: the folder in its --node-config.")],
    delta: Annotated[float, typer.Option("--delta", help="The δ at which ε is told.")] = 1e-6,
    key: Annotated[
        Path | None, typer.Option("--sign", help="The node's private key: sign what is told.")
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="With --sign: the file to write.")
    ] = Path("ledger-statement.json"),
    as_json: AsJson = False,
) -> None:
    """What a node has given away of each of its clients, over all runs."""
    _need_flower()
    from spreadout.flower.ledger_statement import sign, statement_of
    from spreadout.report.privacy_terminal import print_ledger

    if not 0 < delta < 1:
        raise UserError(f"--delta {delta:g}: must lie between 0 and 1, such as 1e-6")
    found = statement_of(folder, delta)
    if key is not None:
        sign(found, key, output)
        print(output)
        return
    print(json.dumps(found, indent=2)) if as_json else print_ledger(found)


@app.command()
def verify(
    statement: Annotated[Path, typer.Argument(help="A file that `deploy ledger --sign` wrote.")],
    key: Annotated[Path, typer.Argument(help="The node's public key.")],
    as_json: AsJson = False,
) -> None:
    """Check who signed a node's ledger, and show it."""
    _need_flower()
    from spreadout.flower.ledger_statement import verified
    from spreadout.report.privacy_terminal import print_ledger

    found = verified(statement, key)
    print(json.dumps(found, indent=2)) if as_json else print_ledger(found)


def _again(folder: Path) -> str:
    return shlex.join(["spreadout", "deploy", "resume", str(folder)])


def _need_flower() -> None:
    if find_spec("flwr") is None:
        raise UserError("deploy: Flower is not installed; pip install 'spreadout[flower]'")
