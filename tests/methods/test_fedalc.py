"""Label correlations: collected by keyed digests, used in the spreadout, or in a table that is fixed."""

import hashlib
import hmac
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import spreadout as so
from spreadout.core.merging import RowSum
from spreadout.core.ragged import Ragged
from spreadout.core.rows import Rows, project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.types import Params
from spreadout.data.columns import Dense, Sparse
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits
from spreadout.federated.batches import positives_of
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round, run_setup
from spreadout.methods import FedALC, FedALCFixed
from spreadout.methods.context import ServerContext, SetupContext
from spreadout.objectives import regularizers
from spreadout.objectives.cooccurrence import CoOccurrence, PairWeights
from spreadout.objectives.regularizers import FarPenalty, HingePenalty, NearPenalty, TableLoss
from spreadout.privacy import label_sets
from spreadout.privacy.accounting import epsilon_of
from spreadout.runs.build import build_federation
from toys import LABEL_ARMS, tagged, tagged_config

CPU = torch.device("cpu")
KEY = b"the clients' secret"


def built(data: Splits, experiment: so.Experiment) -> tuple[Federation, ServerState]:
    f = build_federation(experiment, data, CPU)
    return f, ServerState(0, *f.model.initial(f.seed, CPU))


# ---------------------------------------------------------------- counts and weights

label_lists = st.lists(st.sets(st.integers(0, 6), max_size=4), min_size=1, max_size=12)


def dense_weights(
    sets: list[set[int]], classes: int, *, normalize: bool, floor: float = 0.0
) -> torch.Tensor:
    """σ (Eq. 9) and γ (Eq. 10) as they are written, no σ below its share of how often the label occurs."""
    sigma = torch.zeros(classes, classes)
    for one in sets:
        for u in one:
            for v in set(range(classes)) - one:
                sigma[u, v] += 1 / len(sets)
    for u in range(classes):
        least = floor * sum(u in one for one in sets) / len(sets)
        sigma[u] = sigma[u].clamp_min(least)
        sigma[u, u] = 0
    total = sigma.sum(1, keepdim=True)
    return torch.where(total > 0, sigma / total.clamp_min(1e-12), 0) if normalize else sigma


@settings(deadline=None)
@given(label_lists, st.booleans(), st.sampled_from([0.0, 0.1, 0.7]))
def test_sparse_weights_are_the_dense_ones(sets: list[set[int]], normalize: bool, floor: float) -> None:
    counts = CoOccurrence.of(Ragged.from_lists([sorted(one) for one in sets]), 7)
    weights = counts.weights(normalize=normalize, floor=floor)
    every = torch.arange(7)
    found = weights.at(every, every.expand(7, 7)).clone().fill_diagonal_(0)
    dense = dense_weights(sets, 7, normalize=normalize, floor=floor)
    torch.testing.assert_close(found, dense, atol=1e-6, rtol=1e-5)
    stored = zip(weights.first, weights.second, weights.both, strict=True)
    transposed = {(int(v), int(u)): float(w) for u, v, w in stored}
    for u, v, back in zip(weights.first, weights.second, weights.reversed, strict=True):
        assert transposed[int(u), int(v)] == float(back)


def test_a_label_that_always_comes_with_all_others_has_no_weight() -> None:
    """Rounding must not blow it up: its γ would be 0 / 0."""
    lists = [list(range(8)), [1], [1]]
    weights = CoOccurrence.of(Ragged.from_lists(lists), 8).weights(normalize=True)
    w = project_to_sphere(torch.randn(8, 4, generator=torch.Generator().manual_seed(0)))
    dense = dense_weights([set(one) for one in lists], 8, normalize=True)
    found = regularizers.all_pairs(w, HingePenalty(1.5), weight=weights)
    torch.testing.assert_close(found.gradient.values, by_autograd(w, dense, HingePenalty(1.5))[1])


def test_labels_that_always_meet_are_kept_apart_by_a_floor_alone() -> None:
    """Two labels that are never seen without each other: γ has no push for them, however near they are."""
    counts = CoOccurrence.of(Ragged.from_lists([[0, 1], [0, 1], [2], [3]]), 4)
    near = torch.tensor([[1.0, 0, 0], [0.8, 0.6, 0], [0, 0, 1], [0, 0, -1]])
    for floor, parts in ((0.0, False), (0.1, True)):
        weights = counts.weights(normalize=True, floor=floor)
        found = regularizers.all_pairs(near, HingePenalty(1.0), weight=weights)
        step = near - 0.1 * found.gradient.values
        apart = (step[0] @ step[1]) / step[0].norm() / step[1].norm() < near[0] @ near[1] - 1e-6
        assert bool(apart) is parts
    assert FedALC(weight_floor=0.1).floor == 0.1
    assert FedALCFixed().floor == 0  # its pull is by the counts as they are


