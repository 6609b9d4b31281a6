"""`watch`: runs in progress, on a page of this machine's own or on the terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from spreadout.core.errors import UserError


def watch(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs or comparisons in progress.")],
    terminal: Annotated[
        bool, typer.Option("--terminal", help="Print what is new here, instead of serving a page.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = 0,
) -> None:
    """Serve the report page of runs in progress on loopback; Ctrl-C ends it."""
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder")
    try:
        _print_news(folders) if terminal else _serve(folders, port)
    except KeyboardInterrupt:
        return


def _serve(folders: list[Path], port: int) -> None:
    from spreadout.report.live import LiveServer

    with LiveServer(folders, port) as server:
        print(server.address)
        print("Only this machine reaches it, and only with this address. Ctrl-C ends it.", flush=True)
        server.serve_forever()


def _print_news(folders: list[Path]) -> None:
    """A line for every run that has come further, until all are finished."""
    from spreadout.report.live import EVERY, state_of

    before, told = None, set()
    while True:
        now = state_of(folders)
        if now == before:
            time.sleep(EVERY)
            continue
        before = now
        lines, done = _news(folders)
        for line in lines:
            if line not in told:
                told.add(line)
                print(line, flush=True)
        if done:
            return


def _news(folders: list[Path]) -> tuple[list[str], bool]:
    """What can be said of the runs now, and whether all of them are finished."""
    from spreadout.report.live import arms_now, nodes_now
    from spreadout.runs.deployed import lines_of

    lines = []
    for folder in folders:
        if (found := nodes_now(folder)) is not None:
            name = f"{folder.name}, " if len(folders) > 1 else ""
            lines += [f"{name}{line}" for line in lines_of(found)]
    arms, waiting = arms_now(folders)
    lines += [f"waiting: {why}" for why in waiting.values()]
    going = bool(waiting)
    for arm in arms:
        for summary in arm.summaries:
            so_far = summary.get("unfinished")
            going |= so_far is not None
            state = f"round {so_far['round']} of {so_far['of']}" if so_far else "finished"
            scores = "  ".join(
                f"{name} {'–' if value is None else f'{value:.2f}'}"
                for name, value in summary["metrics"].items()
            )
            lines.append(f"{arm.label}, seed {summary['seed']}: {state}  {scores}")
    ends = ("summary.json", "comparison.json")
    ended = all(any((folder / end).is_file() for end in ends) for folder in folders)
    return lines, ended and not going
