"""What rounds of noise on a sum cost, by how clients are drawn; and a clip that finds its own place."""

import math

import pytest
import torch

from spreadout.privacy import adaptive_clip, sampled
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.central import Rounds
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.privacy.renyi import renyi_epsilon

POISSON = Rounds("poisson", 100, 10_000)
FIXED = Rounds("fixed-size", 100, 10_000)


def test_poisson_cohorts_cost_what_two_accountants_say() -> None:
    """q = 0.01, σ = 1, 1,000 rounds, δ = 1e-6."""
    pytest.importorskip("dp_accounting")
    found = POISSON.spent(1.0, 1000, 1e-6)
    assert found.pld == pytest.approx(2.125, abs=5e-4)
    assert found.rdp == pytest.approx(2.437, abs=5e-4)
    assert POISSON.at_most(1.0, 1000, 1e-6) == pytest.approx(2.437, abs=2e-3)


@pytest.mark.parametrize(
    ("noise", "rate", "rounds"), [(1.0, 0.01, 1000), (2.0, 0.3, 50), (0.8, 0.02, 9)]
)
def test_the_quick_accountant_is_the_library_s_at_whole_orders(
    noise: float, rate: float, rounds: int
) -> None:
    pytest.importorskip("dp_accounting")
    ours, theirs = renyi_epsilon(noise, rate, rounds, 1e-6), sampled._renyi(noise, rate, rounds, 1e-6)
    assert theirs * (1 - 1e-6) <= ours <= theirs * 1.05  # it has orders between


def test_whoever_is_there_always_has_the_exact_curve() -> None:
    everyone = Rounds("everyone", 10, 10)
    assert everyone.spent(4.0, 10, 1e-6).epsilon == epsilon_of(4.0, 10, 1e-6, sensitivity=1.0)
    assert everyone.at_most(4.0, 0, 1e-6) == 0.0
    assert everyone.spent(0.0, 1, 1e-6).epsilon == math.inf


def test_fixed_sizes_are_accounted_for_as_such() -> None:
    """A client is replaced, which moves the sum by two clips: more is spent, but less than by no draw."""
    pytest.importorskip("dp_accounting")
    spent = FIXED.spent(2.0, 100, 1e-6).epsilon
    assert POISSON.at_most(2.0, 100, 1e-6) < spent < epsilon_of(2.0, 100, 1e-6)
    assert "replaced" in FIXED.adjacency
    assert "replaced by nothing" in POISSON.adjacency


def test_without_the_library_renyi_alone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "there", lambda: False)
    assert POISSON.accountant == "Rényi"
    assert POISSON.spent(1.0, 1000, 1e-6).epsilon == POISSON.at_most(1.0, 1000, 1e-6)


def test_as_many_rounds_are_allowed_as_the_budget_has_room_for() -> None:
    everyone = Rounds("everyone", 10, 10)
    allowed = everyone.allowed(10.0, 2.0, 1e-6, 1000)
    spent = [everyone.spent(10.0, rounds, 1e-6).epsilon for rounds in (allowed, allowed + 1)]
    assert spent[0] <= 2.0 < spent[1]
    assert everyone.allowed(10.0, 2.0, 1e-6, 3) == 3
    assert everyone.allowed(0.1, 2.0, 1e-6, 3) == 0


def test_count_and_sum_together_cost_what_the_noise_says() -> None:
    mechanism = GaussianMechanism(model="central", clip=1.0, noise=1.3, clip_quantile=0.5)
    for expected in (3.0, 100.0):
        on_sum = adaptive_clip.sum_noise(mechanism, expected)
        on_count = adaptive_clip.count_noise(mechanism, expected)
        assert 1.3 < on_sum < 1.3 * 1.04
        assert (on_sum**-2 + (2 * on_count) ** -2) ** -0.5 == pytest.approx(1.3)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_clip_goes_to_the_quantile_of_the_lengths(quantile: float) -> None:
    draw = torch.Generator().manual_seed(0)
    mechanism = GaussianMechanism(model="central", clip=50.0, noise=1.0, clip_quantile=quantile)
    lengths, clip = torch.rand(2000, generator=draw).double(), mechanism.clip
    for noise in torch.randn(200, generator=draw).tolist():
        clip = adaptive_clip.next_clip(mechanism, clip, lengths, 2000.0, noise)
    assert clip == pytest.approx(quantile, abs=0.1)
    fixed = mechanism.model_copy(update={"clip_quantile": None})
    assert adaptive_clip.next_clip(fixed, 0.7, lengths, 2000.0, 0.0) == 0.7