def test_counts_in_blocks_are_counts_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    lists = [np.flatnonzero(rng.random(20) < 0.2).tolist() for _ in range(50)]
    whole = CoOccurrence.of(Ragged.from_lists(lists), 20)
    monkeypatch.setattr("spreadout.objectives.cooccurrence.PAIRS_AT_ONCE", 7)
    blocked = CoOccurrence.of(Ragged.from_lists(lists), 20)
    for name in ("count", "first", "second", "together"):
        assert torch.equal(getattr(whole, name), getattr(blocked, name))


# ---------------------------------------------------------------- the regularisers


def some_weights(normalize: bool, classes: int = 9) -> tuple[PairWeights, torch.Tensor]:
    rng = np.random.default_rng(3)
    sets = [set(np.flatnonzero(rng.random(classes) < 0.35).tolist()) for _ in range(30)]
    counts = CoOccurrence.of(Ragged.from_lists([sorted(one) for one in sets]), classes)
    return counts.weights(normalize=normalize), dense_weights(sets, classes, normalize=normalize)


def by_autograd(w: torch.Tensor, weight: torch.Tensor, penalty: object) -> tuple[torch.Tensor, ...]:
    w = w.clone().requires_grad_()
    s = (w @ w.T).masked_fill(torch.eye(len(w), dtype=torch.bool), 0)
    value = (weight * penalty.value(s)).sum()  # type: ignore[attr-defined]
    (gradient,) = torch.autograd.grad(value, [w])
    return value.detach(), gradient


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    "penalty", [HingePenalty(1.0), HingePenalty(1.2, "euclidean"), HingePenalty(2.5), FarPenalty()]
)
def test_correlation_weighted_spreadout_is_eq_8_and_10(
    penalty: HingePenalty | FarPenalty, normalize: bool
) -> None:
    weights, dense = some_weights(normalize)
    w = project_to_sphere(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)))
    value, gradient = by_autograd(w, dense, penalty)
    for budget in (1 << 20, 1):  # one block, and a row at a time
        found = regularizers.all_pairs(w, penalty, weight=weights, budget=budget)
        torch.testing.assert_close(found.value, value)
        torch.testing.assert_close(found.gradient.values, gradient)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("penalty", [HingePenalty(1.0), FarPenalty()])
def test_mined_weighted_spreadout_is_eq_11(penalty: HingePenalty | FarPenalty, normalize: bool) -> None:
    weights, dense = some_weights(normalize)
    w = project_to_sphere(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)))
    anchors = torch.tensor([1, 4, 8])
    near = (w @ w.T).fill_diagonal_(-9).topk(3, 1).indices
    kept = torch.zeros(9, 9)
    for u in anchors:
        kept[u, near[u]] = 1
    value, gradient = by_autograd(w, dense * kept, penalty)
    found = regularizers.mined_pairs(w, anchors, 3, penalty, weight=weights)
    torch.testing.assert_close(found.value, value)
    whole = torch.zeros_like(w).index_add(0, found.gradient.ids, found.gradient.values)
    torch.testing.assert_close(whole, gradient)


def test_the_objective_of_a_fixed_table_is_eq_12() -> None:
    rng = np.random.default_rng(3)
    sets = [set(np.flatnonzero(rng.random(9) < 0.35).tolist()) for _ in range(30)]
    counts = CoOccurrence.of(Ragged.from_lists([sorted(one) for one in sets]), 9)
    w = project_to_sphere(torch.randn(9, 4, generator=torch.Generator().manual_seed(0))).requires_grad_()
    d = 1 - w @ w.T
    value = torch.zeros(())
    for one in sets:  # instance by instance, as the paper sums
        for u in one:
            for v in range(9):
                if v in one and v != u:
                    value = value + 0.7 * d[u, v].square() / len(sets)
                elif v not in one:
                    value = value + 1.3 * torch.relu(1.1 - d[u, v]).square() / len(sets)
    (gradient,) = torch.autograd.grad(value, [w])
    method = FedALCFixed(pull=0.7, push=1.3, spreadout_margin=1.1)
    found = method.objective(ServerState(0, {}, {"classes": w.detach()}), counts.weights())
    torch.testing.assert_close(found.value, value.detach())
    torch.testing.assert_close(found.gradient.values, gradient)


