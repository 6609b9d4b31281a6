"""What the search for defaults ran is what the package runs: the emulation against the simulator."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import spreadout as so
from benchmarks.common.start import start
from benchmarks.defaults import emulation, server
from benchmarks.defaults.emulation import Config, Held, Model
from spreadout.core.ragged import Ragged
from spreadout.data.columns import Dense
from spreadout.data.dataset import Examples, Splits
from spreadout.data.load import distribute
from spreadout.data.partition import by_label, each_label
from spreadout.evaluation.scoring import log_prior
from spreadout.federated.round import run_round
from spreadout.federated.schedule import rate_factor
from spreadout.objectives import regularizers
from spreadout.objectives.cooccurrence import CoOccurrence

ROUNDS, CLASSES = 3, 6
CPU = torch.device("cpu")
CONFIG = Config(
    rounds=ROUNDS,
    hidden=(7,),
    dim=5,
    server_lr=0.02,
    row_lr=0.5,
    batch=None,
    input_dropout=0.0,
    spreadout_margin=1.3,
    share=1 / 1.01,  # what a strength of 1 means
    exact_steps=True,
)


def tagged() -> tuple[Held, Splits]:
    """The same instances with one or two of six classes for both: no two classes have equally many."""
    draw = torch.Generator().manual_seed(4)
    first = torch.tensor([0] * 2 + [1] * 3 + [2] * 4 + [3] * 5 + [4] * 6 + [5] * 8)
    y = torch.nn.functional.one_hot(first, CLASSES)
    y[::3, :] |= y[::3, :].roll(1, 1)  # every third has the next class as well
    x = torch.randn(len(y), 9, generator=draw) + 2 * y.float() @ torch.randn(CLASSES, 9, generator=draw)
    valid = torch.zeros(len(y), dtype=torch.bool)
    valid[::7] = True
    held = Held.of(x, y.byte(), valid)
    sets = Ragged.from_lists([row.nonzero()[:, 0].tolist() for row in y])

    def part(rows: Tensor) -> so.Instances:
        at = rows.nonzero()[:, 0]
        return so.Instances({"x": Dense(x[at])}, sets.select(at))

    train, test = part(~valid), part(valid)
    found = so.RawDataset(train, CLASSES, test)
    federated = distribute(train, by_label(each_label(train.labels), CLASSES), found)
    return held, Splits("tagged", federated, Examples(test.columns, test.labels))


def simulated(
    config: Config, data: Splits, method: dict[str, Any], row_lr: float | None = None
) -> tuple[Model, Model]:
    """The simulator's model before and after the rounds, in the emulation's form.

    row_lr: the clients', where config.row_lr is the server's.
    """
    adam = {"optimizer": "adam", "eps": 1e-8}
    table = {**adam, "lr": config.row_lr, "eps": 1e-8 * (row_lr or 1)}
    experiment = so.Experiment.of(
        {
            "rounds": config.rounds,
            "model": {"encoder": "mlp", "hidden": list(config.hidden), "dim": config.dim},
            "method": {"weighting": config.weighting, **method},
            "clients": {
                "per_round": "all",
                "local_steps": 1,
                "batch": "full",
                "lr": 1.0,
                "row_lr": row_lr or config.row_lr,
                "lr_decay": "cosine",
            },
            "server": {
                **adam,
                "lr": config.server_lr,
                "lr_decay": "cosine",
                **(
                    {"tables": {"classes": table}} if method["name"] == "fedss" else {}
                ),  # others replace
            },
        }
    )
    federation, state = start(experiment, CPU, data)

    def copied() -> Model:
        dense = [value.clone() for value in state.dense.values()]
        table = state.tables["classes"]
        assert isinstance(table, Tensor)
        return Model(dense, table.clone(), torch.Generator())

    before = copied()
    for _ in range(config.rounds):
        run_round(federation, state)
    return before, copied()


def emulated(config: Config, held: Held, model: Model) -> Model:
    weights = server.pair_weights(held.counts, held.together) if config.method == "fedalc" else None
    model = Model([v.clone() for v in model.layers], model.table.clone(), torch.Generator())
    for round in range(config.rounds):
        emulation.run_round_(config, held, model, round, weights)
    return model


def apart(a: Model, b: Model) -> float:
    """The largest distance of two models' numbers."""
    both = zip([*a.layers, a.table], [*b.layers, b.table], strict=True)
    return max(float((one - other).abs().max()) for one, other in both)


def off(a: Model, b: Model, start: Model) -> float:
    """How far two tables are apart, in units of how far the first has moved."""
    return float((a.table - b.table).norm() / (a.table - start.table).norm())


POSITIVE: dict[str, Any] = {"strength": 1.0, "spreadout_margin": 1.3, "margin": 0.9}


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("method", ["fedaws", "fedalc"])
def test_rounds_with_spreadout_are_the_simulators(method: Any, steps: int, weighting: Any) -> None:
    config = replace(CONFIG, method=method, spreadout_steps=steps, weighting=weighting)
    held, data = tagged()
    given = {**POSITIVE, "name": method, "spreadout_steps": steps}
    before, expected = simulated(config, data, given)
    found = emulated(config, held, before)
    assert apart(expected, before) > 0.02
    assert apart(expected, found) < 1e-5


