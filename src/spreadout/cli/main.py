"""The command line. Exit codes: 0 done; 2 bad input, one line; 130 interrupted, state saved.

Nothing heavy is imported before a command needs it: `--help` must not wait for torch.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from spreadout import __version__
from spreadout.cli import ask as cli_ask
from spreadout.cli import data as cli_data
from spreadout.cli import deploy as cli_deploy
from spreadout.cli import inspect as cli_inspect
from spreadout.cli import start as cli_start
from spreadout.cli import use as cli_use
from spreadout.cli.common import (
    Config,
    Device,
    Force,
    Out,
    Track,
    fresh_folder,
    no_other_file,
    note_unchecked,
    resumable,
    tracking,
    watched,
)
from spreadout.cli.data import AsJson
from spreadout.cli.parser import parser_of, usage_problem
from spreadout.cli.watch import watch
from spreadout.core.errors import UserError, memory_ran_out
from spreadout.runs.stopping import Stop, speaks

NO_MEMORY = "not enough memory for this; take less data, fewer clients, or a smaller model"

app = typer.Typer(
    name="spreadout",
    help="Federated learning when each client holds only a sliver of the label space.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.add_typer(cli_data.app, name="data")
app.add_typer(cli_deploy.app, name="deploy")


def main() -> None:
    """Entry point: turns expected failures into one line and an exit code."""
    try:
        _import_own()
        sys.exit(parser_of(app)(standalone_mode=False))  # the code a command left with; None is 0
    except UserError as error:
        _fail(str(error))
    except typer.Abort:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except KeyboardInterrupt:  # a second Ctrl-C, or one before training began
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except OSError as error:  # a full disk, a folder that may not be written
        _fail(f"{error.filename or 'file'}: {error.strerror or error}")
    except Exception as error:
        if memory_ran_out(error):
            _fail(NO_MEMORY)
        if not hasattr(error, "format_message"):
            raise
        _fail(usage_problem(error, sys.argv[1:]))


def _import_own() -> None:
    """Import the modules named by `--import`, wherever that stands, before anything is looked up."""
    words, kept, named = sys.argv[1:], sys.argv[:1], []
    while words:
        word = words.pop(0)
        if word == "--":
            kept += [word, *words]
            break
        if word.startswith("--import="):
            named.append(word.removeprefix("--import="))
        elif word == "--import":
            named.append(words.pop(0) if words else "")
        else:
            kept.append(word)
    if not all(named):
        raise UserError("--import: needs the name of a module, such as --import my_module")
    if named:
        from spreadout.core.registry import import_modules

        sys.argv = kept
        import_modules(named)


@app.command()
def run(
    config: Config,
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value …")] = None,
    out: Out = None,
    device: Device = "auto",
    force: Force = False,
    track: Track = None,
    as_json: AsJson = False,
) -> None:
    """Train and evaluate one experiment."""
    from spreadout.config.experiment import Experiment
    from spreadout.report.terminal import print_summary
    from spreadout.runs.train import run as train

    experiment = Experiment.load(config, [*(overrides or []), *tracking(track)])
    folder = out or fresh_folder(experiment.name)
    with watched(device) as (stop, observer):
        result = resumable(
            lambda: train(
                experiment,
                out=folder,
                force=force,
                device=device,
                observer=observer,
                stop=stop.requested,
            ),
            shlex.join(["spreadout", "resume", str(folder)]),
        )
    if result.folder is not None:  # of several processes, the first one has it
        print_summary(result.summary, folder, as_json=as_json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Continue an interrupted run from its last checkpoint."""
    from spreadout.report.terminal import print_summary
    from spreadout.runs.claim import DEPLOYMENT
    from spreadout.runs.train import resume as resume_run

    if (folder / DEPLOYMENT).is_dir():
        local = (folder / DEPLOYMENT / "project").is_dir()
        how = f"`spreadout deploy resume {folder}`" if local else "`flwr run … resume=true`"
        raise UserError(f"{folder}: was deployed; resume it with {how}")

    with watched(device) as (stop, observer):
        result = resumable(
            lambda: resume_run(folder, device=device, observer=observer, stop=stop.requested),
            shlex.join(["spreadout", "resume", str(folder)]),
        )
    if result.folder is not None:  # of several processes, the first one has it
        print_summary(result.summary, folder, as_json=as_json)