def test_a_clip_that_clips_nothing_changes_nothing() -> None:
    """Pull and push apart, and together in blocks: one objective."""
    weights, _ = some_weights(normalize=False)
    w = project_to_sphere(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)))
    parts = w, weights, HingePenalty(1.1), NearPenalty()
    apart = regularizers.pull_and_push(*parts, pull=0.7, push=1.3)
    for budget in (1 << 20, 1):
        joint = regularizers.pull_and_push(*parts, pull=0.7, push=1.3, clip=1e6, budget=budget)
        torch.testing.assert_close(joint.value, apart.value)
        torch.testing.assert_close(joint.gradient.values, apart.gradient.values)


@pytest.mark.parametrize("form", ["all pairs", "mined", "pull and push"])
def test_no_pair_moves_the_table_by_more_than_its_sensitivity(form: str) -> None:
    """What DP rests on: another count of one pair changes the clipped sum by at most the sensitivity."""
    clip = 0.01
    w = project_to_sphere(
        torch.ones(4, 3) + 0.3 * torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    )
    gradients = []
    for met in (0.0, 10.0):  # labels 0 and 1 never meet, or always
        pairs = torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([met, met])
        weights = CoOccurrence(20.0, torch.full((4,), 10.0), *pairs).weights()
        hinge = HingePenalty(2.0)
        if form == "all pairs":
            loss = regularizers.all_pairs(w, hinge, weight=weights, clip=clip)
        elif form == "mined":  # every class finds every other: each pair from both its ends
            loss = regularizers.mined_pairs(w, torch.arange(4), 3, hinge, weight=weights, clip=clip)
        else:
            loss = regularizers.pull_and_push(
                w, weights, hinge, NearPenalty(), pull=100.0, push=1.0, clip=clip
            )
        gradients.append(torch.zeros_like(w).index_add(0, loss.gradient.ids, loss.gradient.values))
    moved = float((gradients[1] - gradients[0]).norm())
    sensitivity = FedALCFixed.pair_sensitivity if form == "pull and push" else FedALC.pair_sensitivity
    assert moved == pytest.approx(sensitivity * clip, rel=1e-4)  # it is reached, and not passed


# ---------------------------------------------------------------- what is collected


def test_label_sets_come_back_and_nothing_else() -> None:
    """The server, which has the messages and no key, learns which rows meet in an instance."""
    data = tagged().train
    messages = list(label_sets.messages_of(data, KEY))
    collected = label_sets.label_sets(messages, data.classes)
    assert not collected.refused
    found = collected.sets
    by_instance: dict[int, set[int]] = {}
    for instance, label in zip(
        data.columns["x"].index.tolist(),  # type: ignore[union-attr]
        data.columns["y"].take(torch.arange(data.examples)).tolist(),
        strict=True,
    ):
        by_instance.setdefault(instance, set()).add(label)
    same_words: dict[tuple[int, ...], set[int]] = {}  # equal bytes are one instance to the server
    for instance, labels in by_instance.items():
        words = data.columns["x"].select(torch.tensor([0]))
        words = replace(words, index=torch.tensor([instance]))
        key = tuple(words.ragged().values.tolist())  # type: ignore[attr-defined]
        same_words.setdefault(key, set()).update(labels)
    expected = sorted(tuple(sorted(labels)) for labels in same_words.values())
    assert sorted(tuple(found[i].tolist()) for i in range(len(found))) == expected
    sent = sum(part.nbytes for message in messages for part in vars(message).values())
    assert sent == data.examples * (32 + 8) + data.classes * (8 + 8)


def test_with_the_key_an_instance_can_be_found_and_without_it_cannot() -> None:
    """A server that guesses: it tries all instances there could be against what it was sent."""
    data = tagged(features=24).train
    (message, *_) = label_sets.messages_of(data, KEY)
    seen = {bytes(one) for one in message.instances.tolist()}
    candidates = data.view(0)  # suppose it knows, or can enumerate, exactly what client 0 holds
    plain = [
        b"instance" + words.long().numpy().tobytes() + np.ones(len(words), np.float32).tobytes()
        for words in (candidates.columns["x"].ragged()[i] for i in range(candidates.examples))  # type: ignore[attr-defined]
    ]
    assert {hmac.digest(KEY, one, "sha256") for one in plain} == seen  # whoever has the key finds all
    assert not seen & {hmac.digest(b"a guess", one, "sha256") for one in plain}
    assert not seen & {hashlib.sha256(one).digest() for one in plain}  # which anybody can compute
    named = {bytes(one) for one in message.row_labels.tolist()}
    ids = [b"label" + np.int64(c).tobytes() for c in range(data.classes)]
    assert named <= {hmac.digest(KEY, one, "sha256")[:8] for one in ids}
    (other, *_) = label_sets.messages_of(data, b"another key")
    assert not named & {bytes(one) for one in other.row_labels.tolist()}
    assert not seen & {bytes(one) for one in other.instances.tolist()}


