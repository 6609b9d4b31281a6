"""Clients drawn by their size, and the weights that make a cohort stand for all of them."""

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.core.merging import MergeRules
from spreadout.federated.cohort import draw_clients
from spreadout.federated.sampling import certain_from, sample_clients
from spreadout.runs.build import build_federation
from toys import several_classes

SIZES = np.array([50, 3, 0, 7, 1, 1, 20, 2, 9, 4])


def test_a_federation_draws_by_a_threshold_it_knows() -> None:
    clients = {"per_round": 3, "selection": "by_size"}
    method = {"name": "fedaws", "weighting": "examples"}
    base = {"model": {"hidden": [4], "dim": 4}, "clients": clients, "method": method}
    f = build_federation(so.Experiment.of(base), several_classes(), torch.device("cpu"))
    for round in range(5):
        plain = sample_clients("by_size", f.drawn_sizes, 3, seed=f.seed, round=round)
        assert torch.equal(draw_clients(f, round), plain)


def test_each_client_is_in_as_often_as_its_size_says() -> None:
    """min(1, n_i / T): T is what those who are not certain have, for each place that is left."""
    threshold = certain_from(SIZES, 4)
    assert threshold == (97 - 50 - 20) / 2  # both of them have more than a fourth, and then a third
    draws, times = 4000, np.zeros(len(SIZES))
    for round in range(draws):
        cohort = sample_clients("by_size", SIZES, 4, seed=0, round=round)
        assert len(cohort) == len(set(cohort.tolist())) == 4
        times[cohort.numpy()] += 1
    chance = np.minimum(1, SIZES / threshold)
    assert times[chance == 1].tolist() == [draws] * 2
    assert times[2] == 0
    deviation = np.sqrt(chance * (1 - chance) / draws)
    assert (np.abs(times / draws - chance) <= 4 * deviation).all()


def test_with_its_weights_a_cohort_is_an_unbiased_mean_by_examples() -> None:
    """Σ ω_i Δ_i / Σ ω_i over a cohort, in the mean over cohorts, beside Σ n_i Δ_i / n.

    Drawn by size and weighted by n_i once more, it is not; nor is it with equal weights, where large
    clients are certain.
    """
    change = np.array([5.0, -3, 0, 8, 20, -9, 1, 2, -6, 4])
    wanted = float((SIZES * change).sum() / SIZES.sum())
    rules = MergeRules("examples", {}, least=certain_from(SIZES, 4))
    others = {"examples": MergeRules("examples", {}), "uniform": MergeRules("uniform", {})}
    found: dict[str, list[float]] = {"right": [], "examples": [], "uniform": []}
    sums = set()
    for round in range(6000):
        cohort = sample_clients("by_size", SIZES, 4, seed=1, round=round).numpy()
        examples = torch.from_numpy(SIZES[cohort])
        for name, rule in {"right": rules, **others}.items():
            weight = rule.client_weight(examples).numpy()
            found[name].append(float((weight * change[cohort]).sum() / weight.sum()))
        sums.add(round_of(float(rules.client_weight(examples).sum())))
    assert len(sums) == 1  # what is divided by does not depend on who was drawn
    error = {
        name: abs(np.mean(values) - wanted) / (np.std(values) / 6000**0.5)
        for name, values in found.items()
    }
    assert error["right"] < 4
    assert error["examples"] > 10
    assert error["uniform"] > 10


def round_of(value: float) -> float:
    return round(value, 3)


def test_where_all_are_certain_weights_are_plain() -> None:
    assert certain_from(np.array([5, 0, 2]), 2) == 0
    assert sample_clients("by_size", np.array([5, 0, 2]), 3, seed=0, round=0).tolist() == [0, 2]


def test_weights_that_do_not_belong_to_the_draw_are_refused() -> None:
    clients = {"per_round": 3, "selection": "by_size"}
    with pytest.raises(so.UserError, match=r'set method\.weighting = "examples"'):
        so.run(so.Experiment.of({"clients": clients}), data=several_classes())
    by_examples = {"name": "fedaws", "weighting": "examples"}
    drifting = {**clients, "drift": "scaffold"}
    with pytest.raises(so.UserError, match="not by how they were drawn"):
        so.run(so.Experiment.of({"clients": drifting, "method": by_examples}), data=several_classes())
    averaged = {"name": "fedavg"}  # rows by weighted-mean: n_i a second time
    with pytest.raises(
        so.UserError, match=r"'by_size': method\.merge = 'weighted-mean' would weigh rows"
    ):
        so.run(so.Experiment.of({"clients": clients, "method": averaged}), data=several_classes())
    private = {"clients": clients, "privacy": {"clip": 1.0, "noise": 1.0}}
    with pytest.raises(so.UserError, match=r"'by_size': chooses clients by their numbers of examples"):
        so.run(so.Experiment.of(private), data=several_classes())
