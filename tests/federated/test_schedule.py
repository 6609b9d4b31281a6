import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spreadout.core import randomness
from spreadout.federated.schedule import LARGE, Schedule, plan, rate_factor


def batches_of(schedule: Schedule, sizes: list[int], client: int) -> list[list[int]]:
    made = plan(schedule, np.array(sizes), np.arange(len(sizes)), seed=0, round=0)
    return [
        made.index[client, s][made.mask[client, s] > 0].tolist() for s in range(int(made.steps[client]))
    ]


@given(st.lists(st.integers(0, 25), min_size=1, max_size=5), st.integers(1, 9), st.integers(1, 3))
def test_every_epoch_visits_every_example_once(sizes: list[int], batch: int, epochs: int) -> None:
    schedule = Schedule(epochs=epochs, batch=batch)
    for client, size in enumerate(sizes):
        steps = batches_of(schedule, sizes, client)
        per_epoch = -(-size // batch)
        assert len(steps) == epochs * per_epoch
        for e in range(epochs):
            seen = [i for step in steps[e * per_epoch : (e + 1) * per_epoch] for i in step]
            assert sorted(seen) == list(range(size))


def test_steps_walk_through_reshuffled_epochs() -> None:
    steps = batches_of(Schedule(steps=6, batch=4), [10], 0)
    assert [len(step) for step in steps] == [4, 4, 2, 4, 4, 2]
    first, second = [i for s in steps[:3] for i in s], [i for s in steps[3:] for i in s]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_a_clients_plan_does_not_depend_on_its_cohort() -> None:
    schedule = Schedule(steps=3, batch=4)
    alone = plan(schedule, np.array([9]), np.array([17]), seed=1, round=5)
    among = plan(schedule, np.array([30, 9, 2]), np.array([3, 17, 8]), seed=1, round=5)
    assert (alone.index[0] == among.index[1]).all()
    assert (alone.mask[0] == among.mask[1]).all()


def test_rounds_and_seeds_give_other_orders() -> None:
    schedule = Schedule(epochs=1, batch=50)
    orders = {
        tuple(plan(schedule, np.array([50]), np.array([0]), seed=s, round=r).index[0, 0].tolist())
        for s in (0, 1)
        for r in (0, 1)
    }
    assert len(orders) == 4


@pytest.mark.parametrize(
    ("schedule", "sizes", "usable"),
    [
        (Schedule(epochs=1, batch=4, drop_remainder=True), [11, 3], [8, 0]),
        (Schedule(epochs=1, batch=4, max_examples=5), [11, 3], [5, 3]),
        (Schedule(epochs=1, batch=None), [11, 3], [11, 3]),
    ],
)
def test_usable_examples(schedule: Schedule, sizes: list[int], usable: list[int]) -> None:
    assert schedule.usable(np.array(sizes)).tolist() == usable
    steps = batches_of(schedule, sizes, 0)
    assert sorted({i for step in steps for i in step}) == list(range(usable[0]))


def test_a_full_batch_is_one_step_over_everything() -> None:
    assert batches_of(Schedule(steps=2, batch=None), [3, 5], 0) == [[0, 1, 2]] * 2


def test_rates_fall_to_zero_at_the_end_of_the_run() -> None:
    assert [rate_factor("none", r, 4) for r in range(4)] == [1, 1, 1, 1]
    assert [rate_factor("linear", r, 4) for r in range(5)] == [1, 0.75, 0.5, 0.25, 0]
    assert [rate_factor("cosine", r, 4) for r in (0, 2, 4)] == pytest.approx([1, 0.5, 0])


@given(
    st.lists(st.integers(0, 12), min_size=2, max_size=6),
    st.sampled_from(
        [Schedule(steps=2, batch=4), Schedule(epochs=2, batch=3), Schedule(epochs=1, batch=None)]
    ),
    st.data(),
)
def test_some_clients_of_a_plan_have_their_own_plan(
    sizes: list[int], schedule: Schedule, data: st.DataObject
) -> None:
    members = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1)))
    numbers, at = np.arange(len(sizes)), np.array(members)
    every = plan(schedule, np.array(sizes), numbers, seed=0, round=1)
    some = plan(schedule, np.array(sizes)[at], numbers[at], seed=0, round=1)
    selected = every.select(torch.from_numpy(at))
    assert torch.equal(selected.index, some.index)
    assert torch.equal(selected.mask, some.mask)
    assert torch.equal(selected.steps, some.steps)


def order_of(size: int, seen: int, client: int, epoch: int, *, seed: int, round: int) -> list[int]:
    """All of a client's examples in an epoch's order, of which so many are looked at."""
    key = randomness.bits(randomness.key(seed, "batches", round), client, epoch)
    if size > LARGE or size > max(4 * seen, 64):
        return [int(to) for to in randomness.permute(np.arange(size), size, key)]
    return sorted(range(size), key=lambda example: int(randomness.bits(key, example)))


@pytest.mark.parametrize("steps", [1, 3, 9])
def test_steps_see_the_first_places_of_whole_orders(steps: int) -> None:
    sizes = [0, 1, 3, 4, 5, 40, 63, 64, 65, 66, 144, 145, 900, 3000]
    clients = np.arange(len(sizes)) + 7
    made = plan(Schedule(steps=steps, batch=4), np.array(sizes), clients, seed=5, round=2)
    for i, size in enumerate(sizes):
        seen, per_epoch = min(size, 4 * steps), -(-size // 4)
        for step in range(int(made.steps[i])):
            order = order_of(size, seen, int(clients[i]), step // per_epoch, seed=5, round=2)
            first = 4 * (step % per_epoch)
            seen_now = made.index[i, step][made.mask[i, step] > 0]
            assert seen_now.tolist() == order[first : first + 4]


def test_a_step_costs_what_it_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    mix = randomness._mix

    def counted(word: randomness.Bits) -> randomness.Bits:
        made.append(np.size(word))
        return mix(word)

    monkeypatch.setattr(randomness, "_mix", counted)
    sizes = np.full(50, 60_000)
    plan(Schedule(steps=1, batch=8), sizes, np.arange(50), seed=0, round=0)
    assert sum(made) < 100 * 50 * 8


def test_large_clients_see_every_example_equally_often() -> None:
    clients = np.arange(20_000)
    made = plan(Schedule(steps=1, batch=8), np.full(20_000, 100), clients, seed=0, round=0)
    counts = np.bincount(made.index.flatten().numpy(), minlength=100)
    # Chi-square with 99 degrees of freedom has mean 99 and deviation 14.
    assert ((counts - 1600) ** 2 / 1600).sum() < 99 + 5 * 14
