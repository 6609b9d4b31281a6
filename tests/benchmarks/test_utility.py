"""The benchmark of noise: every cell is tuned alike and keeps to its budget."""

import pytest

from benchmarks.privacy import utility
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.renyi import renyi_epsilon

CELLS = list(utility.cells(list(utility.ARMS)))


def test_every_cell_has_as_many_points_and_every_point_is_a_config() -> None:
    assert len(CELLS) == 8 * (1 + 2 * 4)
    for cell in CELLS:
        method, _ = utility.ARMS[cell[0]][cell[1]]
        points = utility.points(cell[0], method, cell[2], cell[3])
        assert len(set(points)) == len(utility.RATES) == 4
        found = utility.job_of(cell, points[0], 0, "validation").experiment()
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
