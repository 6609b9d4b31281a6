"""Nothing is set but the method, with 10, 1,000 and 20,000 classes: the first rounds already train it.

Every other key is chosen from the data. A whole default run would take minutes here, so only its first
rounds are trained, and scored by hand.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.config.sound import prepared
from spreadout.evaluation.embed import class_vectors, embed
from spreadout.federated.round import run_round
from spreadout.runs.build import build_federation

CPU = torch.device("cpu")


def prototypes(classes: int, examples: int, features: int = 24) -> so.Splits:
    """Every class is a point with a little noise around it; one client each."""
    draw = np.random.default_rng(0)
    centre = draw.standard_normal((classes, features)).astype(np.float32)

    def near(label: np.ndarray) -> np.ndarray:
        return centre[label] + 0.1 * draw.standard_normal((len(label), features)).astype(np.float32)

    y = np.repeat(np.arange(classes), examples)
    test, held = draw.choice(classes, size=(2, 400))
    train = so.FederatedDataset.from_arrays(near(y), y, client=y)
    scored = (so.Examples.from_arrays(near(some), some) for some in (test, held))
    return so.Splits("prototypes", train, *scored)


def first_rounds(data: so.Splits, rounds: int, **method: object) -> float:
    """P@1 after so many rounds of the run that these keys make."""
    experiment, splits = prepared(so.Experiment.of({"method": {"name": "fedaws", **method}}), data)
    f = build_federation(experiment, splits, CPU)
    state = so.ServerState(0, *f.model.initial(f.seed, f.device))
    for _ in range(rounds):
        run_round(f, state)
    labels = data.test.labels.values
    scores = (
        embed(f.model, state, data.test, torch.arange(len(labels))) @ class_vectors(f.model, state).T
    )
    return 100 * float((scores.argmax(1) == labels).double().mean())


@pytest.mark.parametrize(
    ("classes", "examples", "rounds", "reached"), [(10, 8, 40, 95.0), (1000, 2, 12, 30.0)]
)
def test_with_the_method_alone(classes: int, examples: int, rounds: int, reached: float) -> None:
    assert first_rounds(prototypes(classes, examples), rounds) > reached  # 100 / classes by chance


@pytest.mark.parametrize("step", ["safe", "plain"])
def test_top_k_without_a_strength_trains_a_thousand_classes(step: str) -> None:
    data = prototypes(1000, 2)
    assert first_rounds(data, 12, spreadout_form="topk", spreadout_step=step) > 30.0


def test_top_k_with_too_great_a_strength_does_not() -> None:
    """So the tests here can fail: λ = 10 as Table 4 has it, at the clients' rate, destroys the table."""
    too_much = {"spreadout_form": "topk", "spreadout_step": "plain", "strength": 10.0}
    assert first_rounds(prototypes(1000, 2), 12, **too_much) < 5.0


def test_twenty_thousand_classes_with_top_k_alone() -> None:
    """One round of a twentieth of the clients; over all pairs it would take half a minute here."""
    assert first_rounds(prototypes(20_000, 1), 1, spreadout_form="topk") > 2.0  # 0.005 by chance


@pytest.mark.parametrize("form", ["hinge", "topk"])
@pytest.mark.parametrize("classes", [10, 400])
def test_a_strength_a_hundred_times_off_does_no_harm(form: str, classes: int) -> None:
    """The default is λ = 1: a hundredth and a hundred of it train as well."""
    data = prototypes(classes, 4)
    keys = {"spreadout_form": form}
    usual = first_rounds(data, 25, **keys)
    assert usual > (95.0 if classes == 10 else 40.0)
    for strength in (0.01, 100.0):
        assert first_rounds(data, 25, **keys, strength=strength) > usual - 5.0
