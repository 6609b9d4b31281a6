"""Inputs that once ended in a traceback: each is one line now."""

from __future__ import annotations

import random
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spreadout as so
from command import invoke
from spreadout.core.errors import LONGEST, one_line
from spreadout.evaluation.projection import _axes
from spreadout.runs.folder import RunFolder

TOY = {"data": {"source": "digits"}, "rounds": 2}


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr that is an error, which is the last."""
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith(("error: ", "Traceback"))] == lines[-1:]
    return lines[-1]


@pytest.mark.parametrize("shape", [(4, 0), (4, 3, 0, 5)])
def test_x_without_features(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    shape: tuple[int, ...],
) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(shape), y=np.array([0, 1, 0, 1]))
    path = f"data.path={tmp_path}/a.npz"
    assert invoke(monkeypatch, "run", "digits-fedaws", "data.source=npz", path) == 2
    assert "so no features: give at least one" in said(capsys)
    with pytest.raises(so.UserError, match="no features"):
        so.FederatedDataset.from_arrays(np.zeros(shape), [0, 1, 0, 1], [0, 0, 1, 1])


def test_files_without_features(tmp_path: Path) -> None:
    (tmp_path / "a.arff").write_text("@relation 'a: -C 1'\n@attribute y {0,1}\n@data\n1\n0\n1\n0\n")
    (tmp_path / "train.txt").write_text("2 0 2\n0\n1\n")
    for source, path in (("mulan", "a.arff"), ("xc-text", "train.txt")):
        with pytest.raises(so.UserError, match=r"x has no features; give at least one"):
            so.load_data(so.DataConfig(source=source, path=tmp_path / path))


@pytest.mark.parametrize("seed", range(8))
def test_random_bytes_as_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    raw = random.Random(seed).randbytes(5000)
    (tmp_path / "a.csv").write_bytes(raw if seed % 2 else raw.replace(b"\n", b"\r\0\r") + b"\r")
    path = f"data.path={tmp_path}/a.csv"
    assert invoke(monkeypatch, "run", "digits-fedaws", "data.source=interactions", path) == 2
    assert "a.csv:1: " in said(capsys)


@pytest.mark.parametrize("lr", [1e23, 1e30, 3.3e38])
def test_rates_that_are_far_too_high(tmp_path: Path, lr: float) -> None:
    """Finite weights of any size are a result; what is not finite is said to have diverged."""
    told = ""
    try:
        result = so.run({**TOY, "clients": {"lr": lr}}, out=tmp_path / "run", device="cpu")
        finite = all(bool(value.isfinite().all()) for value in result.state.dense.values())
    except so.UserError as error:
        finite, told = False, str(error)
    assert finite or "diverged by round" in told


def test_numbers_that_do_not_fit() -> None:
    with pytest.raises(so.UserError, match=r"clients.lr: 1e\+300 is too large for a 32-bit number"):
        so.Experiment.of({"clients": {"lr": 1e300}})
    with pytest.raises(so.UserError, match="rounds: is too large for a 64-bit number"):
        so.Experiment.of({"rounds": 10**30})


def test_axes_of_points_of_any_size() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(20, 6, generator=generator)
    for scale in (1e-30, 1.0, 1e25, 3e37):
        found = _axes(points * scale)
        assert found.isfinite().all()
        assert torch.allclose(found @ found.T, torch.eye(2), atol=1e-4)
    broken = points.clone()
    broken[3, 2] = float("nan")
    assert _axes(broken).shape == (2, 6)


DEEP = 5000


@pytest.mark.parametrize(
    "override",
    [
        ".".join("a" * DEEP) + "=1",
        "model.hidden=" + "[" * DEEP + "]" * DEEP,
        "model=" + "{a=" * DEEP + "1" + "}" * DEEP,
        "clients.lr=" + "9" * DEEP,
        "clients." * 40 + "lr=1",
    ],
    ids=["keys", "lists", "sections", "digits", "words"],
)
def test_overrides_of_any_depth(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], override: str
) -> None:
    assert invoke(monkeypatch, "run", "digits-fedaws", override) == 2
    assert len(said(capsys)) < LONGEST + 20


@pytest.mark.parametrize(
    "text",
    [
        ".".join("a" * DEEP) + " = 1",
        "a = " + "[" * DEEP,
        "a = " + "{a=" * DEEP,
        "a = " + "9" * DEEP,
        "a = 0x" + "f" * DEEP,
    ],
    ids=["keys", "lists", "sections", "digits", "hex"],
)
def test_configs_of_any_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "a.toml").write_text(text)
    for command in ("run", "compare"):
        assert invoke(monkeypatch, command, str(tmp_path / "a.toml")) == 2
        assert len(said(capsys)) < LONGEST + 20


def test_messages_are_one_line_whatever_is_in_them() -> None:
    assert one_line("a\nb\x1b[31m\u2028c\x85d\tµ–") == r"a\nb\x1b[31m\u2028c\x85d\tµ–"
    assert len(one_line("x" * 10**7)) == LONGEST + 2
    assert str(so.UserError("a\nb")) == r"a\nb"


def test_a_file_name_with_a_line_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "a\nb\x1b[2J.toml"
    odd.write_text("rounds = 0")
    for argument in (str(odd), str(odd) + "x", "n" * 5000):
        assert invoke(monkeypatch, "run", argument) == 2
        said(capsys)


@pytest.mark.parametrize("most", [0, 100, 2000])
def test_a_write_limit_at_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], most: int
) -> None:
    """No file may grow beyond so many bytes when the model is written: said, and nothing is lost."""
    finish, before = RunFolder.finish, resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(self: RunFolder, *args: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
        try:
            finish(self, *args)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    monkeypatch.setattr(RunFolder, "finish", limited)
    assert invoke(monkeypatch, "run", "digits-fedaws", "rounds=1", "--out", str(tmp_path / "run")) == 2
    assert str(tmp_path / "run" / "model") in said(capsys)
    monkeypatch.setattr(RunFolder, "finish", finish)
    assert so.resume(tmp_path / "run").summary["rounds"] == 1
