"""`init`, `presets` and `sweep`: from a file to a config, and from a config to a better one."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from spreadout.cli.common import Out, fresh_folder
from spreadout.cli.data import AsJson
from spreadout.core.errors import UserError, one_line


def init(
    data: Annotated[
        str | None, typer.Argument(help="Your file or folder, or the name of a data set.")
    ] = None,
    config: Annotated[Path, typer.Option("--out", help="The config to write.")] = Path("spreadout.toml"),
    label: Annotated[
        str | None, typer.Option("--label", help="Of a table or an ARFF file: the column of labels.")
    ] = None,
    client: Annotated[
        str | None,
        typer.Option("--client", help="Of a table: the column that says whose a row is; - for none."),
    ] = None,
    method: Annotated[str | None, typer.Option("--method", help="How to train.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a config that is there.")] = False,
) -> None:
    """Write a commented config for your data: asks four questions, or takes the answers as options."""
    from spreadout.config.experiment import Experiment
    from spreadout.config.guess import NOBODY, guessed
    from spreadout.config.template import HISTORIES, method_for, said_of, written
    from spreadout.core.files import write_atomic

    if config.exists() and not force:
        raise UserError(f"{config}: exists; name another file by --out, or --force to replace it")
    asks = sys.stdin.isatty() and data is None
    if data is None and not asks:
        raise UserError("init: name your data: spreadout init FILE; there is no terminal to ask at")
    if asks:
        data = typer.prompt("Your data: a file, a folder, or a data set's name", default="digits")
    assert data is not None
    events = method == HISTORIES
    found = guessed(data, label, client, events=events, sure=not asks)
    source = found["source"]
    if asks and isinstance(source, dict) and source["name"] == "table":
        label = typer.prompt("Which column is to be told?", default=source["label"])
        source = guessed(data, label, client, sure=False)["source"]
        assert isinstance(source, dict)
        client = typer.prompt(
            "Which column says whose a row is? (- for none)", default=source.get("client", NOBODY)
        )
    if asks:
        found = guessed(data, label, client)
        method = typer.prompt("Method", default=method_for(found))
    text = written(data, found, method)
    import tomllib

    Experiment.of(tomllib.loads(text), str(config))
    write_atomic(config, text.encode())
    if isinstance(found["source"], dict):
        print(one_line(said_of(found)))
    named = shlex.quote(str(config))
    print(f"{config}\n\nlook at the data: spreadout data describe {named}")
    print(f"train:            spreadout run {named}")


def presets(
    name: Annotated[str | None, typer.Argument(help="One preset, in full.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the configs that ship with the package and those of --import modules, or show one."""
    from spreadout.config.presets import grouped, preset_text
    from spreadout.config.presets import presets as every
    from spreadout.core.registry import near

    found = every()
    if name is not None:
        text = preset_text(name)
        if text is None:
            raise UserError(f"preset {name!r}: unknown{near(name, found)}")
        print(json.dumps({"name": name, "text": text}, indent=2) if as_json else text.rstrip())
        return
    if as_json:
        print(json.dumps(found, indent=2))
        return
    width = max(map(len, found))
    for title, some in grouped().items():
        print(f"{title}:")
        for one, about in some.items():
            print(f"  {one:<{width}}  {about}")
        print()
    print("`spreadout presets NAME` shows one; `spreadout run NAME` trains it.")


def sweep(
    config: Annotated[str, typer.Argument(help="A TOML file, or the name of a preset.")],
    values: Annotated[list[str], typer.Argument(help="section.key=a,b,c, or key=a with one value …")],
    out: Out = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes at a time.")] = 1,
    trials: Annotated[
        int | None,
        typer.Option("--trials", min=1, help="Search by Optuna, so many trials; else the grid."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Try settings on validation data, in parallel; with --out, the same command again goes on."""
    from spreadout.runs.sweep import Sweep

    folder = out or fresh_folder("sweep")
    planned = Sweep.of(config, values, folder, jobs=jobs, device=device)
    found = planned.run(trials, lambda said: print(said, file=sys.stderr, flush=True))
    if as_json:
        print(json.dumps([one.as_dict() for one in found], indent=2))
        return
    print("\n".join(map(str, found)))
    best = folder / "best.toml"
    print(f"\nthe best as a config: {best}\non the test part: spreadout run {best} eval.split=test")


def add_to(app: typer.Typer) -> None:
    """Put the commands into the one program."""
    for command in (init, presets, sweep):
        app.command()(command)
