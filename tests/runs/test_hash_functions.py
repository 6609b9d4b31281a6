"""FedMLH's hash functions are a part of the trained model: other versions may draw others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import spreadout as so
from spreadout.core.hashing import HashFamily
from spreadout.runs.checkpoint import tensors_of
from toys import HASHED, label_sets, label_sets_config

WEIGHTS = "model/weights.safetensors"


def short(**run: Any) -> so.Experiment:
    return label_sets_config(HASHED, rounds=2, eval={"references": False}, run=run)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hashed") / "run"
    so.run(short(), data=label_sets(), out=folder, progress=False)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def passing_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that passes over the first draw, as ours does where it is unlucky."""

    def second(ids: int, tables: int, buckets: int, *, seed: int, use: str) -> HashFamily:
        return HashFamily.drawn(tables, buckets, seed=seed + 1, use=use)

    monkeypatch.setattr(HashFamily, "telling_apart", second)


def without_functions(folder: Path) -> Path:
    """As earlier versions wrote it."""
    tensors = load_file(folder / WEIGHTS)
    del tensors["scoring.hashes"]
    save_file(tensors, folder / WEIGHTS)
    (folder / "SHA256SUMS").unlink()
    return folder


def asked() -> torch.Tensor:
    held = label_sets().test
    return held.inputs["x"].take(torch.arange(len(held)))


def test_the_model_file_has_them(folder: Path) -> None:
    (a, b), family = load_file(folder / WEIGHTS)["scoring.hashes"], so.load(folder).model.hashes  # type: ignore[attr-defined]
    assert torch.equal(a, family.a)
    assert torch.equal(b, family.b)
    assert len(a) == HASHED["hash_tables"]


@pytest.mark.usefixtures("passing_over")
def test_a_model_answers_by_its_own_whatever_is_drawn_today(finished: Path, folder: Path) -> None:
    first = HashFamily.drawn(3, 8, seed=0, use="labels")
    model = so.load(folder)
    assert torch.equal(model.model.hashes.a, first.a)  # type: ignore[attr-defined]
    logits = model.model.embed(_params(model), {"x": asked()})
    by_hand = torch.nn.functional.logsigmoid(logits)
    places = first(torch.arange(model.class_count))
    want = torch.stack([one[:, at] for one, at in zip(by_hand, places, strict=True)]).mean(0)
    torch.testing.assert_close(model.scores(asked()), want)


def _params(model: so.Predictor) -> Any:
    from spreadout.core.types import Params

    return Params(model.state.dense, {})


def test_an_older_model_is_asked_if_the_first_draw_was_its_own(folder: Path) -> None:
    right = so.load(folder).scores(asked())
    assert torch.equal(so.load(without_functions(folder)).scores(asked()), right)


@pytest.mark.usefixtures("passing_over")
def test_an_older_model_is_refused_if_it_may_have_been_trained_with_others(folder: Path) -> None:
    with pytest.raises(so.UserError, match=r"weights.safetensors: its hash functions .* run it again"):
        so.load(without_functions(folder))


@pytest.mark.parametrize("of", ["another run", "no functions"])
def test_functions_that_cannot_be_its_own_are_refused(of: str, folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    kept = tensors["scoring.hashes"]
    tensors["scoring.hashes"] = kept[:, :2].contiguous() if of == "another run" else -kept
    save_file(tensors, folder / WEIGHTS)
    (folder / "SHA256SUMS").unlink()
    with pytest.raises(so.UserError, match=r"scoring.hashes is|hash functions are out of range"):
        so.load(folder)


def cut_short(folder: Path) -> Path:
    with pytest.raises(so.Interrupted):
        so.run(short(), data=label_sets(), out=folder, stop=lambda: True, progress=False)
    return folder


def test_a_run_that_is_resumed_ends_as_it_would_have(finished: Path, tmp_path: Path) -> None:
    so.resume(cut_short(tmp_path / "cut"), data=label_sets(), progress=False)
    ended, whole = (load_file(path / WEIGHTS) for path in (tmp_path / "cut", finished))
    assert all(torch.equal(ended[name], whole[name]) for name in whole)


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_is_not_resumed_with_other_functions(
    kept: bool, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        if not kept:
            older.setattr("spreadout.runs.checkpoint.tensors_of", _before_they_were_kept)
        cut_short(tmp_path / "cut")
    request.getfixturevalue("passing_over")
    with pytest.raises(so.UserError, match=r"checkpoint: .*hash functions.*--force"):
        so.resume(tmp_path / "cut", data=label_sets(), progress=False)


def _before_they_were_kept(state: Any) -> dict[str, torch.Tensor]:
    return {name: one for name, one in tensors_of(state).items() if "hashes" not in name}
