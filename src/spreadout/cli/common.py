"""What commands that train have in common: their options, where they write, how they are stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spreadout.cli.parser import complete_config
from spreadout.core.errors import UserError
from spreadout.runs.stopping import Stop, speaks

if TYPE_CHECKING:
    from spreadout.runs.observer import Observer

CONFIG_HELP = "A TOML file, or the name of a preset."
Config = Annotated[str, typer.Argument(help=CONFIG_HELP, autocompletion=complete_config)]
Out = Annotated[Path | None, typer.Option("--out", help="Run folder; default runs/<name>-<time>.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Track = Annotated[
    list[str] | None,
    typer.Option("--track", help="Tell tensorboard, wandb or mlflow too what is recorded."),
]
PAGE = b"<!doctype html"  # as every page begins that is written here


def no_other_file(page: Path | None) -> Path | None:
    """A page may take the place of a page; any other file is not to be lost."""
    if page is not None and page.is_file():
        with page.open("rb") as file:
            head = file.read(len(PAGE))
        if head and head.lower() != PAGE:
            raise UserError(f"-o {page}: exists and is no page; name another file")
    return page


Force = Annotated[bool, typer.Option("--force", help="Replace an existing run folder.")]


@contextmanager
def watched(device: str) -> Iterator[tuple[Stop, Observer]]:
    """A run that can be stopped and is shown; of several processes, the first one shows it."""
    from spreadout.runs.observer import Observer
    from spreadout.runs.progress import Progress
    from spreadout.runtime import distributed

    with distributed.joined(device), Stop() as stop:
        if not distributed.is_first():
            yield stop, Observer()
            return
        with Progress() as observer:
            yield stop, observer


def tracking(names: list[str] | None) -> list[str]:
    """`--track` as an override."""
    return [f"run.track={names!r}"] if names else []


def note_unchecked(*folders: Path) -> None:
    """Say which of the folders to be read cannot be checked."""
    from spreadout.runs.sums import unchecked

    for said in filter(None, map(unchecked, folders)):
        print(f"note: {said}", file=sys.stderr)


def fresh_folder(name: str) -> Path:
    """A folder for a run that names none; to the millisecond, as two may start in one second."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return Path("runs") / f"{name}-{stamp}-{int(now * 1000) % 1000:03d}"


def resumable(work: Any, how: str) -> Any:
    from spreadout.runs.observer import Interrupted

    try:
        return work()
    except Interrupted as stopped:
        if speaks():
            said = f"interrupted after round {stopped.round}, state saved; resume with: {how}"
            print(said, file=sys.stderr)
        raise typer.Exit(130) from None
