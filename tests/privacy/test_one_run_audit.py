"""One run with canaries: what it shows stays under the claim, and noise that is missing is found out."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy.stats import binom
from typer.testing import CliRunner

import spreadout as so
from spreadout.cli.main import app
from spreadout.core.state import ServerState
from spreadout.core.types import Params
from spreadout.federated import central
from spreadout.federated.federation import Federation
from spreadout.privacy.mechanism import GaussianMechanism, clip_norm
from spreadout.privacy.one_run_audit import OneRun, audited, chance_of, least_epsilon
from spreadout.runs.build import build_federation
from spreadout.runs.canary_runs import of_clients, of_examples, of_sums
from tiny import tiny, tiny_data
from toys import several_classes

CANARIES = 400


def test_guesses_are_as_likely_as_a_coin_that_epsilon_bends() -> None:
    assert chance_of(100, 100, 70, 0.0, 0.0) == pytest.approx(float(binom.sf(69, 100, 0.5)))
    assert chance_of(100, 100, 100, 1.0, 0.0) == pytest.approx((np.e / (1 + np.e)) ** 100)
    assert chance_of(100, 100, 70, 0.5, 1e-3) > chance_of(100, 100, 70, 0.5, 0.0)  # δ excuses some
    assert chance_of(100, 0, 0, 1.0, 1e-6) == 1.0
    shown = least_epsilon(1000, 1000, 900, 1e-6, 1e-3)
    assert 1.5 < shown < np.log(9)  # nine of ten are right at ε = log 9, but for chance
    assert chance_of(1000, 1000, 900, shown, 1e-6) == pytest.approx(1e-3, rel=0.01)
    assert least_epsilon(1000, 1000, 500, 1e-6, 1e-3) == 0.0


def test_randomised_response_is_judged_fairly() -> None:
    """A score that tells the coin with probability e/(1 + e) has ε = 1, and no more is shown of it."""
    draw = np.random.default_rng(0)
    there = draw.integers(0, 2, 5000).astype(bool)
    told = np.where(draw.random(5000) < np.e / (1 + np.e), there, ~there) + 1e-3 * draw.random(5000)
    found = audited(told, there, rounds=1, claimed=1.0, delta=1e-9)
    assert 0.6 < found.shown <= 1.0
    assert not found.refutes
    assert audited(told, there, rounds=1, claimed=0.3, delta=1e-9).refutes


def federation(noise: float, **clients: object) -> Federation:
    values = {
        "rounds": 5,
        "model": {"hidden": [], "dim": 40},
        "method": {"name": "fedss", "negatives": 2},
        "clients": {"per_round": "all", **clients},
        "privacy": {"model": "central", "clip": 0.3, "noise": noise},
        "chosen": [],
    }
    return build_federation(so.Experiment.of(values), several_classes(), torch.device("cpu"))


def claimed_of(found: OneRun, noise: float) -> OneRun:
    """The same guesses beside the claim of another noise."""
    claim = central.rounds_of(federation(noise)).spent(noise, 5, 1e-6).epsilon
    return dataclasses.replace(found, claimed=claim)


@pytest.mark.parametrize("clients", [{}, {"per_round": 3}], ids=["everyone", "poisson"])
def test_noise_on_the_server_keeps_its_claim(clients: dict[str, object]) -> None:
    found = of_sums(federation(1.0, **clients), CANARIES)
    assert found.canaries == CANARIES
    assert found.claimed is not None
    assert 0.1 < found.shown <= found.claimed  # an attack, and not a shrug


def test_too_little_noise_on_the_server_is_found_out() -> None:
    assert claimed_of(of_sums(federation(0.3), CANARIES), 5.0).refutes
    assert not claimed_of(of_sums(federation(5.0), CANARIES), 5.0).refutes


def test_rows_without_noise_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise on the dense part alone: of a canary in a row it is plain whether it is there."""
    sound = central._lazy_step_

    def unpaid(f: Federation, state: ServerState, name: str, rate: float, *rest: object) -> None:
        sound(f, state, name, rate, *rest)  # type: ignore[arg-type]
        state.central[f"paid/{name}"][:] = state.central[f"owed/{name}"]

    monkeypatch.setattr(central, "_lazy_step_", unpaid)
    assert claimed_of(of_sums(federation(20.0), CANARIES), 20.0).refutes


def test_noise_on_clients_keeps_its_claim_and_too_little_is_found_out() -> None:
    mechanism = GaussianMechanism(clip=0.3, noise=4.0)
    draw = torch.Generator().manual_seed(0)

    def noised(by: float):  # type: ignore[no-untyped-def]
        def release(change: Params) -> Params:
            sent = clip_norm(change, 0.3).dense["w"]
            return Params({"w": sent + by * 0.3 * torch.randn(3, generator=draw)}, {})

        return release

    found = of_clients(mechanism, noised(4.0), CANARIES, 100)
    assert found.claimed is not None
    assert 0.1 < found.shown <= found.claimed
    loud = GaussianMechanism(clip=0.3, noise=20.0)
    assert of_clients(loud, noised(0.4), CANARIES, 100).refutes


def examples_with(noise: float) -> Federation:
    privacy = {"model": "example", "clip": 0.5, "noise": noise}
    clients = {"batch": 100, "local_steps": 5, "lr": 0.1}
    experiment = tiny(rounds=4, clients=clients, privacy=privacy)
    return build_federation(experiment, tiny_data(), torch.device("cpu"))


def test_noise_on_examples_keeps_its_claim_and_too_little_is_found_out() -> None:
    found = of_examples(examples_with(1.0), CANARIES)
    assert found.canaries == CANARIES
    assert found.claimed is not None
    assert 0.1 < found.shown <= found.claimed
    loud, quiet = (of_examples(examples_with(noise), CANARIES) for noise in (5.0, 0.2))
    assert loud.claimed is not None
    assert loud.shown <= loud.claimed < quiet.shown  # a client that adds less than it says is found out


def test_the_command_shows_it_beside_the_claim() -> None:
    pytest.importorskip("cryptography")
    settings = [
        "privacy.model=central",
        "privacy.clip=1",
        "privacy.noise=5",
        "rounds=3",
        "method.merge=sum",
    ]
    told = CliRunner().invoke(app, ["audit", "digits-fedaws", *settings, "--canary", "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)["one_run"]
    assert found["shown"] <= found["claimed"]
    told = CliRunner().invoke(app, ["audit", "digits-fedaws", *settings, "--canary", "--trials", "200"])
    assert "guesses about 200 canaries show ε ≥" in told.output
