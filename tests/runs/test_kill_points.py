"""Killed before, between and in the middle of its file operations, at every one of them, a run or a
comparison is gone on with or started again by the next command, and ends as one that was not killed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import spreadout as so
from disk import Snapshots, watched
from memory_grid import deployed, served
from spreadout.core.errors import UserError
from spreadout.report.page import write_page
from spreadout.runs.compare import compare
from spreadout.runs.folder import RunFolder
from tiny import result_of, tiny, tiny_data

DATA = tiny_data()


def run(folder: Path, *, force: bool = False) -> None:
    so.run(tiny(), data=DATA, out=folder, device="cpu", force=force)


def resume(folder: Path) -> None:
    so.resume(folder, data=DATA, device="cpu")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder)
    return folder


def every_state(work: Callable[[Path], None], folder: Path, copies: Path) -> Snapshots:
    """What the disk holds at all moments of some work."""
    seen = Snapshots(folder, copies)
    with watched(folder, seen):
        work(folder)
    seen("after", folder)
    return seen


def go_on(folder: Path) -> None:
    """What a person does with a run that died: resume it or, if it never began, run it."""
    if (folder / "config.toml").exists():
        resume(folder)
    else:
        with pytest.raises(UserError, match="not a run folder"):
            resume(folder)
        run(folder, force=True)


def assert_all_recover(
    seen: Snapshots, recover: Callable[[Path], None], expected: Callable[[Path], object], whole: Path
) -> None:
    wanted = expected(whole)
    for said, folder in seen.states.values():
        with watched(folder, lambda what, file: None):  # nothing waits for the disk
            try:
                recover(folder)
            except UserError as error:
                pytest.fail(f"killed at {said}: {error}")
        assert expected(folder) == wanted, said


def test_a_fresh_run(whole: Path, tmp_path: Path) -> None:
    seen = every_state(run, tmp_path / "run", tmp_path / "copies")
    assert len(seen.moments) > 80
    for said, folder in seen.states.values():  # `run --force` would take it, wherever it was killed
        try:
            RunFolder.claimed(folder, force=True).release()
        except UserError as error:
            pytest.fail(f"killed at {said}: {error}")
    assert_all_recover(seen, go_on, result_of, whole)


def test_a_resumed_run(whole: Path, stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    seen = every_state(resume, tmp_path / "run", tmp_path / "copies")
    assert len(seen.moments) > 50
    assert_all_recover(seen, resume, result_of, whole)


def test_a_finished_run_that_is_resumed(whole: Path, tmp_path: Path) -> None:
    """Nothing of it is written again."""
    shutil.copytree(whole, tmp_path / "run")
    seen = every_state(resume, tmp_path / "run", tmp_path / "copies")
    assert len(seen.states) == 1


def test_the_server_of_a_deployment(tmp_path: Path) -> None:
    """A server that died is started again: to resume or, if it had not begun, afresh."""
    e = tiny(rounds=1)

    def serve(folder: Path) -> None:
        begun = (folder / "config.toml").exists()
        served(deployed(DATA, e, tmp_path / "project", 1), DATA, e, folder, resume=begun)

    def recover(folder: Path) -> None:
        if not (folder / "summary.json").exists():
            serve(folder)

    seen = every_state(serve, tmp_path / "run", tmp_path / "copies")
    assert len(seen.moments) > 80
    assert_all_recover(seen, recover, result_of, tmp_path / "run")


class Cleared(Exception): ...


def clearing(work: Callable[[], object]) -> None:
    """Only what comes before the first round: what comes after it is as in a place that was free."""

    def raises() -> None:
        raise Cleared

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spreadout.runs.session.Session.train", lambda self: raises())
        with pytest.raises(Cleared):
            work()


def test_a_run_that_replaces_another(whole: Path, tmp_path: Path) -> None:
    """It is told again to replace it, or resumed if it has begun."""
    folder = tmp_path / "run"
    so.run(tiny(rounds=1, seed=3), data=DATA, out=folder, device="cpu")
    before = (folder / "config.toml").read_bytes()
    seen = every_state(lambda f: clearing(lambda: run(f, force=True)), folder, tmp_path / "copies")
    assert len(seen.states) > 15
    ours = Snapshots(folder, tmp_path / "begun")
    for said, copy in seen.states.values():
        config = copy / "config.toml"
        if config.exists() and config.read_bytes() != before:
            ours.states[said] = (said, shutil.copytree(copy, ours.copies / copy.name))
    assert ours.states
    assert_all_recover(seen, lambda f: run(f, force=True), result_of, whole)
    assert_all_recover(ours, resume, result_of, whole)


VARIANTS = {"a": tiny(rounds=1), "b": tiny(rounds=1, clients={"local_steps": 2})}


def compared(folder: Path, variants: int = 2, *, force: bool = False, go_on: bool = False) -> None:
    some = dict(list(VARIANTS.items())[:variants])
    found = compare(some, data=DATA, out=folder, device="cpu", force=force, go_on=go_on)
    write_page(found, folder / "report.html", title="toy")


def results_of(folder: Path) -> dict[str, object]:
    left = sorted(path.name for path in folder.iterdir())
    return {
        "left": left,
        **{name: result_of(folder / name / "seed-0") for name in VARIANTS if name in left},
    }


def test_a_comparison(tmp_path: Path) -> None:
    seen = every_state(compared, tmp_path / "comparison", tmp_path / "copies")
    assert len(seen.moments) > 120
    assert_all_recover(seen, lambda f: compared(f, go_on=True), results_of, tmp_path / "comparison")


def test_a_comparison_that_replaces_another(tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "comparison"
    compared(whole, 1)
    shutil.copytree(whole, folder)
    seen = every_state(
        lambda f: clearing(lambda: compared(f, 1, force=True)), folder, tmp_path / "copies"
    )
    again = Snapshots(folder, tmp_path / "again")
    for key, (said, copy) in seen.states.items():
        again.states[key] = (said, shutil.copytree(copy, again.copies / copy.name))
    assert len(seen.states) > 15
    assert_all_recover(seen, lambda f: compared(f, 1, go_on=True), results_of, whole)
    assert_all_recover(again, lambda f: compared(f, 1, force=True), results_of, whole)