def test_rows_asked_for_tell_what_digests_hide() -> None:
    """With a lookup a client asks for the features it has: one with one example shows it whole."""
    data = tagged().train
    view = data.part(torch.tensor([0]))
    single = replace(
        view,
        columns={name: column.select(torch.tensor([0])) for name, column in view.columns.items()},
        offsets=torch.tensor([0, 1]),
        row_columns={"y": "classes", "x": "inputs"},
    )
    asked = FedALC().request(single, torch.tensor([0]), seed=0, round=0)["inputs"]
    assert asked[0].tolist() == sorted(set(single.columns["x"].ragged().values.tolist()))  # type: ignore[attr-defined]


def test_a_message_is_made_from_its_clients_view_alone() -> None:
    data = tagged().train
    for client, message in enumerate(label_sets.messages_of(data, KEY, dummies=3, seed=1)):
        (alone,) = label_sets.messages_of(data.view(client), KEY, dummies=3, seed=1)
        for name in ("instances", "labels", "row_labels", "rows"):
            assert getattr(alone, name).tobytes() == getattr(message, name).tobytes()


def test_messages_that_lie_are_refused() -> None:
    data = tagged().train
    honest = list(label_sets.messages_of(data, KEY))
    first, second = honest[0], honest[1]
    lies = {
        "unknown rows": replace(first, rows=np.array([999])),
        "rows that others have under another label": replace(
            second, row_labels=first.row_labels, labels=np.repeat(first.row_labels, len(second.labels))
        ),
        "labels without a row": replace(second, labels=np.repeat(first.row_labels, len(second.labels))),
        "malformed": replace(second, labels=second.labels[:-1]),
        "repeated rows": replace(
            second,
            rows=np.repeat(second.rows, 2),
            row_labels=np.repeat(second.row_labels, 2),
        ),
    }
    for reason, lie in lies.items():
        found = label_sets.label_sets([first, lie, *honest[2:]], data.classes)
        assert found.refused == {f"label message: {reason}": 1}
        assert found.holders.tolist() == [1, 0, 1, 1, 1, 1]
    (*_, stranger) = label_sets.messages_of(data.view(0), b"another key")  # a row others know otherwise
    found = label_sets.label_sets([*honest, stranger], data.classes)
    assert found.refused == {"label message: rows that others have under another label": 1}


def test_features_listed_in_another_order_are_the_same_instance() -> None:
    def one(ids: list[int], weights: list[float]) -> bytes:
        column = Sparse(torch.tensor(ids), torch.tensor(weights), torch.tensor([0, len(ids)]), 9)
        data = FederatedDataset({"x": column, "y": Dense(torch.tensor([0]))}, torch.tensor([0, 1]), 1)
        return bytes(label_sets.digests_of(data, KEY)[0])

    assert one([3, 5], [1.0, 2.0]) == one([5, 3], [2.0, 1.0])
    assert one([3, 5], [1.0, 2.0]) != one([3, 5], [2.0, 1.0])
    assert one([3, 5, 7], [1.0, 2.0, 0.0]) == one([3, 5], [1.0, 2.0])  # a zero is nothing
    assert one([3, 3, 5], [0.5, 0.5, 2.0]) == one([3, 5], [1.0, 2.0])  # twice a half is one


def test_a_vector_is_one_instance_whether_it_is_kept_sparse_or_dense() -> None:
    """Nodes choose the form by what they have to train; they must still mean the same instance."""
    data = tagged().train
    x = data.columns["x"]
    assert isinstance(x, Sparse)
    dense = replace(data, columns={**data.columns, "x": x.dense()})
    values = x.dense().compact().values
    signed = torch.where(values == 0, -values, values)  # −0
    minus = replace(dense, columns={**dense.columns, "x": Dense(signed)})
    for other in (dense, minus):
        assert (label_sets.digests_of(other, KEY) == label_sets.digests_of(data, KEY)).all()


def test_examples_are_told_of_in_no_order() -> None:
    data = tagged().train
    digests = label_sets.digests_of(data, KEY)
    for client, message in enumerate(label_sets.messages_of(data, KEY)):
        own = digests[data.offsets[client] : data.offsets[client + 1]]
        assert sorted(message.instances.tolist()) == sorted(own.tolist())
        assert message.instances.tolist() != own.tolist()


