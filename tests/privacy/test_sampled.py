"""Accounting for clients that are drawn at random, and plans made with it."""

import json

import pytest
from typer.testing import CliRunner

from spreadout.cli.main import app
from spreadout.core.errors import UserError
from spreadout.privacy import sampled
from spreadout.privacy.accounting import epsilon_of, least_noise
from spreadout.runs.plan_privacy import Setting, plans

SETTING = Setting(rounds=1000, cohort=100, population=10_000, parameters=10_000)


@pytest.mark.parametrize("releases", [1, 20, 5000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 100.0])
def test_the_least_noise_spends_the_budget_and_no_more(epsilon: float, releases: int) -> None:
    noise = least_noise(epsilon, releases, 1e-6)
    assert epsilon * (1 - 1e-5) <= epsilon_of(noise, releases, 1e-6) <= epsilon
    assert least_noise(epsilon, 0, 1e-6) == 0.0


def test_sampled_rounds_cost_what_two_accountants_say() -> None:
    """q = 0.01, σ = 1, 1,000 rounds, δ = 1e-6: 2.125 by PLD, 2.437 by RDP."""
    pytest.importorskip("dp_accounting")
    found = sampled.poisson_epsilon(1.0, 0.01, 1000, 1e-6)
    assert found.pld == pytest.approx(2.125, abs=5e-4)
    assert found.rdp == pytest.approx(2.437, abs=5e-4)
    assert found.epsilon == found.pld
    whole = sampled.poisson_epsilon(4.0, 1.0, 10, 1e-6)  # nobody is left out: the exact curve
    assert whole.pld == pytest.approx(epsilon_of(4.0, 10, 1e-6, sensitivity=1.0), rel=1e-3)


def test_the_least_sampled_noise_is_the_one_that_gives_the_budget() -> None:
    pytest.importorskip("dp_accounting")
    noise = sampled.least_poisson_noise(2.0, 0.1, 20, 1e-6)
    assert 2.0 * (1 - 2 * sampled.CLOSE) < sampled.poisson_epsilon(noise, 0.1, 20, 1e-6).epsilon <= 2.0
    assert sampled.least_poisson_noise(1e4, 0.1, 20, 1e-6) == sampled.LEAST  # no less is looked at
    with pytest.raises(UserError, match="needs noise above"):
        sampled.least_poisson_noise(1e-9, 1.0, 1000, 1e-12)


def test_local_noise_is_planned_for_whoever_is_drawn_most_often() -> None:
    (local,) = plans(SETTING, 8.0, 1e-6, central=False)
    assert 15 < local.releases < 40  # ten in the mean, of ten thousand clients
    assert epsilon_of(local.noise, local.releases, 1e-6) == pytest.approx(8.0, rel=1e-4)
    assert local.on_the_mean == pytest.approx(local.noise / 10)
    assert local.signal_to_noise == pytest.approx(1 / (local.on_the_mean * 100))


def test_the_command_plans_from_numbers_or_from_a_config() -> None:
    pytest.importorskip("dp_accounting")
    numbers = ["--rounds", "20", "--cohort", "100", "--population", "1000", "--parameters", "400"]
    told = CliRunner().invoke(app, ["plan-privacy", "--epsilon", "4", *numbers, "--json"])
    assert told.exit_code == 0, told.output
    local, central = json.loads(told.output)["plans"]
    assert central["epsilon"] <= 4.0 <= central["also"]
    assert central["on_the_mean"] < local["on_the_mean"]  # what trusting the server buys
    told = CliRunner().invoke(app, ["plan-privacy", "digits-fedaws", "rounds=3", "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)["setting"]
    assert (found["rounds"], found["cohort"], found["population"]) == (3, 10, 10)
    assert found["clip"] > 0
    assert found["parameters"] > 1000


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--rounds", "5"], "--cohort: is missing"),
        (["--epsilon", "0"], "--epsilon 0: must lie"),
        (["--delta", "1"], "--delta 1: must lie"),
        (["--rounds", "5", "--cohort", "5", "--population", "4", "--parameters", "1"], "only 4 clients"),
    ],
)
def test_what_is_missing_or_wrong_is_named(options: list[str], word: str) -> None:
    told = CliRunner().invoke(app, ["plan-privacy", *options])
    assert told.exit_code != 0
    assert word in str(told.exception or told.output)


def test_without_the_library_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("spreadout.privacy.sampled.importlib.import_module", missing)
    with pytest.raises(UserError, match=r"spreadout\[privacy\]"):
        sampled.poisson_epsilon(1.0, 0.01, 10, 1e-6)
