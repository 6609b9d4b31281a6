"""A disk that is full, at every write: the file is named, the last checkpoint is kept, the run goes on
once there is room."""

import shutil
from pathlib import Path

import pytest
import torch

import spreadout as so
from command import invoke
from disk import FullDisk, watched
from spreadout.core.errors import UserError
from spreadout.core.files import TEMPORARY
from spreadout.runs import checkpoint
from spreadout.runs.folder import RunFolder
from tiny import result_of, tiny, tiny_data

DATA = tiny_data()


def run(folder: Path) -> None:
    so.run(tiny(rounds=1), data=DATA, out=folder, device="cpu")


def test_at_every_write_of_a_run(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    whole, moments = result_of(tmp_path / "whole"), 0
    while True:
        folder, full = tmp_path / str(moments), FullDisk(moments)
        try:
            with watched(folder, full):
                run(folder)
            break
        except (UserError, OSError) as error:
            said = str(error)
        name = Path(full.first).name
        temporary = TEMPORARY.fullmatch(name)
        assert (temporary["name"] if temporary else name) in said, said
        assert "No space left on device" in said
        assert "\n" not in said
        with watched(folder, lambda what, file: None):
            if (folder / "config.toml").exists():
                begun = RunFolder(folder).saved()
                if begun is not None:
                    state, _ = checkpoint.load(folder / "checkpoint", torch.device("cpu"))
                    assert state.round == begun["round"]
                    assert "the last checkpoint is whole: make room, then `spreadout resume" in said
                so.resume(folder, data=DATA, device="cpu")
            else:
                run(folder)
        assert result_of(folder) == whole, full.first
        shutil.rmtree(folder)
        moments += 1
    assert moments > 40


def test_the_command_says_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, full = tmp_path / "run", FullDisk(40)
    with watched(folder, full):
        assert (
            invoke(monkeypatch, "run", "digits-fedaws", "rounds=2", "eval.every=1", "--out", str(folder))
            == 2
        )
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"error: {folder}/")
    assert last.endswith(
        "cannot be written (No space left on device); the last checkpoint is whole: make room, then "
        f"`spreadout resume {folder}`"
    )
    assert invoke(monkeypatch, "resume", str(folder)) == 0