@pytest.mark.parametrize("guard", [{"anonymity": 999}, {"count_noise": 3.0}, {"dummies": 40}])
def test_guards_reach_the_weights(guard: dict[str, object]) -> None:
    """`prepare` keeps what `guarded` makes of the counts."""
    data = tagged(n=300)
    f, state = built(data, tagged_config({"name": "fedalc", "normalize": False, **guard}))
    run_setup(f, state)
    plain = CoOccurrence.of(
        label_sets.label_sets(label_sets.messages_of(data.train, KEY), 6).sets, data.train.classes
    )
    found = f.method.pair_weights(state)  # type: ignore[attr-defined]
    if "anonymity" in guard:
        assert not len(found.first)
        torch.testing.assert_close(found.alone, plain.weights().alone)
    elif "count_noise" in guard:
        assert not torch.equal(found.both, plain.weights().both)
        again = replace(f, server=replace(f.server, real_noise=True))
        other = ServerState(0, *f.model.initial(f.seed, CPU))
        run_setup(again, other)
        assert not torch.equal(found.both, f.method.pair_weights(other).both)  # type: ignore[attr-defined]
    else:  # with those that were invented, less as many as there are of them in the mean
        messages = label_sets.messages_of(
            data.train, label_sets.collection_key(f.seed), dummies=40, seed=f.seed
        )
        counted = CoOccurrence.of(label_sets.label_sets(messages, 6).sets, 6)
        expected = (counted.count - 40).clamp_min(0) / (counted.instances - 6 * 40)
        torch.testing.assert_close(found.alone, expected)


def test_refused_messages_take_nothing_off_the_counts() -> None:
    f, state = built(tagged(), tagged_config({"name": "fedalc", "dummies": 5}))
    told = list(f.method.client_setup(f.data, key=KEY, seed=0))
    invalid = [{**one, "labels": one["labels"][:-1]} for one in told]  # type: ignore[index]
    f.method.server_setup(SetupContext([*told, *invalid], 0, 0), state, f.model)
    refused, weights = state.refused, f.method.pair_weights(state)  # type: ignore[attr-defined]
    assert refused == {"label message: malformed": len(told)}
    f.method.server_setup(SetupContext(told, 0, 0), state, f.model)
    assert torch.equal(weights.alone, f.method.pair_weights(state).alone)  # type: ignore[attr-defined]


def test_who_holds_every_instance_once_is_warned() -> None:
    x, y = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
    data = FederatedDataset.from_arrays(x, y, y)
    assert "instance of its own" in (FedALC().warnings(data) or "")
    assert FedALC().warnings(tagged().train) is None


def test_guards_on_the_counts() -> None:
    lists = [[0, 1]] * 5 + [[1, 2]] + [[0]] * 3
    counts = CoOccurrence.of(Ragged.from_lists(lists), 3)
    few = label_sets.guarded(counts, anonymity=2)
    assert list(zip(few.first.tolist(), few.second.tolist(), strict=True)) == [(0, 1), (1, 0)]
    shaken = label_sets.guarded(counts, noise=1.0, seed=1)
    assert not torch.equal(shaken.together, counts.together)
    stored = zip(shaken.first, shaken.second, shaken.together, strict=True)
    pairs = {(int(u), int(v)): float(n) for u, v, n in stored}
    assert all(pairs[u, v] == pairs[v, u] for u, v in pairs)
    assert float(shaken.weights().at(torch.arange(3), torch.arange(3).expand(3, 3)).min()) >= 0


def test_invented_entries_hide_how_many_there_are_and_come_off_in_the_mean() -> None:
    data = tagged(n=300).train
    plain = [len(m.instances) for m in label_sets.messages_of(data, KEY)]
    messages = list(label_sets.messages_of(data, KEY, dummies=20, seed=3))
    assert all(len(m.instances) >= n for m, n in zip(messages, plain, strict=True))
    assert len({len(m.instances) - n for m, n in zip(messages, plain, strict=True)}) > 1
    counted = CoOccurrence.of(label_sets.label_sets(messages, 6).sets, data.classes)
    true = CoOccurrence.of(
        label_sets.label_sets(label_sets.messages_of(data, KEY), 6).sets, data.classes
    )
    assert torch.equal(counted.together, true.together)  # an invented instance has one label
    guarded = label_sets.guarded(counted, invented=torch.full((6,), 20.0))
    off = (guarded.count - true.count).abs()
    assert float(off.max()) <= 20  # between 0 and 40 were invented
    assert float(off.mean()) < float((counted.count - true.count).mean())


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("arm", LABEL_ARMS.values(), ids=LABEL_ARMS.keys())
def test_the_simulator_trains_what_one_client_after_another_trains(
    arm: dict[str, object], steps: int
) -> None:
    """Rows of features and of classes, one local step and several, with input dropout."""
    states = []
    for executor in ("sequential", "simulator"):
        clients = {"per_round": 4, "batch": 8, "lr": 0.3, "local_steps": steps, "input_dropout": 0.3}
        f, state = built(tagged(), tagged_config(arm, clients=clients, run={"executor": executor}))
        for _ in range(3):
            run_round(f, state)
        states.append(state)
    slow, fast = states
    for part in ("dense", "tables"):
        torch.testing.assert_close(getattr(fast, part), getattr(slow, part), rtol=1e-4, atol=1e-6)
    assert fast.traffic == slow.traffic


