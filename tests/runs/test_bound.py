"""A checkpoint goes on with the run it is of: with its config, and as it was written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spreadout as so
from spreadout.core.checksums import sealed
from tiny import result_of, tiny, tiny_data

DATA = tiny_data()


def resume(folder: Path) -> so.Result:
    return so.resume(folder, data=DATA, device="cpu")


@pytest.mark.parametrize(
    ("changes", "section"),
    [
        ({"clients": {"local_steps": 1, "lr": 0.2, "batch": 32, "per_round": "all"}}, r"\[clients\]"),
        ({"server": {"optimizer": "sgd", "lr": 0.5}}, r"\[server\]"),
        ({"method": {"name": "fedaws", "prior": 0, "strength": 3}}, r"\[method\]"),
        ({"seed": 5}, "its seed or other single keys"),
    ],
)
def test_a_checkpoint_of_a_run_with_another_config_is_refused(
    stopped: Path, tmp_path: Path, changes: dict[str, Any], section: str
) -> None:
    other = tmp_path / "other"
    with pytest.raises(so.Interrupted):
        so.run(tiny(**changes), data=DATA, out=other, device="cpu", stop=lambda: True)
    for name in ("checkpoint", "metrics.jsonl", "requests.jsonl"):  # they fit each other
        old, new = other / name, stopped / name
        shutil.rmtree(old) if old.is_dir() else old.unlink()
        shutil.copytree(new, old) if new.is_dir() else shutil.copy(new, old)
    said = rf"checkpoint: was trained with another config than config.toml \({section} differ"
    with pytest.raises(so.UserError, match=said):
        resume(other)


def test_rounds_may_be_added_and_a_run_may_be_evaluated_and_saved_in_another_way(
    stopped: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    more = tiny(
        rounds=4,
        name="longer",
        eval={"every": 2, "metrics": ["P@1"], "references": False},
        run={"checkpoint_every": 3, "log_requests": True},
    )
    own = so.Experiment.load(folder / "config.toml")
    chosen = own.model_copy(
        update={name: getattr(more, name) for name in ("rounds", "name", "eval", "run")}
    )
    (folder / "config.toml").write_text(chosen.to_toml())
    (folder / "SHA256SUMS").unlink()  # the change is meant
    assert resume(folder).summary["rounds"] == 4


def test_the_binding_is_written_again_by_a_run_that_goes_on(stopped: Path, tmp_path: Path) -> None:
    """A checkpoint that does not say what it was trained with, as those of earlier versions, is used."""
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    pointer = folder / "checkpoint" / "state.json"
    old = json.loads(pointer.read_text())
    bound = old.pop("config")
    pointer.write_text(json.dumps(sealed({k: v for k, v in old.items() if k != "check"})))
    resume(folder)
    assert json.loads(pointer.read_text())["config"] == bound
    so.run(tiny(), data=DATA, out=tmp_path / "whole", device="cpu")
    assert result_of(folder) == result_of(tmp_path / "whole")


def _put(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    def edit(pointer: dict[str, Any]) -> None:
        *path, last = key.split(".")
        for part in path:
            pointer = pointer[part]
        pointer[last] = value

    return edit


RESEALED: dict[str, Callable[[dict[str, Any]], object]] = {
    "tensors of another folder": _put("tensors", "../../other/checkpoint/state-00000001.safetensors"),
    "tensors of another round": _put("tensors", "state-00000002.safetensors"),
    "a round below zero": _put("round", -1),
    "a round that is no number": _put("round", "1"),
    "another round": _put("round", 7),
    "no round": lambda pointer: pointer.pop("round"),
    "a tensor that is not there": lambda pointer: pointer["order"].append("dense:junk"),
    "a tensor twice": lambda pointer: pointer["order"].append(pointer["order"][0]),
    "a tensor less": lambda pointer: pointer["order"].pop(),
    "a part that no state has": lambda pointer: pointer["order"].append("junk:x"),
    "traffic of a kind that there is not": _put("traffic.junk", 1),
    "traffic below zero": _put("traffic.dense_up", -1),
    "refusals that are no numbers": _put("refused.x", "many"),
    "a log of another name": _put("logs.passwords", {"bytes": 1, "sha256": "0" * 64}),
    "a log of no length": _put("logs", {"metrics.jsonl": {"sha256": "0" * 64}}),
    "no extra": _put("extra", {}),
    "seconds that are text": _put("extra.seconds", "1"),
    "parts that are no list": _put("extra.own", "encoder"),
    "a list for all": lambda pointer: pointer.update(extra=[]),
}


@pytest.mark.parametrize("name", RESEALED)
def test_a_pointer_that_was_edited_and_sealed_again_is_refused_in_one_line(
    stopped: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder)
    shutil.copytree(stopped, tmp_path / "other")  # what a path could lead to
    path = folder / "checkpoint" / "state.json"
    pointer = json.loads(path.read_text())
    RESEALED[name](pointer)
    pointer.pop("check")
    path.write_text(json.dumps(sealed(pointer)))
    with pytest.raises(so.UserError) as told:
        resume(folder)
    assert str(told.value).startswith(f"{folder}/checkpoint")
    assert "run it again with --force" in str(told.value)
    assert (folder / "checkpoint" / "state-00000001.safetensors").is_file()  # nothing is lost
