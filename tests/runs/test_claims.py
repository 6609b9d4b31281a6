"""One process at a time works in a folder; what is not ours is left alone; what is deleted is noticed."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import spreadout as so
from command import invoke
from memory_grid import deployed, served
from spreadout.core.errors import UserError
from spreadout.core.locks import Lock, is_signed
from spreadout.runs.claim import REHEARSAL_MARK, Claim, is_ours
from spreadout.runs.compare import compare
from spreadout.runs.folder import RunFolder, remove_run
from tiny import result_of, tiny, tiny_data

DATA = tiny_data()
IN_USE = "is in use by another run of this process; wait until it ends, or stop it"


def run(folder: Path, *, force: bool = False, **more: object) -> so.Result:
    return so.run(tiny(), data=DATA, out=folder, device="cpu", force=force, **more)  # type: ignore[arg-type]


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    with pytest.raises(so.Interrupted):
        run(tmp_path / "run", stop=lambda: True)
    return tmp_path / "run"


def test_a_run_that_is_going_on_is_neither_resumed_nor_replaced(stopped: Path) -> None:
    class Tries(so.Observer):
        refused = 0

        def round_done(self, report: object) -> None:
            for work in (
                lambda: so.resume(stopped, data=DATA, device="cpu"),
                lambda: run(stopped, force=True),
                lambda: remove_run(stopped),
            ):
                with pytest.raises(UserError, match=f"{stopped}: {IN_USE}"):
                    work()
                self.refused += 1

    tries = Tries()
    so.resume(stopped, data=DATA, device="cpu", observer=tries)
    assert tries.refused == 3
    result = result_of(stopped)
    run(stopped, force=True)  # it has ended, so it can be had
    assert result_of(stopped) == result


def test_a_comparison_that_is_going_on_is_neither_resumed_nor_replaced(tmp_path: Path) -> None:
    folder, seen = tmp_path / "comparison", []

    class Tries(so.Observer):
        def started(self, experiment: so.Experiment, round: int) -> None:
            for how in ({"go_on": True}, {"force": True}):
                with pytest.raises(UserError, match=f"{folder}: {IN_USE}"):
                    compare([tiny(rounds=1)], data=DATA, out=folder, device="cpu", **how)  # type: ignore[arg-type]
            with pytest.raises(UserError, match=f"{folder}.*: {IN_USE}"):
                run(folder, force=True)
            seen.append(experiment.name)

    compare([tiny(rounds=1)], data=DATA, out=folder, device="cpu", observer=lambda v, s: Tries())
    assert seen == ["run"]


def test_a_comparison_does_not_replace_a_run_of_it_that_somebody_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "comparison"
    compare([tiny(rounds=1)], data=DATA, out=folder, device="cpu")
    inner = folder / "run" / "seed-0"
    held = RunFolder.reopened(inner)
    with pytest.raises(UserError, match=f"{inner}: {IN_USE}"):
        compare([tiny(rounds=1)], data=DATA, out=folder, device="cpu", force=True)
    assert held.finished
    held.release()


def test_the_server_of_a_deployment_holds_its_folder(tmp_path: Path) -> None:
    e = tiny(clients={"per_round": "all"})

    class Tries(so.Observer):
        refused = 0

        def round_done(self, report: object) -> None:
            with pytest.raises(UserError, match=IN_USE):
                served(deployed(DATA, e, tmp_path / "other"), DATA, e, tmp_path / "run", resume=True)
            self.refused += 1

    tries = Tries()
    served(deployed(DATA, e, tmp_path / "project"), DATA, e, tmp_path / "run", observer=tries)
    assert tries.refused == 2


def test_a_rehearsal_holds_its_folder_before_its_server_does(tmp_path: Path) -> None:
    from spreadout.flower.local import rehearse, resume
    from spreadout.flower.project import PACKAGE

    out, e = tmp_path / "run", so.Experiment.load("digits-fedaws")
    project = out / "deployment" / "project" / PACKAGE
    project.mkdir(parents=True)
    (project / "experiment.toml").write_text(e.to_toml())
    claim = Claim.take(out, REHEARSAL_MARK)
    for work in (lambda: rehearse(e, out, nodes=1, force=True), lambda: resume(out)):
        with pytest.raises(UserError, match=f"{out}: {IN_USE}"):
            work()
    assert project.is_dir()
    claim.release()


def test_a_file_system_without_locks_is_told_of_and_worked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    class Hears(so.Observer):
        said = ""

        def warned(self, text: str) -> None:
            self.said += text

    monkeypatch.setattr(fcntl, "flock", flock)
    hears = Hears()
    run(tmp_path / "run", observer=hears)
    assert f"{tmp_path / 'run'}: this file system has no locks" in hears.said


@pytest.mark.parametrize("when", ["before a round", "and another is in its place"])
def test_a_folder_deleted_in_mid_run_ends_the_run_with_that_sentence(tmp_path: Path, when: str) -> None:
    folder = tmp_path / "run"

    class Deletes(so.Observer):
        def round_done(self, report: object) -> None:
            shutil.rmtree(folder)
            if when != "before a round":
                run(folder)

    with pytest.raises(UserError, match=f"{folder}: was deleted while the run was going on"):
        run(folder, observer=Deletes())
    if when == "before a round":
        assert not folder.exists()  # not a trace of it comes back
    else:
        assert RunFolder(folder).summary()["rounds"] == 2


def test_a_deleted_folder_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"

    def deletes(self: object, report: object) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    monkeypatch.setattr("spreadout.runs.progress.Progress.round_done", deletes)
    assert (
        invoke(monkeypatch, "run", "digits-fedaws", "rounds=3", "eval.every=1", "--out", str(folder))
        == 2
    )
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"error: {folder}: was deleted while the run was going on; start it again"
    )


def test_a_run_of_an_earlier_version_killed_before_its_first_checkpoint_can_be_replaced(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text(tiny().to_toml())
    with pytest.raises(
        UserError, match=r"exists; choose another --out \(out=\), or --force \(force=True\)"
    ):
        run(folder)
    run(folder, force=True)
    assert RunFolder(folder).finished


def test_what_never_began_is_run_without_force(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    RunFolder.claimed(folder).release()
    assert not folder.exists()
    folder.mkdir()
    for name in (".spreadout-run", ".config.toml.77", "SHA256SUMS"):
        (folder / name).touch()
    run(folder)
    assert not (folder / ".config.toml.77").exists()


@pytest.mark.parametrize("content", ["", "mine", "{}", '{"process": 1}', "[" * 99_999, "\udcff"])
def test_a_file_named_like_a_mark_does_not_make_a_folder_ours(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "wedding.jpg").touch()
    (folder / ".spreadout-run").write_text(content, errors="surrogateescape")
    for work in (lambda: run(folder, force=True), lambda: remove_run(folder)):
        with pytest.raises(UserError, match="exists and is not a run folder; choose another --out"):
            work()
    assert (folder / "wedding.jpg").exists()


def test_what_is_signed_once_stays_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process killed while it signs leaves a folder that is known as ours."""
    path, seen = tmp_path / ".spreadout-run", []
    for name in ("pwrite", "ftruncate"):
        real = getattr(os, name)

        def act(*given: object, real: Callable[..., int] = real) -> int:
            seen.append(is_signed(path))
            return real(*given)

        monkeypatch.setattr(os, name, act)
    for host in ("a", "a-longer-name", "b"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        Lock.take(path).release()
        assert is_signed(path)
    assert seen == [False, *[True] * 5]


@pytest.mark.parametrize("leads_to", ["a folder", "nothing"])
def test_a_link_in_the_place_of_what_is_deleted_is_taken_away(stopped: Path, leads_to: str) -> None:
    precious = stopped.parent / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (stopped / ".removed").symlink_to(precious if leads_to == "a folder" else "nowhere")
    so.resume(stopped, data=DATA, device="cpu")
    (stopped / ".removed").symlink_to(precious if leads_to == "a folder" else "nowhere")
    run(stopped, force=True)
    assert RunFolder(stopped).finished
    assert not (stopped / ".removed").is_symlink()
    assert (precious / "file").exists()


def test_a_failed_start_leaves_nothing_behind(tmp_path: Path) -> None:
    bad = tiny(clients={"per_round": 50})
    for out in (tmp_path / "a" / "b" / "run", tmp_path):
        with pytest.raises(UserError, match="there are only 3 clients"):
            so.run(bad, data=DATA, out=out, device="cpu")
        with pytest.raises(UserError, match="there are only 3 clients"):
            compare([bad], data=DATA, out=out, device="cpu")
    assert not list(tmp_path.iterdir())


def test_a_project_with_a_config_and_a_checkpoint_folder_is_no_run(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "thesis").mkdir()
    (folder / "config.toml").write_text('title = "x"\n')
    assert not is_ours(folder)
    (folder / "config.toml").write_text(so.Experiment().to_toml())
    assert not is_ours(folder)  # something else is kept beside it
    (folder / "thesis").rmdir()
    assert is_ours(folder)