def test_flag_counts_the_positives_of_clients_with_several_classes() -> None:
    """Two clients share classes; each row follows whoever has more of its class."""
    x = np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 0, 1]]
    y, client = np.array([0, 0, 1, 0, 1, 1]), np.array([0, 0, 0, 1, 1, 1])
    data = FederatedDataset.from_arrays(x, y, client)
    rows = torch.tensor([[0, 1, -1], [0, 1, -1]])
    found = positives_of(data, torch.tensor([1, 0]), rows, torch.tensor([3, 3]))
    assert found.tolist() == [[1, 2, 0], [2, 1, 0]]
    found = positives_of(data, torch.tensor([1, 0]), rows, torch.tensor([2, 0]))  # the first ones only
    assert found.tolist() == [[1, 1, 0], [0, 0, 0]]
    splits = Splits("shared", data, Examples.from_arrays(x, y))
    states = []
    for executor in ("sequential", "simulator"):
        f, state = built(splits, tagged_config({"name": "flag"}, model={}, run={"executor": executor}))
        run_round(f, state)
        states.append(state)
    torch.testing.assert_close(states[0].tables, states[1].tables)
    assert states[0].traffic == states[1].traffic
    alone = []  # the rows each would send
    for one in range(2):
        part = Splits("one", data.part(torch.tensor([one])), splits.test)
        f, state = built(part, tagged_config({"name": "flag"}, model={}))
        run_round(f, state)
        alone.append(state.tables["classes"])
    counts = torch.tensor([[2.0, 1.0], [1.0, 2.0]])  # (client, class)
    mean = sum(n[:, None] * rows for n, rows in zip(counts, alone, strict=True)) / 3
    torch.testing.assert_close(states[0].tables["classes"], project_to_sphere(mean))


@pytest.mark.parametrize("pooling", ["mean", "sqrtn", "sum"])
def test_a_lookup_pools_as_it_is_told(pooling: str) -> None:
    data = tagged()
    f, state = built(
        data,
        tagged_config(
            {"name": "baseline-1"},
            model={"encoder": "lookup", "width": 8, "hidden": [8], "dim": 6, "pooling": pooling},
        ),
    )
    x = torch.rand(3, 24, generator=torch.Generator().manual_seed(0))
    by = {"mean": x.sum(1), "sqrtn": x.square().sum(1).sqrt(), "sum": torch.ones(3)}[pooling]
    pooled = x / by[:, None] @ state.tables["inputs"]
    expected = project_to_sphere(torch.func.functional_call(f.model.encoder, state.dense, (pooled,)))
    found = f.model.embed(Params(state.dense, state.tables), {"x": x})
    torch.testing.assert_close(found, expected)


