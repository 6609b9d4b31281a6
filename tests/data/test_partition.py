"""Who holds what, under every partition."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import spreadout as so
from spreadout.core.ragged import Ragged
from spreadout.data import partition as p
from spreadout.data.partition import Assignment, Pairs, each_label, label_sets, one_label

LABELS = Ragged.from_lists([[0, 2], [1], [], [2], [0]])


def held(deal: Assignment) -> list[list[tuple[int, int | None]]]:
    label = deal.label.tolist() if deal.label is not None else [None] * len(deal.instance)
    pairs = list(zip(deal.instance.tolist(), label, strict=True))
    return [pairs[a:b] for a, b in pairwise(deal.offsets.tolist())]


def many(classes: int = 12, n: int = 600) -> Pairs:
    rng = np.random.default_rng(0)
    label = torch.from_numpy(rng.integers(0, classes, n))
    return Pairs(torch.arange(n), label)


def test_by_label_puts_an_instance_on_every_client_that_knows_a_label_of_it() -> None:
    deal = p.by_label(each_label(LABELS), classes=4)
    assert held(deal) == [[(0, 0), (4, 0)], [(1, 1)], [(0, 2), (3, 2)], []]


def test_by_user_makes_a_client_of_every_user_and_keeps_the_order() -> None:
    user = torch.tensor([30, 7, 7, 30, 8])
    deal = p.by_user(label_sets(LABELS), user)
    assert held(deal) == [[(1, None), (2, None)], [(4, None)], [(0, None), (3, None)]]


def test_given_keeps_numbers_that_never_occur_as_empty_clients() -> None:
    deal = p.given(label_sets(LABELS), torch.tensor([3, 0, 0, 3, 1]))
    assert deal.sizes.tolist() == [2, 1, 0, 2]


def test_one_label_draws_one_of_an_instances_own_labels_evenly() -> None:
    labels = Ragged.from_lists([[3, 5, 9]] * 3000 + [[]])
    pairs = one_label(labels, seed=0)
    assert pairs.instance.tolist() == list(range(3000))
    assert pairs.label is not None
    share = torch.bincount(pairs.label, minlength=10)[[3, 5, 9]] / 3000
    assert bool(((share - 1 / 3).abs() < 0.04).all())
    again = one_label(labels, seed=0).label
    other = one_label(labels, seed=1).label
    assert torch.equal(pairs.label, again)
    assert not torch.equal(pairs.label, other)


def test_few_classes_gives_sops_596_clients_of_about_100_pictures_and_20_classes() -> None:
    # Stanford Online Products: 59,551 training pictures of 11,318 products, 2 to 12 each (001, §4.1).
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 9, 11_318)
    while sizes.sum() != 59_551:
        i = rng.integers(len(sizes))
        sizes[i] = np.clip(sizes[i] + np.sign(59_551 - sizes.sum()), 2, 12)
    label = torch.from_numpy(np.repeat(np.arange(11_318), sizes))
    deal = p.few_classes(Pairs(torch.arange(len(label)), label), examples=100, classes=20, seed=0)
    clients = held(deal)
    assert len(clients) == 596
    distinct = np.array([len({c for _, c in client}) for client in clients])
    amount = np.array([len(client) for client in clients])
    assert abs(distinct.mean() - 20) < 1.5
    assert abs(amount.mean() - 100) < 0.5
    assert amount.std() < 15
    assert sorted(deal.instance.tolist()) == list(range(59_551))


def test_few_classes_cuts_large_classes_and_never_gives_a_class_twice() -> None:
    label = torch.arange(10).repeat_interleave(100)
    deal = p.few_classes(Pairs(torch.arange(1000), label), examples=100, classes=2, seed=1)
    assert deal.sizes.tolist() == [100] * 10
    for client in held(deal):
        count = np.bincount([c for _, c in client], minlength=10)
        assert sorted(count[count > 0].tolist()) == [50, 50]


def test_frequent_classes_live_on_one_client_each_and_the_rest_are_spread() -> None:
    rng = np.random.default_rng(0)
    lists = [sorted({int(c) for c in rng.zipf(1.5, 3) if c < 60}) for _ in range(800)]
    labels = Ragged.from_lists(lists)
    count = torch.bincount(labels.values)
    top = set(torch.argsort(count, descending=True, stable=True)[:5].tolist())
    deal = p.frequent_classes(labels, clients=4, frequent=5, seed=0)
    stray = np.zeros(4)
    for client, instances in enumerate(held(deal)):
        numbers = [i for i, _ in instances]
        assert len(numbers) == len(set(numbers))  # once, though two of its classes live here
        for i in numbers:
            stray[client] += not top & set(lists[i])
    for c in top:  # a frequent class's instances are all at its home, wherever else they are
        everywhere = [{i for i, _ in client if c in lists[i]} for client in held(deal)]
        assert max(map(len, everywhere)) == int(count[c])
    lonely = [i for i, own in enumerate(lists) if not top & set(own)]
    assert stray.sum() == len(lonely)
    assert (stray > 0).all()
    assert set(deal.instance.tolist()) == set(range(800))


def test_shuffled_keeps_the_sizes_and_every_example() -> None:
    pairs = many()
    natural = p.by_label(pairs, 12)
    deal = p.shuffled(natural, seed=0)
    assert torch.equal(deal.offsets, natural.offsets)
    assert deal.label is not None
    assert pairs.label is not None
    assert torch.equal(pairs.label[deal.instance], deal.label)
    assert sorted(deal.instance.tolist()) == list(range(600))
    assert len({c for _, c in held(deal)[0]}) > 6  # no longer one class


@given(
    st.floats(1e-300, 1e6),
    st.integers(1, 30),
    st.integers(0, 5),
)
def test_dirichlet_deals_every_example_once_whatever_its_alpha(
    alpha: float, clients: int, seed: int
) -> None:
    deal = p.dirichlet(many(n=100), clients=clients, alpha=alpha, seed=seed)
    assert deal.sizes.numel() == clients
    assert sorted(deal.instance.tolist()) == list(range(100))


def test_dirichlets_alpha_runs_from_one_class_clients_to_even_ones() -> None:
    pairs = many(classes=10, n=20_000)

    def spread_of(alpha: float) -> float:
        """The mean share of its largest client that a class has."""
        deal = p.dirichlet(pairs, clients=10, alpha=alpha, seed=0)
        assert deal.label is not None
        owner = torch.repeat_interleave(torch.arange(10), deal.sizes)
        table = torch.zeros(10, 10).index_put_((deal.label, owner), torch.ones(20_000), True)
        return float((table.max(1).values / table.sum(1)).mean())

    assert spread_of(1e-3) > 0.95
    assert spread_of(1e4) < 0.12
    assert 0.3 < spread_of(0.5) < 0.9


@pytest.mark.parametrize(
    "deal",
    [
        lambda seed: p.iid(many(), clients=7, seed=seed),
        lambda seed: p.dirichlet(many(), clients=7, alpha=0.5, seed=seed),
        lambda seed: p.few_classes(many(), examples=50, classes=3, seed=seed),
        lambda seed: p.shuffled(p.by_label(many(), 12), seed=seed),
        lambda seed: p.frequent_classes(Ragged.from_lists([[i % 9] for i in range(90)]), clients=5, frequent=4, seed=seed),
    ],
)  # fmt: skip
def test_a_seed_fixes_the_deal_and_another_one_changes_it(deal) -> None:  # type: ignore[no-untyped-def]
    assert held(deal(0)) == held(deal(0))
    assert held(deal(0)) != held(deal(1))


def test_iid_deals_every_example_once_into_even_clients() -> None:
    deal = p.iid(each_label(LABELS), clients=2, seed=0)
    assert deal.sizes.tolist() == [3, 2]
    assert sorted(pair for client in held(deal) for pair in client) == [
        (0, 0), (0, 2), (1, 1), (3, 2), (4, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["by_label", "few_classes", "dirichlet"])
def test_label_sets_cannot_be_dealt_by_their_label(name: str) -> None:
    options = {"by_label": {"classes": 3}, "few_classes": {"examples": 2, "classes": 1, "seed": 0}}
    with pytest.raises(so.UserError, match=f'"{name}": needs examples with one label each'):
        getattr(p, name)(label_sets(LABELS), **options.get(name, {"clients": 2, "alpha": 1, "seed": 0}))


def test_few_classes_where_every_client_must_hold_every_class() -> None:
    label = torch.arange(10).repeat(2000)
    deal = p.few_classes(Pairs(torch.arange(20_000), label), examples=100, classes=20, seed=0)
    assert len(deal.sizes) == 200
    for client in held(deal):
        assert len({c for _, c in client}) == 10
    assert int(deal.sizes.sum()) == 20_000


@pytest.mark.parametrize(("classes", "per_class"), [(7, 20), (3, 20), (20, 20), (20, 3)])
def test_few_classes_comes_near_what_is_asked_on_balanced_data(classes: int, per_class: int) -> None:
    label = torch.arange(1000).repeat_interleave(per_class)
    pairs = Pairs(torch.arange(len(label)), label)
    deal = p.few_classes(pairs, examples=100, classes=classes, seed=0)
    distinct = np.mean([len({c for _, c in client}) for client in held(deal)])
    possible = max(classes, 1000 / len(deal.sizes))  # a class is at least on one client
    assert abs(distinct - possible) < 0.05 * possible
    assert sorted(deal.instance.tolist()) == list(range(len(label)))


def test_an_urn_gives_dirichlet_shares() -> None:
    # Two clients and α = 1: the first one's share of a class is uniform on [0, 1], variance 1/12.
    label = torch.arange(2000).repeat_interleave(200)
    deal = p.dirichlet(Pairs(torch.arange(len(label)), label), clients=2, alpha=1.0, seed=0)
    assert deal.label is not None
    share = torch.bincount(deal.label[: int(deal.offsets[1])], minlength=2000) / 200
    assert abs(float(share.mean()) - 0.5) < 0.03
    assert abs(float(share.var()) - 1 / 12) < 0.01


def test_partitions_of_many_classes_and_clients_cost_what_the_examples_cost() -> None:
    label = torch.from_numpy(np.random.default_rng(0).integers(0, 500_000, 20_000))
    pairs = Pairs(torch.arange(20_000), label)
    deal = p.dirichlet(pairs, clients=100_000, alpha=0.1, seed=0)
    assert int(deal.sizes.sum()) == 20_000
    assert p.few_classes(pairs, examples=20, classes=5, seed=0).sizes.sum() == 20_000
