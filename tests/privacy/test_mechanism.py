import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

import spreadout as so
from spreadout.core import randomness
from spreadout.core.types import Params
from spreadout.privacy.accounting import delta_of, epsilon_of
from spreadout.privacy.mechanism import GaussianMechanism, clip_norm, simulate_noise_


@pytest.mark.parametrize(("mu", "epsilon"), [(0.5, 0.3), (1.0, 1.0), (2.0, 3.0)])
def test_delta_equals_the_hockey_stick_integral(mu: float, epsilon: float) -> None:
    """δ(ε) = ∫ max(0, p − e^ε q) for two unit normals μ apart, integrated numerically."""
    integrand = lambda x: max(0.0, norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x))  # noqa: E731
    integral, _ = quad(integrand, -10, 15, limit=500, points=[epsilon / mu + mu / 2])
    assert delta_of(epsilon, mu) == pytest.approx(integral, abs=1e-9)


@given(st.floats(0.3, 50), st.integers(1, 10_000), st.floats(1e-9, 0.1))
def test_epsilon_is_the_least_that_meets_delta(noise: float, releases: int, delta: float) -> None:
    epsilon = epsilon_of(noise, releases, delta)
    mu = 2 * math.sqrt(releases) / noise
    assert delta_of(epsilon, mu) <= delta * (1 + 1e-4)
    if epsilon > 1e-6:
        assert delta_of(epsilon * 0.99, mu) > delta


def test_epsilon_at_its_ends() -> None:
    assert epsilon_of(0.0, 3, 1e-6) == math.inf
    assert epsilon_of(1.0, 0, 1e-6) == 0.0
    assert epsilon_of(1e9, 1, 1e-6) == 0.0
    assert epsilon_of(1.0, 10, 1e-6) < epsilon_of(1.0, 20, 1e-6) < epsilon_of(0.5, 20, 1e-6)


def test_clipping_bounds_the_whole_update_and_keeps_its_direction() -> None:
    change = Params({"w": torch.tensor([3.0, 0.0])}, {"classes": torch.tensor([[0.0, 4.0]])})
    clipped = clip_norm(change, 1.0)
    torch.testing.assert_close(clipped.dense["w"], torch.tensor([0.6, 0.0]))
    torch.testing.assert_close(clipped.rows["classes"], torch.tensor([[0.0, 0.8]]))
    torch.testing.assert_close(clip_norm(change, 10.0).dense["w"], change.dense["w"])


def test_noise_has_the_promised_deviation_and_depends_on_round_and_client() -> None:
    mechanism = GaussianMechanism(clip=2.0, noise=1.5)
    draws = []
    for round, client in [(0, 0), (0, 1), (1, 0)]:
        dense, rows = {"w": torch.zeros(50_000)}, {"classes": torch.zeros(10, 5)}
        simulate_noise_(dense, rows, mechanism, seed=0, round=round, client=client)
        draws.append(dense["w"])
        assert float(dense["w"].std()) == pytest.approx(3.0, rel=0.02)
        assert float(rows["classes"].abs().min()) > 0
    assert abs(float(torch.corrcoef(torch.stack(draws))[0, 1])) < 0.02
    assert abs(float(torch.corrcoef(torch.stack(draws))[0, 2])) < 0.02


def test_a_private_run_reports_what_it_spent() -> None:
    settings = [
        "rounds=4",
        "clients.per_round=5",
        "privacy.clip=0.5",
        "privacy.noise=2.0",
        "privacy.delta=1e-5",
    ]
    result = so.run(so.Experiment.load("digits-fedaws", settings))
    private = result.summary["privacy"]
    most = private["most_releases_by_a_client"]
    assert 2 <= most <= 4  # four cohorts of five out of ten clients
    assert private["epsilon"] == pytest.approx(epsilon_of(2.0, most, 1e-5))


@pytest.mark.parametrize("noise", [5e-324, 1e-30, 1e-4, 0.1, 1.0, 3.4e38])
@pytest.mark.parametrize("delta", [5e-324, 1e-45, 1e-6, 0.9999999])
def test_epsilon_of_any_noise_is_a_number(noise: float, delta: float) -> None:
    found = [epsilon_of(noise, releases, delta) for releases in (1, 1000, 10**9)]
    assert found == sorted(found)  # more releases promise no more
    assert found[0] >= 0


def test_simulated_clients_do_not_repeat_each_others_noise() -> None:
    """Where noise came from 32 bits of a key, two of some hundred thousand clients had the same."""
    place: dict[int, tuple[int, int]] = {}
    alike = []
    for round in range(300):
        for client in range(1000):
            low = (randomness.key(0, "noise", round, client) >> 1) & 0xFFFFFFFF
            if low in place:
                alike.append((place[low], (round, client)))
            place[low] = round, client
    assert alike

    def noise(where: tuple[int, int]) -> torch.Tensor:
        value = torch.zeros(100)
        mechanism = GaussianMechanism(clip=1.0, noise=1.0)
        simulate_noise_({"w": value}, {}, mechanism, seed=0, round=where[0], client=where[1])
        return value

    assert not any(torch.equal(noise(one), noise(other)) for one, other in alike)


def test_a_budget_ends_training_cleanly(tmp_path: Path) -> None:
    budget = epsilon_of(5.0, 3, 1e-6) * 1.001
    settings = ["rounds=9", "eval.every=4", "privacy.clip=0.5", "privacy.noise=5"]
    e = so.Experiment.load("digits-fedaws", [*settings, f"privacy.epsilon={budget}"])
    result = so.run(e, out=tmp_path / "run")
    private = result.summary["privacy"]
    assert result.summary["rounds"] == private["most_releases_by_a_client"] == 3
    assert result.history[-1]["round"] == 3  # what is left is what was scored
    assert private["budget_is_spent"]
    assert private["epsilon"] <= budget
    assert so.resume(tmp_path / "run").summary["rounds"] == 3
    with pytest.raises(so.UserError, match=r"privacy\.epsilon = 0\.1: one round"):
        so.run(so.Experiment.load("digits-fedaws", [*settings, "privacy.epsilon=0.1"]))