def test_a_searched_row_step_is_the_packages_at_a_shorter_rate() -> None:
    """The first of `differences.STEPS`: rows go the same way, not as far."""
    # No spreadout: rows move by their owners alone.
    config = replace(CONFIG, rounds=1, row_lr=0.1, share=0.0)
    held, _ = tagged()
    before = Model.fresh(config, held)
    searched = emulated(replace(config, exact_steps=False), held, before)
    assert apart(searched, emulated(config, held, before)) > 1e-3
    one = held.x[held.instance[:1]]  # of class 0, and alone there
    alone = replace(held, instance=held.instance[:1], counts=torch.eye(CLASSES)[0])
    s = float((emulation.embed(before.layers, one) * before.table[0]).sum())
    shorter = 1 + 2 * config.row_lr * (config.margin - s) * s
    slow = replace(config, row_lr=config.row_lr / shorter)
    searched = emulated(replace(config, exact_steps=False), alone, before)
    torch.testing.assert_close(searched.table[0], emulated(slow, alone, before).table[0])


def test_rounds_of_fedss_are_the_simulators_but_for_the_length_of_clients_steps() -> None:
    """Clients of the package move rows on the sphere first: the shorter their step, the less it matters."""
    config = replace(CONFIG, method="fedss", negatives=CLASSES - 1, scale=5.0, row_lr=0.02)
    held, data = tagged()
    distances = []
    for row_lr in (0.01, 0.001):
        method = {"name": "fedss", "merge": "sum", "negatives": CLASSES - 1, "scale": 5.0}
        before, expected = simulated(config, data, method, row_lr)
        distances.append(off(expected, emulated(config, held, before), before))
    assert distances[1] < 0.005
    assert distances[1] < 0.2 * distances[0]


def test_the_parts_of_a_round_are_the_packages() -> None:
    held, data = tagged()
    rounds = [server.rate_factor(round, 7) for round in range(7)]
    assert rounds == pytest.approx([rate_factor("cosine", round, 7) for round in range(7)])
    table = torch.nn.functional.normalize(torch.randn(CLASSES, 5))
    sets = Ragged.from_lists([row.nonzero()[:, 0].tolist() for row in _sets(data)])
    both = CoOccurrence.of(sets, CLASSES).weights(normalize=True)
    hinge = regularizers.HingePenalty(1.3)
    for mine, theirs in ((None, None), (server.pair_weights(held.counts, held.together), both)):
        value, gradient = server.spreadout(table, 1.3, mine)
        expected = regularizers.all_pairs(table, hinge, weight=theirs)
        torch.testing.assert_close(value, expected.value)
        torch.testing.assert_close(gradient, expected.gradient.values)
    assert torch.equal(held.counts, torch.from_numpy(data.train.sizes).float())


def _sets(data: Splits) -> Tensor:
    """The training instances' label sets, put together again from the clients' examples: (n, C)."""
    x, y = data.train.columns["x"], data.train.columns["y"]
    every = torch.arange(data.train.examples)
    _, instance = torch.unique(x.take(every), dim=0, return_inverse=True)
    found = torch.zeros(int(instance.max()) + 1, CLASSES)
    found[instance, y.take(every)] = 1
    return found


def test_sampled_negatives_are_as_many_as_asked_and_corrected_as_in_the_package() -> None:
    """With equal scores the loss is the log of a sum that can be written down."""
    held, _ = tagged()
    sample = CLASSES // 2
    for correct, weight in ((True, (CLASSES - 1) / sample), (False, 1.0)):
        config = replace(CONFIG, method="fedss", negatives=sample, correct=correct)
        batch = emulation.drawn_batch(config, held, torch.Generator())
        same = torch.zeros(len(batch.x), config.dim)
        each = emulation.losses(config, batch, same, torch.zeros(CLASSES, config.dim), torch.Generator())
        expected = torch.log(torch.tensor(1 + sample * weight))
        torch.testing.assert_close(each, expected.expand_as(each))


def test_scores_are_precisions_with_the_packages_prior() -> None:
    held, data = tagged()
    model = Model.fresh(CONFIG, held)
    found = emulation.score(CONFIG, held, model, 0.0)
    embedded = emulation.embed(model.layers, held.valid_x)
    right = data.test.labels
    for tau, scores in ((0.0, found.without), (found.tau, found.with_prior)):
        ranked = (embedded @ model.table.T + tau * log_prior(held.counts)).argsort(1, descending=True)
        expected = [so.metrics.precision_at(ranked, right, k) for k in (1, 3, 5)]
        assert scores == pytest.approx(expected, abs=0.006)
    assert found.with_prior[0] >= found.without[0]
