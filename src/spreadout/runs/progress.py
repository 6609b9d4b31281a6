"""Showing how far a run is: a bar on a terminal or in a notebook, lines in a log."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from spreadout.config.experiment import Experiment
from spreadout.config.sound import announcement
from spreadout.core.types import Record
from spreadout.federated.round import RoundReport
from spreadout.runs.observer import Observer
from spreadout.runs.pace import Pace


class Display(Protocol):
    """Where progress is shown."""

    def show(self, name: str, pace: Pace, scores: str, *, last: bool = False) -> None: ...
    def say(self, text: str, *, warning: bool) -> None: ...
    def open(self) -> None: ...
    def close(self) -> None: ...


class Bar:
    """A bar on a terminal, gone when all is done; what is said stays above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None

    def show(self, name: str, pace: Pace, scores: str, *, last: bool = False) -> None:
        if self._task is None:
            self._task = self._progress.add_task(name, state="")
        who = f"{pace.place}: {name}" if pace.place else name
        state = "  ".join(part for part in (scores, pace.remaining) if part)
        self._progress.update(
            self._task, description=who, total=pace.rounds, completed=pace.round, state=state
        )

    def say(self, text: str, *, warning: bool) -> None:
        _say(self._console, text, warning=warning)

    def open(self) -> None:
        self._progress.start()

    def close(self) -> None:
        self._progress.stop()


class Lines:
    """Lines in a log: none of a short run, then one whenever something has come of enough seconds."""

    def __init__(self, console: Console, *, every: float = 10.0, clock: Callable[[], float]) -> None:
        self._console, self._every, self._clock = console, every, clock
        self._last = clock()
        self._spoke = False

    def show(self, name: str, pace: Pace, scores: str, *, last: bool = False) -> None:
        now = self._clock()
        if now - self._last < self._every and not (last and self._spoke):
            return
        self._last, self._spoke = now, not last
        parts = (pace.place, name, f"round {pace.round}/{pace.rounds}", scores, pace.remaining)
        line = ", ".join(part for part in parts if part)
        _say(self._console, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", warning=False)

    def say(self, text: str, *, warning: bool) -> None:
        _say(self._console, text, warning=warning)

    def open(self) -> None: ...
    def close(self) -> None: ...


class Notebook:
    """A bar below a notebook's cell, drawn anew; needs nothing but IPython, which is there."""

    def __init__(self, *, every: float = 0.2, clock: Callable[[], float]) -> None:
        self._every, self._clock = every, clock
        self._drawn: Any = None
        self._when = 0.0

    def show(self, name: str, pace: Pace, scores: str, *, last: bool = False) -> None:
        import IPython.display

        now = self._clock()
        if self._drawn is not None and not last and now - self._when < self._every:
            return
        self._when = now
        parts = (pace.place, name, f"round {pace.round}/{pace.rounds}", scores, pace.remaining)
        text = ", ".join(part for part in parts if part)
        share = f'<progress value="{pace.round}" max="{pace.rounds}"></progress>'
        drawn = {"text/plain": text, "text/html": f"{share} {html.escape(text)}"}
        if self._drawn is None:
            draw: Any = IPython.display.display
            self._drawn = draw(drawn, raw=True, display_id=True)
        else:
            self._drawn.update(drawn, raw=True)

    def say(self, text: str, *, warning: bool) -> None:
        print(f"warning: {text}" if warning else text, file=sys.stderr)

    def open(self) -> None: ...
    def close(self) -> None: ...


def _say(console: Console, text: str, *, warning: bool) -> None:
    said = Text.assemble(("warning:", "yellow"), " ", text) if warning else Text(text)
    console.print(said, soft_wrap=True)


def fitting_display(clock: Callable[[], float] = time.monotonic) -> Display:
    """What there is: a notebook, a terminal, or a log."""
    if in_notebook():
        return Notebook(clock=clock)
    console = Console(stderr=True)
    return Bar(console) if console.is_terminal else Lines(console, clock=clock)


def in_notebook() -> bool:
    """Whether a person sees what this process displays in a notebook."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


class Progress(Observer):
    """Shows how far a run is, or each run of a comparison, and says what a person should know.

    chosen: whether it says what was chosen from the data.
    """

    def __init__(
        self,
        runs: int = 1,
        *,
        chosen: bool = True,
        display: Display | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pace = Pace(runs, clock)
        self._display = display or fitting_display(clock)
        self._says_chosen = chosen
        self._label: str | None = None
        self._said: str | None = None  # of what was chosen
        self._name = self._scores = ""
        self._scored = 0  # the round that these scores are of
        self._metrics: list[str] = []

    def __enter__(self) -> Progress:
        self._display.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self._display.close()

    def named(self, label: str, seed: int) -> Progress:
        """The same display, for the next run of a comparison."""
        self._label = f"{label}, seed {seed}"
        self._pace.next_run()
        return self

    def started(self, experiment: Experiment, round: int) -> None:
        chosen = announcement(experiment)
        if self._says_chosen and round == 0 and chosen and chosen != self._said:
            self._said = chosen  # once for all seeds of a variant
            self._display.say(f"{self._who}{chosen}; see config.toml", warning=False)
        self._name, self._scores, self._scored = self._label or experiment.name, "", round
        self._metrics = list(experiment.eval.metrics)
        self._pace.start(round, experiment.rounds)
        self._show()

    def round_done(self, report: RoundReport) -> None:
        self._pace.round = report.round
        self._show()

    def evaluated(self, record: Record) -> None:
        self._scores = "  ".join(f"{name} {record[name]:.1f}" for name in self._metrics)
        self._scored = int(record["round"])
        self._show()

    def warned(self, text: str) -> None:
        self._display.say(f"{self._who}{text}", warning=True)

    def ended(self, summary: Mapping[str, Any] | None) -> None:
        if self._pace.rounds:  # it had begun
            self._show(last=True)
        self._pace.end()

    @property
    def _who(self) -> str:
        return f"{self._label}: " if self._label else ""

    def _show(self, *, last: bool = False) -> None:
        scores = self._scores
        if scores and self._scored != self._pace.round:  # of an earlier round: not what this one reached
            scores += f" (round {self._scored})"
        self._display.show(self._name, self._pace, scores, last=last)
