"""An attack shows no more than is claimed, and would show it if the noise were too small."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")

from spreadout.cli.main import app
from spreadout.core.types import Params
from spreadout.privacy.canary import Shown, attack, least_epsilon
from spreadout.privacy.keystream import KeyStream
from spreadout.privacy.mechanism import GaussianMechanism, clip_norm
from spreadout.privacy.release import released

TRIALS = 600


def attacked(claimed: GaussianMechanism, real: GaussianMechanism, key: int = 1) -> Shown:
    """The claim of one mechanism, tried on what another releases."""
    words = KeyStream(bytes([key]) * 32)
    return attack(claimed, lambda change: released(change, real, words), TRIALS)


@pytest.mark.parametrize("noise", [0.7, 5.0])
def test_a_bound_does_not_exceed_the_claim(noise: float) -> None:
    mechanism = GaussianMechanism(clip=0.3, noise=noise, delta=1e-5)
    found = attacked(mechanism, mechanism)
    assert found.claimed is not None
    assert found.shown < found.claimed
    if noise < 3:
        assert found.shown > 0.1 * found.claimed  # it is an attack, and not a shrug


def test_too_little_noise_a_loose_clip_or_none_is_found_out() -> None:
    claimed = GaussianMechanism(clip=0.3, noise=5.0, delta=1e-5)
    quieter = GaussianMechanism(clip=0.3, noise=1.0, delta=1e-5)
    assert attacked(claimed, quieter).refutes
    longer = GaussianMechanism(clip=3.0, noise=0.5, delta=1e-5)  # the same noise on a longer update
    assert attacked(claimed, longer).refutes
    assert attack(claimed, lambda change: clip_norm(change, 0.3), TRIALS).refutes
    assert not attack(GaussianMechanism(clip=1, noise=0), lambda change: change, 100).refutes


def test_worlds_that_are_alike_show_nothing() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 4000))
    assert least_epsilon(one, other, 1e-6) < 0.1
    assert least_epsilon(one, other + 50, 1e-6) > 5
    assert least_epsilon(one + 50, other, 1e-6) > 5


def test_the_command_tries_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["privacy.clip=1", "privacy.noise=5", "--canary", "--trials", "300"]
    told = CliRunner().invoke(app, ["audit", "digits-fedaws", *settings, "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)
    assert found["shown"] < found["claimed"]
    told = CliRunner().invoke(app, ["audit", "digits-fedaws", "--canary"])
    assert "no [privacy] with noise" in str(told.exception or told.output)

    def unnoised(change: Params, mechanism: GaussianMechanism, words: object) -> Params:
        return clip_norm(change, mechanism.clip)

    monkeypatch.setattr("spreadout.runs.audit.released", unnoised)
    told = CliRunner().invoke(app, ["audit", "digits-fedaws", *settings])
    assert told.exit_code == 1
    assert "MORE than is claimed" in told.output
