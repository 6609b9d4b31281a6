"""What rows that moved give away: with fixed negatives, more than requests do; under noise, nothing."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import spreadout as so
from spreadout.cli.main import app
from spreadout.core.rows import Rows
from spreadout.privacy.update_audit import moved


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty clients with five of 120 classes each, hidden among twenty others."""
    folder = tmp_path_factory.mktemp("moved")
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(120, 16))
    y = np.concatenate([np.repeat(np.sort(rng.choice(120, 5, replace=False)), 6) for _ in range(20)])
    x = (mean[y] + 0.5 * rng.normal(size=(len(y), 16))).astype(np.float32)
    client = np.repeat(np.arange(20), 30)
    np.savez(folder / "data.npz", x=x, y=y, client=client, x_test=x[:9], y_test=y[:9])
    e = {
        "chosen": [],
        "data": {"source": "npz", "path": str(folder / "data.npz"), "partition": "given"},
        "model": {"encoder": "mlp", "hidden": [32], "dim": 16},
        "method": {"name": "fedss", "sampled_rows": 25, "draw": "fixed"},
        "clients": {"local_steps": 3, "batch": 30, "lr": 0.1},
    }
    (folder / "config.toml").write_text(so.Experiment.of(e).to_toml())
    return folder / "config.toml"


def audited(config: Path, *more: str) -> list[dict[str, float]] | dict[str, float]:
    told = CliRunner().invoke(app, ["audit", str(config), "--json", *more])
    assert told.exit_code == 0, told.output
    return json.loads(told.output)  # type: ignore[no-any-return]


def test_moved_rows_tell_more_than_requests_and_noise_hides_them(config: Path) -> None:
    requests = audited(config, "--rounds", "1")
    assert isinstance(requests, list)
    plain, quiet = audited(config, "--updates"), audited(config, "--updates", *NOISED)
    assert isinstance(plain, dict)
    assert isinstance(quiet, dict)
    assert plain["chance"] == pytest.approx(5 / 25)
    assert plain["found"] > requests[0]["found"] + 0.1
    assert quiet["found"] < 0.35  # the best of three guesses by chance


NOISED = ["privacy.clip=0.1", "privacy.noise=5", "method.weighting=uniform", "method.merge=mean"]


def test_guesses_are_the_rows_that_stand_out() -> None:
    values = torch.zeros(4, 3)
    values[2] = 5.0
    found = moved([(Rows(torch.tensor([3, 5, 7, 9]), values), np.array([7]))])
    assert (found.found, found.chance, found.clients) == (1.0, 0.25, 1)
    nobody = moved([(Rows(torch.tensor([3]), torch.ones(1, 2)), np.array([], dtype=np.int64))])
    assert nobody.clients == 0


def test_a_folder_has_no_updates_to_look_at(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["audit", str(tmp_path), "--updates"])
    assert told.exit_code != 0