def test_a_lookup_is_a_dense_layer_of_which_clients_hold_some_rows() -> None:
    """FedAvg of the lookup's rows equals FedAvg of a dense first layer, and sends fewer bytes."""
    data = tagged()
    f, state = built(data, tagged_config({"name": "baseline-1"}))
    rows = state.tables["inputs"].clone()

    class Same(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inputs_ = torch.nn.Parameter(rows.clone())
            self.rest = f.model.encoder

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pooled = x / x.abs().sum(-1, keepdim=True).clamp_min(1e-12) @ self.inputs_
            return self.rest(pooled)  # type: ignore[no-any-return]

    twin = build_federation(tagged_config({"name": "baseline-1"}, model={}), data, CPU, Same())
    other = ServerState(0, *twin.model.initial(twin.seed, CPU))
    for _ in range(3):
        run_round(f, state)
        run_round(twin, other)
    torch.testing.assert_close(state.tables["inputs"], other.dense["inputs_"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(state.tables["classes"], other.tables["classes"], rtol=1e-4, atol=1e-6)
    held = data.train.clients * len(rows)
    touched = sum(
        len(torch.unique(data.train.view(c).columns["x"].ragged().values))  # type: ignore[attr-defined]
        for c in range(data.train.clients)
    )
    assert touched < held
    row = 8 * 4
    saved = 3 * ((held - touched) * row - touched * 8)  # rows not sent, less the ids of those that are
    assert other.traffic.down - state.traffic.down == saved


def test_what_is_collected_travels_once_and_fixed_rows_too() -> None:
    data = tagged()
    f, state = built(data, tagged_config({"name": "fedalc-fixed", "table_steps": 5}))
    messages = label_sets.messages_of(data.train, label_sets.collection_key(f.seed))
    run_setup(f, state)
    once = sum(part.nbytes for message in messages for part in vars(message).values())
    assert state.traffic.once_up == once == state.traffic.up
    table = state.tables["classes"].clone()
    down = []
    for _ in range(3):
        before = state.traffic
        run_round(f, state)
        down.append(state.traffic.rows_down - before.rows_down)
    assert torch.equal(state.tables["classes"], table)  # fixed
    assert state.traffic.once_up == once
    class_rows = data.train.classes * (6 * 4 + 8)
    assert down[0] - class_rows == down[1] == down[2]  # the rest are the features' rows


def test_a_fixed_table_keeps_labels_near_that_occur_together() -> None:
    f, state = built(tagged(), tagged_config({"name": "fedalc-fixed", "table_steps": 300}))
    before = float((state.tables["classes"][0::2] * state.tables["classes"][1::2]).sum(-1).mean())
    run_setup(f, state)
    table = state.tables["classes"]
    together = float((table[0::2] * table[1::2]).sum(-1).mean())
    apart = float((table[0::2] @ table[0::2].T).fill_diagonal_(0).sum() / 6)
    assert together > before + 0.2
    assert together > apart + 0.5


def test_correlated_labels_are_pushed_apart_less() -> None:
    data, near = tagged(), {}
    for name in ("fedaws", "fedalc"):
        strength = 3.0 if name == "fedalc" else 3.0 / data.train.classes
        f, state = built(
            data, tagged_config({"name": name, "strength": strength, "spreadout_margin": 1.0})
        )
        for _ in range(60):
            run_round(f, state)
        table = state.tables["classes"]
        near[name] = float((table[0::2] * table[1::2]).sum(-1).mean())
    assert near["fedalc"] > near["fedaws"] + 0.1


def test_a_run_resumes_where_it_was_with_what_it_had_collected(tmp_path: Path) -> None:
    data, experiment = (
        tagged(),
        tagged_config(LABEL_ARMS["fedalc"], rounds=6, run={"checkpoint_every": 1}),
    )
    whole = so.run(experiment, data=data, out=tmp_path / "whole")
    rounds = iter(range(1, 100))
    with pytest.raises(so.Interrupted):
        so.run(experiment, data=data, out=tmp_path / "cut", stop=lambda: next(rounds) == 3)
    resumed = so.resume(tmp_path / "cut", data=data)
    assert torch.equal(resumed.state.tables["classes"], whole.state.tables["classes"])
    assert resumed.state.traffic == whole.state.traffic
    assert whole.summary["bytes"]["once_up"] > 0


def test_noise_on_the_table_is_accounted_for() -> None:
    result = so.run(tagged_config(LABEL_ARMS["private"], rounds=4), data=tagged())
    told = result.summary["table_privacy"]
    assert told["releases"] == 4
    assert told["epsilon"] == pytest.approx(epsilon_of(0.5, 4, 1e-5, sensitivity=1.0))
    fixed = {"name": "fedalc-fixed", "table_steps": 9, "table_clip": 0.1, "table_noise": 2.0}
    told = so.run(tagged_config(fixed, rounds=1), data=tagged()).summary["table_privacy"]
    assert told["epsilon"] == pytest.approx(epsilon_of(2.0, 9, 1e-5, sensitivity=2.0))
    silent = {**LABEL_ARMS["private"], "table_noise": 0.0}
    told = so.run(tagged_config(silent, rounds=1), data=tagged()).summary["table_privacy"]
    assert told["epsilon"] is None
    assert told["guarantee"].startswith("none")
    assert (
        so.run(tagged_config(LABEL_ARMS["fedalc"], rounds=1), data=tagged()).summary["table_privacy"]
        is None
    )


def test_every_release_of_the_table_has_noise_of_its_own() -> None:
    """Another round, another step, another secret of the server: another noise, of the size that is said."""
    clip, noise = 1e-4, 0.5
    private = {"name": "fedalc", "normalize": False, "table_clip": clip, "table_noise": noise}
    f, state = built(tagged(), tagged_config(private))
    run_setup(f, state)
    touched = RowSum(torch.arange(6), torch.zeros(6, 6), torch.ones(6), torch.ones(6))
    method = f.method
    assert isinstance(method, FedALC)
    drawn = []
    for secret, round, step in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (7, 0, 0)):
        context = ServerContext(0, secret, round, {"classes": 0.1}, {"classes": touched})
        drawn.append(method.regularizer(state, context, step).gradient.values)
        silent = method.model_copy(update={"table_noise": 0.0})
        clipped = silent.regularizer(state, context, step).gradient.values
        added = drawn[-1] - clipped
        assert float(added.std()) == pytest.approx(noise * clip, rel=0.5)
        assert 0 < float(clipped.norm()) <= 15 * clip * 1.001  # fifteen pairs, each within the clip
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(drawn, 2))
    steps = {**private, "spreadout_steps": 3}
    told = so.run(tagged_config(steps, rounds=4), data=tagged()).summary["table_privacy"]
    assert told["releases"] == 12


def test_a_fixed_table_is_clipped_and_gets_new_noise_at_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[torch.Tensor] = []

    def descend(state, slot, table, gradient, optimizer, *, sphere):  # type: ignore[no-untyped-def]
        seen.append(gradient.values)

    monkeypatch.setattr("spreadout.methods.fedalc.descend_table_", descend)
    arm = {"name": "fedalc-fixed", "table_steps": 3, "table_clip": 1e-4}
    f, state = built(tagged(), tagged_config(arm))
    run_setup(f, state)
    assert all(0 < float(one.norm()) <= 15e-4 * 1.001 for one in seen)
    seen.clear()
    f, state = built(tagged(), tagged_config({**arm, "pull": 0.0, "push": 0.0, "table_noise": 1.0}))
    run_setup(f, state)
    run_setup(
        replace(f, server=replace(f.server, real_noise=True)),
        ServerState(0, *f.model.initial(f.seed, CPU)),
    )
    assert len(seen) == 6
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(seen, 2))
    assert float(torch.stack(seen).std()) == pytest.approx(1e-4, rel=0.3)