@app.command()
def compare(
    configs: Annotated[list[str], typer.Argument(help="One suite, or several configs or presets.")],
    out: Out = None,
    seeds: Annotated[str | None, typer.Option(help="Such as 0,1,2; default: the suite's own.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value for all.")] = None,
    device: Device = "auto",
    force: Force = False,
    track: Track = None,
    go_on: Annotated[bool, typer.Option("--resume", help="Continue an interrupted comparison.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run several variants over several seeds and set them side by side."""
    from spreadout.core.files import as_json as to_json
    from spreadout.report.page import write_page
    from spreadout.report.terminal import print_comparison
    from spreadout.runs.arms import as_json as arm_json
    from spreadout.runs.compare import Suite
    from spreadout.runs.compare import compare as run_all
    from spreadout.runs.progress import Progress

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("compare: runs in one process only; with torchrun, use `spreadout run`")
    set_ = [*(set_ or []), *tracking(track)]
    suite = Suite.load(configs, _seeds(seeds), set_)
    folder = out or fresh_folder(suite.name)
    runs = len(suite.variants) * len(suite.seeds)
    with Stop() as stop, Progress(runs) as observer:
        arms = resumable(
            lambda: run_all(
                suite,
                out=folder,
                force=force,
                go_on=go_on,
                device=device,
                observer=observer.named,
                stop=stop.requested,
            ),
            _again("compare", *configs, out=folder, seeds=seeds, set_=set_) + " --resume",
        )
    page = write_page(arms, folder / "report.html", title=suite.name)
    if as_json:
        print(to_json([arm_json(arm) for arm in arms], indent=2))
    else:
        print_comparison(arms, folder, page)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders or comparison folders.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", callback=no_other_file, help="The page to write.")
    ] = Path("report.html"),
) -> None:
    """Write a self-contained HTML page about finished runs."""
    from spreadout.report.page import write_page
    from spreadout.runs.arms import arms_of, with_distinct_labels

    note_unchecked(*folders)
    found = [(arm, folder) for folder in folders for arm in arms_of(folder)]
    arms = with_distinct_labels([arm for arm, _ in found], [folder for _, folder in found])
    title = folders[0].resolve().name if len(folders) == 1 else "comparison"
    print(write_page(arms, output, title=title))


cli_ask.add_to(app)  # here, as help lists commands in this order
cli_use.add_to(app)


@app.command()
def doctor(
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value … of --plan")] = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", help="Forecast time, memory and bytes of a run of this config here."),
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Say what this machine has, and whether spreadout can work here."""
    if plan is not None:
        from spreadout.config.experiment import Experiment
        from spreadout.report.terminal import print_forecast, rehearsing
        from spreadout.runs.forecast import forecast

        experiment = Experiment.load(plan, overrides or [])
        with rehearsing(experiment):
            found = forecast(experiment, device)
        print_forecast(found, as_json=as_json)
        return
    if overrides:
        raise UserError(f"{overrides[0]}: is for --plan CONFIG")
    from spreadout.runs.doctor import examine

    findings = examine()
    if as_json:
        print(json.dumps({f.name: {"ok": f.ok, "found": f.found} for f in findings}, indent=2))
    else:
        width = max(len(f.name) for f in findings)
        for f in findings:
            print(f"{'ok ' if f.ok else 'BAD'}  {f.name:<{width}}  {f.found}")
    if not all(f.ok for f in findings):
        raise typer.Exit(1)


app.command()(watch)
cli_start.add_to(app)
cli_inspect.add_to(app)  # after those that train: help lists them in this order


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    own: Annotated[  # taken out of the line by `_import_own`; here for --help
        list[str] | None,
        typer.Option("--import", help="A module of your own that registers parts.", metavar="MODULE"),
    ] = None,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def _again(command: str, *arguments: str, out: Path, seeds: str | None, set_: list[str] | None) -> str:
    """The command line that continues this one."""
    from spreadout.core.registry import IMPORTED

    parts = ["spreadout", command, *arguments, "--out", str(out)]
    parts += ["--seeds", seeds] if seeds else []
    parts += [part for change in set_ or [] for part in ("--set", change)]
    parts += [part for module in IMPORTED for part in ("--import", module)]
    return shlex.join(parts)


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds {text}: write whole numbers with commas, such as 0,1,2") from None
    if any(seed < 0 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {text}: seeds are distinct and at least 0")
    return seeds


def _fail(text: str) -> NoReturn:
    if speaks():
        print(f"error: {text}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
