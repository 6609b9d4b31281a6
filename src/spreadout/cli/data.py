"""`spreadout data`: what is known, what is here, whether it is whole, and what it looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spreadout.cli.common import no_other_file
from spreadout.core.errors import UserError

app = typer.Typer(help="Data sets: list, check, describe, fetch.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Name = Annotated[str, typer.Argument(help="A data set; `spreadout data list` names them.")]
Where = Annotated[Path | None, typer.Option("--path", help="Its file or folder, if elsewhere.")]


@app.command("list")
def list_(
    name: Annotated[str | None, typer.Argument(help="One data set, in full.")] = None,
    as_json: AsJson = False,
) -> None:
    """What is known, what is here, where to get the rest and under which terms."""
    from spreadout.core.files import as_json as to_json
    from spreadout.data.catalog import catalogue, formats, how_to_get, known, location
    from spreadout.data.sources.base import data_home

    chosen = list(catalogue().values()) if name is None else [known(name)]
    if as_json:
        rows = [
            {
                "name": data.name,
                "about": data.about,
                "here": None if (path := location(data)) is None else str(path),
                "figures": dict(data.figures),
                "terms": data.terms,
                "home": data.home,
                "get": how_to_get(data),
            }
            for data in chosen
        ]
        print(to_json(rows, indent=2))
        return
    if name is not None:
        data = chosen[0]
        print(f"{data.name}: {data.about}")
        if data.figures:
            print("  published  " + ", ".join(f"{v:,} {k}" for k, v in data.figures.items()))
        if data.terms:
            print(f"  terms      {data.terms}")
        here = location(data)
        if data.place:
            print(f"  here       {here}" if here else f"  to get it  {how_to_get(data)}")
        return
    width = max(len(data.name) for data in chosen)
    print(f"Data sets (SPREADOUT_DATA is {data_home() or 'not set'}):")
    for data in chosen:
        mark = "here" if location(data) is not None else "–"
        terms = f"; {data.terms}" if data.terms else ""
        print(f"  {data.name:<{width}}  {mark:<5} {data.about}{terms}")
    print("\nFormats, for data of your own (data.source = NAME, data.path = FILE):")
    for form, about in formats().items():
        print(f"  {form:<{width}}  {about}")
    print("\n`spreadout data list NAME` says where to get one and where to put it.")


@app.command()
def check(name: Name, path: Where = None, as_json: AsJson = False) -> None:
    """Read a data set and compare counts and checksums with the published ones."""
    from spreadout.core.files import as_json as to_json
    from spreadout.data.catalog import counts, how_to_get, known, location, md5, source_of

    data = known(name)
    if path is None and location(data) is None:
        raise UserError(f"{name}: is not here; {how_to_get(data)}")
    source = source_of(data)
    where = source.locate(path)
    found = counts(source.read(path)) | source.counts(where)
    wrong = [key for key, value in data.figures.items() if found.get(key) != value]
    sums = {}
    for file in data.files:
        place = where / Path(file.place).name if where.is_dir() else where
        if file.md5 and place.is_file():
            sums[str(place)] = md5(place) == file.md5
    if as_json:
        result = {"name": name, "found": found, "published": dict(data.figures), "wrong": wrong}
        print(to_json({**result, "checksums": sums}, indent=2))
    else:
        for key, value in data.figures.items():
            same = "as published" if found.get(key) == value else f"PUBLISHED {value:,}"
            shown = f"{found[key]:,}" if key in found else "none"
            print(f"{'ok ' if key not in wrong else 'BAD'}  {key:<14} {shown:>12}  {same}")
        for file_name, same_sum in sums.items():
            said = "MD5 as published" if same_sum else "MD5 differs: repacked, or not the published file"
            print(f"{'ok ' if same_sum else '  ?'}  {file_name}: {said}")
    if wrong:
        key = wrong[0]
        raise UserError(f"{name}: {found.get(key)} {key}, published are {data.figures[key]}")


@app.command()
def describe(
    name: Annotated[str, typer.Argument(help="A data set or format, a config, or a preset.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Keys of data: key=value …")] = None,
    path: Where = None,
    seed: Annotated[int, typer.Option(help="Of the run whose data this is.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", callback=no_other_file, help="Write a page too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Clients, sizes, classes per client, label frequencies, duplicates and divergence."""
    from spreadout.config.experiment import Experiment
    from spreadout.config.keys import with_value
    from spreadout.config.sound import prepared
    from spreadout.core.files import as_json as to_json
    from spreadout.core.files import write_atomic
    from spreadout.data.describe import describe as look
    from spreadout.data.sources import SOURCES
    from spreadout.report.data_view import page, print_description

    changes = [f"data.{change.removeprefix('data.')}" for change in overrides or []]
    if name in SOURCES:
        experiment = Experiment.of({"data": {"source": name}}, name, changes)
    else:
        experiment = Experiment.load(name, changes)
    if path is not None:
        experiment = with_value(experiment, "data.path", path.expanduser().absolute())
    experiment, splits = prepared(experiment.model_copy(update={"seed": seed}))
    data = experiment.data
    options = data.partition.model_dump(exclude={"name", "seed"})
    dealt = ", ".join(
        [data.partition.name, *(f"{key} {value}" for key, value in options.items()), f"seed {seed}"]
    )
    found = look(splits, dealt=dealt, seed=seed)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output, page(found).encode())
    if as_json:
        print(to_json(found.as_dict(), indent=2))
    else:
        print_description(found)
        if output is not None:
            print(f"\nThe page: {output}")


@app.command()
def fetch(
    name: Name,
    to: Annotated[Path | None, typer.Option("--to", help="Default: SPREADOUT_DATA.")] = None,
) -> None:
    """Download a data set from its publisher, where the publisher allows it."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TransferSpeedColumn,
    )

    from spreadout.data.catalog import how_to_get, known, md5
    from spreadout.data.io.download import fetch as bring
    from spreadout.data.sources.base import data_home

    data = known(name)
    base = to or data_home()
    if not data.place:
        raise UserError(f"{name}: is here already; it ships with a dependency")
    if not data.fetchable:
        raise UserError(f"{name}: its publisher offers no direct download; {how_to_get(data)}")
    if base is None:
        raise UserError("set SPREADOUT_DATA, or --to, to the folder it should go to")
    print(f"{name}: {data.terms} ({data.home})")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    for file in data.files:
        target = base / file.place
        if target.exists() and (file.md5 is None or md5(target) == file.md5):
            print(f"{target}: is here already")
            continue
        if target.exists():
            raise UserError(f"{target}: is there, but is not the published file; move it away first")
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(target.name, total=None)

            def show(
                done: int, total: int | None, task: TaskID = task, bar: Progress = progress
            ) -> None:
                bar.update(task, completed=done, total=total)

            bring(str(file.url), target, file.md5, show)
        print(f"{target}: MD5 as published" if file.md5 else str(target))
