"""The benchmark of noise: every cell is tuned alike and keeps to its budget."""

import math

import pytest
import torch

import spreadout as so
from benchmarks.privacy import trivial, utility
from spreadout.config.effect import idle_keys
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.renyi import renyi_epsilon

DIGITS = {"source": "digits", "partition": {"name": "iid", "clients": 7}}
CELLS = list(utility.cells(list(utility.ARMS)))


def test_every_cell_has_as_many_points_and_every_point_is_a_config() -> None:
    assert len(CELLS) == 7 * (1 + 2 * 4)
    for cell in CELLS:
        method, _ = utility.ARMS[cell[0]][cell[1]]
        points = utility.points(cell[0], method, cell[2], cell[3])
        assert len(set(points)) == len(utility.RATES) == 4
        found = utility.job_of(cell, points[0], 0, "validation").experiment()
        assert not idle_keys(found)
        assert (found.privacy is None) == (cell[3] is None)
        if found.privacy is not None:
            assert found.privacy.model == cell[2]


@pytest.mark.parametrize("epsilon", utility.EPSILONS)
def test_noise_is_for_the_budget_of_the_cell(epsilon: float) -> None:
    for name, rounds in utility.ROUNDS.items():
        cohort, population = utility.COHORT.get(name, (1, 1))
        central = utility.noise_for(name, "central", epsilon)
        spent = renyi_epsilon(central, cohort / population, rounds, utility.DELTA)
        if cohort == population:
            spent = epsilon_of(central, rounds, utility.DELTA, sensitivity=1.0)
        assert 0.99 * epsilon < spent <= epsilon
        assert utility.noise_for(name, "local", epsilon) > central


def test_counts_of_labels_are_those_of_a_loop_over_clients() -> None:
    train = so.load_data(so.DataConfig.model_validate(DIGITS)).train
    slow = torch.zeros(train.classes, dtype=torch.float64)
    for client in range(train.clients):
        label = train.view(client).columns["y"]
        counts = torch.bincount(label.take(torch.arange(len(label))), minlength=train.classes).double()
        slow += counts / counts.norm()
    assert torch.allclose(trivial.unit_counts(train), slow)


@pytest.mark.parametrize("epsilon", utility.EPSILONS)
def test_a_noised_count_spends_the_epsilon_of_its_cell(epsilon: float) -> None:
    central, local = (trivial.noise_of(model, epsilon, 400) for model in ("central", "local"))
    for each, sensitivity in ((central, 1.0), (local / math.sqrt(400), 2.0)):
        assert 0.99 * epsilon < epsilon_of(each, 1, utility.DELTA, sensitivity) <= epsilon


def test_a_guess_scores_what_random_rankings_do() -> None:
    draw, labels = torch.Generator().manual_seed(0), so.Ragged.from_lists([[1], [0, 3], [], [4, 2, 1]])
    ranked = torch.stack([torch.randperm(5, generator=draw) for _ in range(4 * 3000)]).view(3000, 4, 5)
    first = sum(so.metrics.precision_at(one, labels, 1) for one in ranked) / 3000
    found = sum(so.metrics.recall_at(one, labels, 2) for one in ranked) / 3000
    assert trivial.guess(labels, 5, "P@1") == pytest.approx(first, abs=2)
    assert trivial.guess(labels, 5, "R@2") == pytest.approx(found, abs=2)
