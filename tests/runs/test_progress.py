"""How far a run is: what is shown where, the time that is left, and being asked to stop."""

import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import spreadout as so
from spreadout.runs.observer import Several
from spreadout.runs.pace import Pace
from spreadout.runs.progress import Bar, Lines, Notebook, Progress
from spreadout.runs.stopping import stoppable


@pytest.fixture(autouse=True)
def _keyboard() -> Iterator[None]:
    """Ctrl-C as in a terminal: a shell that starts tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


SHORT = so.Experiment(rounds=3, clients={"local_steps": 1}, eval={"every": 1})


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(clock: Clock, every: float = 10.0) -> tuple[Lines, Callable[[], list[str]]]:
    out = io.StringIO()
    shown = Lines(Console(file=out, width=300), every=every, clock=clock)
    return shown, lambda: out.getvalue().splitlines()


def test_the_time_that_is_left_follows_from_the_rounds_that_are_done() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    pace.start(round=10, rounds=50)
    assert pace.left is None  # nothing is known before a round is over
    clock.now, pace.round = 20.0, 20  # ten rounds, two seconds each
    assert pace.left == 60.0
    assert (pace.place, pace.remaining) == ("", "60 s left")


def test_of_a_comparison_all_runs_that_remain_are_foretold() -> None:
    clock = Clock()
    pace = Pace(runs=4, clock=clock)
    pace.next_run()
    pace.next_run()  # the first was kept from before: nothing was started of it
    pace.start(0, 10)
    clock.now = 100.0
    pace.end()
    pace.next_run()
    pace.start(0, 10)
    clock.now, pace.round = 200.0, 5  # 20 s a round: it will take 200 s
    assert pace.place == "run 3 of 4"
    assert pace.left == 100.0
    assert (
        pace.all_left == 100.0 + (100.0 + 200.0) / 2
    )  # and one more, as long as these two are on average
    assert pace.remaining == "100 s left, 4 min for all"


def test_a_log_is_empty_of_short_runs_and_never_of_long_ones() -> None:
    clock = Clock()
    display, said = lines(clock)
    watch = Progress(display=display, chosen=False, clock=clock)
    so.run(SHORT, observer=watch)
    assert said() == []  # no second passed

    class Slow(so.Observer):
        def round_done(self, report: Any) -> None:
            clock.now += 6.0

    found = so.run(SHORT, observer=Several([Slow(), watch]))
    first, last = said()  # 6 s: nothing yet; 12 s: a line; 18 s: it is over
    score = found.history[1]["P@1"]
    assert first.partition(", ")[2] == f"round 2/3, P@1 {score:.1f} (round 1), 6 s left"
    assert first[:2] == "20"  # a date
    assert last.endswith(f"round 3/3, P@1 {found.metrics['P@1']:.1f}, 0 s left")


def test_a_comparison_in_a_log_says_which_run_of_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display, said = lines(clock)
    watch = Progress(4, display=display, chosen=False, clock=clock)

    class Slow(so.Observer):
        def round_done(self, report: Any) -> None:
            clock.now += 10.0

    def both(label: str, seed: int) -> so.Observer:
        return Several([Slow(), watch.named(label, seed)])

    so.compare({"a": SHORT, "b": SHORT}, seeds=[0, 7], observer=both)
    starts = [line.partition(" ")[2].partition(" ")[2].partition(", round")[0] for line in said()]
    assert list(dict.fromkeys(starts)) == [
        "run 1 of 4, a, seed 0",
        "run 2 of 4, a, seed 7",
        "run 3 of 4, b, seed 0",
        "run 4 of 4, b, seed 7",
    ]
    assert "round 1/3" in said()[0]
    assert said()[0].endswith("20 s left, 110 s for all")  # 30 s each, of which 10 are over
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal_shows_scores_and_is_gone_at_the_end() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with Progress(2, display=Bar(console), chosen=False) as watch:
        found = so.run(SHORT, observer=watch.named("mine", 5))
        watch.warned("[bold]not markup[/]")
    shown = out.getvalue()
    assert "run 1 of 2: mine, seed 5" in shown
    assert f"P@1 {found.metrics['P@1']:.1f}" in shown
    assert "3/3" in shown
    assert "mine, seed 5: [bold]not markup[/]" in shown


def test_by_default_python_is_told_warnings_and_nothing_else_of_a_short_run(
    toy: so.Splits, capsys: pytest.CaptureFixture[str]
) -> None:
    so.run(SHORT, data=toy)
    assert capsys.readouterr() == ("", "")
    noted = replace(toy, notes=("x: is [odd]",))
    so.run(SHORT, data=noted)
    assert capsys.readouterr() == ("", "warning: x: is [odd]\n")
    so.run(SHORT, data=noted, progress=False)
    assert capsys.readouterr() == ("", "")


def test_an_observer_of_ones_own_hears_the_end_however_it_comes() -> None:
    class Hears(so.Observer):
        def __init__(self) -> None:
            self.ends: list[Any] = []

        def ended(self, summary: Any) -> None:
            self.ends.append(summary if summary is None else summary["rounds"])

    whole, stopped, failed = Hears(), Hears(), Hears()
    so.run(SHORT, observer=whole)
    with pytest.raises(so.Interrupted):
        so.run(SHORT, observer=stopped, stop=lambda: True)
    with pytest.raises(so.UserError):
        so.run(SHORT, observer=failed, data=3)  # type: ignore[arg-type]
    assert (whole.ends, stopped.ends, failed.ends) == ([3], [None], [])  # the last never began


class Presses(so.Observer):
    """Ctrl-C in a round."""

    def __init__(self, at: int) -> None:
        self.at = at

    def round_done(self, report: Any) -> None:
        if report.round == self.at:
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_in_python_saves_the_round_and_the_run_can_be_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = so.run(SHORT)
    with pytest.raises(so.Interrupted, match=r"stopped after round 2; go on with so\.resume\('.*run'\)"):
        so.run(SHORT, out=tmp_path / "run", observer=Presses(2))
    assert "stopping after this round; interrupt again to stop now" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = so.resume(tmp_path / "run")
    assert (resumed.metrics, resumed.summary["rounds"]) == (whole.metrics, 3)


def test_a_run_in_no_folder_that_was_stopped_leaves_its_model() -> None:
    often = SHORT.model_copy(update={"rounds": 9})
    long = often.model_copy(update={"eval": SHORT.eval.model_copy(update={"every": 9})})
    with pytest.raises(so.Interrupted, match=r"^stopped after round 3$") as stopped:
        so.run(long, observer=Presses(3))
    result = stopped.value.result
    assert result.summary["rounds"] == 3
    assert result.metrics["P@1"] == so.run(often).history[3]["P@1"]
    assert [record["round"] for record in result.history] == [0, 3]


def test_a_second_ctrl_c_stops_at_once() -> None:
    class Twice(so.Observer):
        def round_done(self, report: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        so.run(SHORT, observer=Twice())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_is_left_to_those_who_handle_it_themselves() -> None:
    def mine(*_: object) -> None: ...

    before = signal.signal(signal.SIGINT, mine)
    try:
        with stoppable(None) as asked:
            assert signal.getsignal(signal.SIGINT) is mine
            assert not asked()
    finally:
        signal.signal(signal.SIGINT, before)
    found: list[Any] = []

    def elsewhere() -> None:
        with stoppable(None) as asked:
            found.append(asked())

    thread = threading.Thread(target=elsewhere)  # where no handler can be set
    thread.start()
    thread.join()
    assert found == [False]


def test_a_comparison_that_is_interrupted_stops_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(so.Interrupted):
        so.compare({"a": SHORT, "b": SHORT}, out=tmp_path / "c", observer=lambda label, seed: Presses(1))
    assert not (tmp_path / "c" / "b").exists()
    found = so.compare({"a": SHORT, "b": SHORT}, out=tmp_path / "c", go_on=True, progress=False)
    assert [arm.summaries[0]["rounds"] for arm in found] == [3, 3]


def test_a_notebook_draws_one_bar_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    display = pytest.importorskip("IPython.display")
    drawn: list[dict[str, str]] = []
    handle = SimpleNamespace(update=lambda data, raw: drawn.append(data))

    def draws(data: dict[str, str], raw: bool, display_id: bool) -> Any:
        drawn.append(data)
        return handle

    monkeypatch.setattr(display, "display", draws)
    clock = Clock()

    class Slow(so.Observer):
        def round_done(self, report: Any) -> None:
            clock.now += 1.0

    watch = Progress(display=Notebook(clock=clock), chosen=False, clock=clock)
    so.run(SHORT.model_copy(update={"name": "a.b"}), observer=Several([Slow(), watch]))
    assert "round 0/3" in drawn[0]["text/plain"]
    assert drawn[-1]["text/html"].startswith(
        '<progress value="3" max="3"></progress> a.b, round 3/3, P@1 '
    )
    assert len(drawn) == 5  # at the start, after each round, at the end: no more than five a second