def test_lambda_is_one_unless_it_is_said() -> None:
    tables = []
    for strength in ({}, {"strength": 1.0}, {"strength": 2.0}):
        f, state = built(
            tagged(), tagged_config({"name": "fedalc", "spreadout_margin": 1.0, **strength})
        )
        run_round(f, state)
        tables.append(state.tables["classes"])
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])


def test_the_noise_is_as_large_as_is_said() -> None:
    method = FedALC(normalize=False, table_clip=0.5, table_noise=2.0)
    still = TableLoss(torch.zeros(()), Rows(torch.arange(200), torch.zeros(200, 50)))
    drawn = method.noisy(still, 0, "table noise", 3, 0).gradient.values
    assert float(drawn.std()) == pytest.approx(1.0, rel=0.03)
    again, other = (method.noisy(still, 0, "table noise", r, 0).gradient.values for r in (3, 4))
    assert torch.equal(drawn, again)
    assert not torch.equal(drawn, other)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ({"name": "fedalc", "table_noise": 1.0}, "table_noise: needs table_clip"),
        ({"name": "fedalc", "table_clip": 1.0}, "normalize = false"),
        ({"name": "fedalc", "anonymity": -1}, "anonymity"),
        ({"name": "fedalc", "weighted": True}, "weighted: has no meaning here"),
        (
            {"name": "fedalc", "normalize": False, "table_clip": 1.0, "reduction": "mean"},
            'needs reduction = "sum"',
        ),
    ],
)
def test_settings_that_promise_nothing_are_refused(method: dict[str, object], said: str) -> None:
    with pytest.raises(so.UserError, match=said):
        tagged_config(method)


def test_a_lookup_needs_sparse_features(toy: Splits) -> None:
    with pytest.raises(so.UserError, match="takes sparse features"):
        build_federation(tagged_config({"name": "fedalc"}), toy, CPU)


def test_rows_a_request_leaves_out_are_told_of() -> None:
    class Forgetful(FedALC):
        def request(self, data, clients, *, seed, round):  # type: ignore[no-untyped-def]
            asked = super().request(data, clients, seed=seed, round=round)
            none = Ragged(torch.zeros(len(clients) + 1, dtype=torch.int64), torch.empty(0).long())
            return {**asked, "inputs": none}

    f = build_federation(tagged_config({"name": "fedalc"}), tagged(), CPU, method=Forgetful())
    state = ServerState(0, *f.model.initial(f.seed, CPU))
    with pytest.raises(ValueError, match="leaves out rows"):
        run_round(f, state)


def test_an_instance_under_very_many_labels_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_sets, "MOST_LABELS", 1)
    data = tagged().train
    told = list(label_sets.messages_of(data, b"k" * 32))
    found = label_sets.label_sets(told, data.classes)
    assert int(found.sets.lengths.max()) == 1
    assert found.refused["label set: too many labels"] > 0
