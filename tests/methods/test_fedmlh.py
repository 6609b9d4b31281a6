"""Multiple label hashing: hash families, sketches, bucket networks, and the paper's own numbers."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from typer.testing import CliRunner

import spreadout as so
from spreadout.cli.main import app
from spreadout.core import randomness
from spreadout.core.count_sketch import CountSketch
from spreadout.core.hashing import DRAWS, PRIME, HashFamily, signs
from spreadout.core.ragged import Ragged
from spreadout.core.state import ServerState
from spreadout.core.traffic import Traffic
from spreadout.core.types import Params
from spreadout.data.columns import Dense, Lists, Sparse
from spreadout.data.dataset import FederatedDataset
from spreadout.data.feature_hashing import hashed
from spreadout.data.load import DataConfig, load_data
from spreadout.data.splits import Splits
from spreadout.evaluation import metrics
from spreadout.evaluation.evaluate import evaluate, frequencies
from spreadout.federated.cohort import Cohort
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round, run_setup
from spreadout.methods import Baseline2, FedMLH
from spreadout.models.buckets import BucketModel, SideBySide, side_by_side_bytes
from spreadout.report.page import write_page
from spreadout.runs.arms import arms_of
from spreadout.runs.build import build_federation
from spreadout.runs.plan_hash import bucket_positives, least_buckets, plans, printed_bound
from spreadout.runtime.simulator.chunk_sums import traffic_of
from toys import HASHED, label_sets, label_sets_config

CPU = torch.device("cpu")


def built(data: Splits, experiment: so.Experiment) -> tuple[Federation, ServerState]:
    f = build_federation(experiment, data, CPU)
    return f, ServerState(0, *f.model.initial(f.seed, CPU))


# ---------------------------------------------------------------- hashing


def test_a_family_is_what_its_formula_says_and_follows_from_the_seed() -> None:
    family = HashFamily.drawn(3, 50, seed=1, use="labels")
    ids = torch.tensor([[0, 1, 7], [PRIME - 1, 312_329, 9]])
    for r in range(3):
        a, b = int(family.a[r]), int(family.b[r])
        expected = [[(a * x + b) % PRIME % 50 for x in row] for row in ids.tolist()]
        assert family(ids)[r].tolist() == expected
    same, other = (HashFamily.drawn(3, 50, seed=1, use=use) for use in ("labels", "features"))
    assert torch.equal(same.a, family.a)
    assert not torch.equal(other.a, family.a)


def test_a_draw_that_gives_nearly_every_class_a_twin_is_passed_over() -> None:
    """At Wiki31's size the first draw of seed 0 has classes x, x + 13653 and x + 27306 in the same buckets."""
    classes, unlucky = 30_938, HashFamily.drawn(2, 1000, seed=0, use="labels")
    places = unlucky(torch.tensor([0, 13_653, 27_306]))
    assert (places == places[:, :1]).all()
    assert unlucky.alike(classes) > 0.5 * classes
    kept = HashFamily.telling_apart(classes, 2, 1000, seed=0, use="labels")
    assert kept.alike(classes) <= classes**2 / 1000**2
    model = FedMLH(hash_tables=2, buckets=1000).hashes(0, classes)
    assert torch.equal(model.a, kept.a)


@pytest.mark.parametrize(("tables", "buckets", "classes"), [(1, 2, 3), (1, 40, 160), (3, 5, 100)])
def test_a_draw_that_tells_classes_apart_is_kept_as_it_was(
    tables: int, buckets: int, classes: int
) -> None:
    for seed in range(20):
        first = HashFamily.drawn(tables, buckets, seed=seed, use="labels")
        kept = HashFamily.telling_apart(classes, tables, buckets, seed=seed, use="labels")
        usual = classes * (classes - 1) / buckets**tables
        assert kept.alike(classes) <= usual
        assert torch.equal(kept.a, first.a) == (first.alike(classes) <= usual)


@pytest.mark.parametrize(
    ("ids", "tables", "buckets"), [(10, 64, 2**40), (2**16, 1, 2**16), (7, 64, 250), (3, 1, 3)]
)
def test_draws_are_compared_in_whole_numbers(ids: int, tables: int, buckets: int) -> None:
    """The ways to fill all tables are more than a float can say; and equality is no matter of rounding."""
    for seed in range(3):
        draws = randomness.generator(seed, "hash", "labels")
        tried = (HashFamily._next(draws, tables, buckets) for _ in range(DRAWS + 1))
        usual = Fraction(ids * (ids - 1), buckets**tables)
        want = next(one for one in tried if one.alike(ids) <= usual)
        kept = HashFamily.telling_apart(ids, tables, buckets, seed=seed, use="labels")
        assert torch.equal(kept.a, want.a)


def test_two_ids_share_a_bucket_about_once_in_b() -> None:
    """2-universality, over many draws of the function."""
    family = HashFamily.drawn(20_000, 10, seed=0, use="test")
    for x, y in ((0, 1), (3, 13), (5, 100_005), (2, 2 + 10 * 31)):
        places = family(torch.tensor([x, y]))
        share = float((places[:, 0] == places[:, 1]).float().mean())
        assert share == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / 20_000))
    assert set(signs(HashFamily.drawn(4, 2, seed=0, use="s"), torch.arange(99)).unique().tolist()) == {
        -1,
        1,
    }


def test_a_count_sketch_finds_heavy_hitters() -> None:
    """Among thousands of positive entries: without signs every bucket would be far too full."""
    rng = np.random.default_rng(0)
    values = rng.uniform(0, 8, size=5000)
    heavy = [3, 777, 4999]
    values[heavy] = [200, -150, 300]
    sketch = CountSketch.empty(7, 500, seed=0)
    for ids in np.array_split(rng.permutation(5000), 3):  # in parts, in any order
        sketch.add_(torch.from_numpy(ids), torch.from_numpy(values[ids]))
    for how in ("median", "mean"):
        found = sketch.estimate(torch.tensor(heavy), how)  # type: ignore[arg-type]
        np.testing.assert_allclose(found.numpy(), values[heavy], atol=25)
    exact = CountSketch.empty(2, 64, seed=1)
    exact.add_(torch.tensor([5]), torch.tensor([2.5]))
    assert float(exact.estimate(torch.tensor([5]))) == 2.5


def test_hashed_features_keep_their_sums_and_dot_products_in_the_mean() -> None:
    ids = torch.tensor([0, 9, 9, 40_000])
    column = Sparse(ids, torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0, 2, 4]), 50_000)
    plain = hashed(column, 16, signed=False).take(torch.arange(2))
    assert plain.shape == (2, 16)
    assert plain.sum(1).tolist() == [3.0, 7.0]
    place = HashFamily.drawn(1, 16, seed=0, use="features")(ids)[0]
    assert float(plain[0, place[1]]) >= 2
    side = signs(HashFamily.drawn(1, 2, seed=0, use="feature signs"), ids)[0]
    signed = hashed(column, 16, signed=True).take(torch.arange(2))
    expected = torch.zeros(2, 16)
    for row, feature, sign, weight in zip([0, 0, 1, 1], place, side, [1.0, 2.0, 3.0, 4.0], strict=True):
        expected[row, feature] += sign * weight
    assert torch.equal(signed, expected)
    assert set(
        signs(HashFamily.drawn(1, 2, seed=0, use="feature signs"), torch.arange(50))[0].tolist()
    ) == {-1, 1}


# ---------------------------------------------------------------- lemmas


@settings(deadline=None)
@given(st.integers(2, 5000), st.integers(1, 8), st.floats(0.001, 0.5))
def test_lemma_2_is_the_least_number_of_buckets(classes: int, tables: int, delta: float) -> None:
    buckets = least_buckets(classes, tables, delta)
    pairs = classes * (classes - 1) / 2
    assert buckets == classes or pairs <= delta * buckets**tables * (1 + 1e-9)
    assert buckets == 1 or pairs > delta * (buckets - 1) ** tables * (1 - 1e-9)


def test_lemma_2_holds_over_draws() -> None:
    """Classes that share their bucket in every table are as rare as promised."""
    classes, tables, delta = 60, 3, 0.2
    buckets = least_buckets(classes, tables, delta)
    clashes = 0
    for seed in range(400):
        places = HashFamily.drawn(tables, buckets, seed=seed, use="lemma")(torch.arange(classes))
        clashes += len(torch.unique(places, dim=1).T) < classes
    assert clashes / 400 <= delta + 3 * math.sqrt(delta * (1 - delta) / 400)


def test_lemma_1_bounds_what_a_bucket_has() -> None:
    """Labels independent of each other, a bucket's positives counted as instances."""
    rng = np.random.default_rng(0)
    classes, buckets, instances = 40, 10, 500
    share = rng.uniform(0.001, 0.01, size=classes)
    right = rng.random((instances, classes)) < share
    own, everything = right.sum(0), right.sum()
    total = np.zeros(classes)
    draws = 300
    for seed in range(draws):
        places = HashFamily.drawn(1, buckets, seed=seed, use="lemma 1")(torch.arange(classes))[0].numpy()
        union = np.stack([right[:, places == b].any(1) for b in range(buckets)], 1).sum(0)
        total += union[places]
    bound = np.array([bucket_positives(n, everything, buckets, instances) for n in own])
    assert (total / draws > bound - 1.5).all()  # an expectation, estimated
    assert (total / draws).mean() > bound.mean() - 0.2


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 60), st.floats(0.1, 30.0))
def test_lemma_1_as_printed_fails_and_our_bound_holds(seed: int, buckets: int, labels: float) -> None:
    """Against the exact expectation where labels are independent, as the lemma assumes."""
    rng, instances = np.random.default_rng(seed), 1000.0
    share = rng.dirichlet(np.full(80, 0.5)) * labels
    share = np.minimum(share, 0.9)
    positives = instances * share
    for j in range(3):
        others = np.delete(share, j)
        exact = instances * (1 - (1 - share[j]) * np.prod(1 - others / buckets))
        assert bucket_positives(positives[j], positives.sum(), buckets, instances) <= exact + 1e-6


def test_eurlex_is_a_case_where_lemma_1_as_printed_fails() -> None:
    """3,993 classes in 250 buckets, 15,539 instances of 5.31 labels: an average class's bucket."""
    classes, buckets, instances = 3993, 250, 15539.0
    share = 5.31 / classes
    own, everything = instances * share, instances * 5.31
    exact = instances * (1 - (1 - share) * (1 - share / buckets) ** (classes - 1))
    assert printed_bound(own, everything, buckets) > exact
    ours = bucket_positives(own, everything, buckets, instances)
    assert exact - 0.01 < ours <= exact


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12))
def test_theorem_2_hashing_brings_clients_nearer(seed: int, buckets: int) -> None:
    """KL between two clients' bucket distributions is at most that of their class distributions."""
    rng = np.random.default_rng(seed)
    a, b = (rng.dirichlet(np.full(30, 0.3)) + 1e-9 for _ in range(2))
    places = HashFamily.drawn(1, buckets, seed=seed, use="theorem 2")(torch.arange(30))[0].numpy()
    merged = [np.bincount(places, weights=p / p.sum(), minlength=buckets) for p in (a, b)]

    def kl(p: np.ndarray, q: np.ndarray) -> float:
        kept = p > 0
        return float((p[kept] * np.log(p[kept] / q[kept])).sum())

    assert kl(*merged) <= kl(a / a.sum(), b / b.sum()) + 1e-9


# ---------------------------------------------------------------- the paper's bytes

SHAPES = {  # d̃, p, R, B, hidden; Table 5 in MiB; rounds to best and Table 4 in MiB
    "Eurlex": ((300, 3993, 4, 250, 150), (1.61, 2.56), (31, 39), (199.7, 399.2)),
    "Wiki31": ((5000, 30938, 4, 1000, 500), (49.62, 69.62), (18, 31), (3572.8, 8633.1)),
    "AMZtitle": (
        (5000, 131073, 4, 4000, 1000),
        (0.15 * 1024, 0.51 * 1024),
        (12, 66),
        (7.16 * 1024, 134.9 * 1024),
    ),
    "Wikititle": (
        (10000, 312330, 8, 5000, 1000),
        (0.48 * 1024, 1.21 * 1024),
        (28, 64),
        (53.4 * 1024, 308.7 * 1024),
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_tables_4_and_5_come_out_of_the_networks_and_the_ledger(name: str) -> None:
    (features, classes, tables, buckets, hidden), memory, rounds, volume = SHAPES[name]
    for networks, outputs, size, turns, moved in (
        (tables, buckets, memory[0], rounds[0], volume[0]),
        (1, classes, memory[1], rounds[1], volume[1]),
    ):
        widths = [features, hidden, hidden, outputs]
        with torch.device("meta"):
            made = SideBySide(networks, widths)
        counted = sum(p.numel() * 4 for p in made.parameters())
        assert counted == side_by_side_bytes(networks, widths)
        mib = counted / 2**20
        assert mib == pytest.approx(size, rel=0.005 if size < 100 else 0.035)  # as it is rounded there
        state = ServerState(0, {n: p.detach() for n, p in made.named_parameters()}, {})
        f, _ = built(label_sets(), label_sets_config(HASHED))
        ledger = Traffic()
        for _ in range(turns):
            ledger += traffic_of(state, Cohort(0, torch.arange(4), {}), f)
        assert ledger.down == ledger.up
        assert ledger.up / 2**20 == pytest.approx(moved, rel=0.003)


def test_the_ledger_counts_the_hashes_once_and_the_networks_every_round() -> None:
    data = label_sets()
    f, state = built(data, label_sets_config(HASHED))
    run_setup(f, state)
    assert state.traffic.down == 4 * 8 * (2 * 3 + 1)  # four clients, (a, b) of three tables, and B
    for _ in range(2):
        run_round(f, state)
    size = side_by_side_bytes(3, [20, 16, 16, 8])
    assert state.traffic.dense_down == state.traffic.dense_up == 2 * 2 * size
    assert state.traffic.rows_down == state.traffic.rows_up == 0


# ---------------------------------------------------------------- training and decoding


def test_the_loss_is_cross_entropy_of_the_union_of_labels() -> None:
    f, state = built(label_sets(), label_sets_config(HASHED))
    assert isinstance(f.model, BucketModel)
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([[4, 7, -1], [-1, -1, -1], [0, 1, 2]])  # one has no label at all
    mask = torch.tensor([1.0, 1.0, 0.0])
    params = Params(state.dense, {})
    found = f.method.loss(f.model, params, {"x": x, "y": y, "mask": mask}, {})
    logits = f.model.logits(params, {"x": x})  # (3, n, 8)
    expected = 0.0
    for i in (0, 1):
        for r in range(3):
            right = torch.zeros(8)
            for label in y[i][y[i] >= 0]:
                right[f.model.buckets_of(label[None])[r, 0]] = 1
            expected += float(F.binary_cross_entropy_with_logits(logits[r, i], right)) / 2
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("method", [HASHED, {"name": "fedavg-bce"}, {**HASHED, "weighting": "examples"}])
def test_the_simulator_trains_what_one_client_after_another_trains(
    method: dict[str, object], optimizer: str
) -> None:
    states = []
    for executor in ("sequential", "simulator"):
        clients = {"per_round": 3, "batch": 8, "optimizer": optimizer, "lr": 0.01, "local_epochs": 2}
        f, state = built(
            label_sets(), label_sets_config(method, clients=clients, run={"executor": executor})
        )
        for _ in range(3):
            run_round(f, state)
        states.append(state)
    torch.testing.assert_close(states[0].dense, states[1].dense, rtol=1e-3, atol=1e-5)
    assert states[0].traffic == states[1].traffic


def test_networks_side_by_side_are_networks_one_by_one() -> None:
    torch.manual_seed(0)
    several = SideBySide(3, [5, 4, 2])
    x = torch.randn(6, 5)
    for r in range(3):
        plain = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        with torch.no_grad():
            for layer, weight, bias in zip(
                (plain[0], plain[2]), several.weights, several.biases, strict=True
            ):
                layer.weight.copy_(weight[r].T)
                layer.bias.copy_(bias[r])
        torch.testing.assert_close(several(x)[r], plain(x))


@pytest.mark.parametrize("decoding", ["log-probability", "logits"])
@pytest.mark.parametrize("at_once", [1, 40, 1 << 20])
def test_decoding_in_blocks_ranks_as_all_scores_do(decoding: str, at_once: int) -> None:
    hashes = HashFamily.drawn(3, 8, seed=0, use="labels")
    made = {"classes": 30, "hashes": hashes, "decoding": decoding}
    model = BucketModel(SideBySide(3, [2, 8]), {}, fresh=lambda: SideBySide(3, [2, 8]), **made)  # type: ignore[arg-type]
    logits = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    scores = F.logsigmoid(logits) if decoding == "log-probability" else logits
    places = hashes(torch.arange(30))  # (3, 30)
    whole = torch.stack([scores[r][:, places[r]] for r in range(3)]).mean(0)  # (5, 30)
    found = model.rank(logits, 6, at_once=at_once)
    torch.testing.assert_close(found.scores, whole.topk(6).values)
    torch.testing.assert_close(whole.gather(1, found.ids), found.scores)


def test_decoding_needs_no_memory_for_all_scores() -> None:
    """312,330 classes: what is held at once follows the budget, not rows × classes × tables."""
    hashes = HashFamily.drawn(2, 50, seed=0, use="labels")
    network = SideBySide(2, [2, 50])
    model = BucketModel(network, {}, fresh=lambda: network, classes=312_330, hashes=hashes)
    most = 0
    plain = torch.Tensor.new_zeros

    def watched(self: torch.Tensor, *shape: object, **options: object) -> torch.Tensor:
        nonlocal most
        made = plain(self, *shape, **options)
        most = max(most, made.numel())
        return made

    torch.Tensor.new_zeros = watched  # type: ignore[method-assign,assignment]
    try:
        found = model.rank(torch.randn(2, 64, 50), 5, at_once=1 << 16)
    finally:
        torch.Tensor.new_zeros = plain  # type: ignore[method-assign]
    assert found.ids.shape == (64, 5)
    assert 0 < most <= 1 << 16


@pytest.mark.parametrize("method", [HASHED, {"name": "fedavg-bce"}])
def test_a_fresh_network_takes_each_output_to_be_right_for_one_example_in_as_many(
    method: dict[str, object],
) -> None:
    fresh = {}
    for odds in ("even", "rare"):
        f, state = built(label_sets(), label_sets_config({**method, "start_odds": odds}))
        assert isinstance(f.model, BucketModel)
        fresh[odds] = f.model, state
    model, state = fresh["rare"]
    outputs = model.outputs // (3 if method is HASHED else 1)
    last = list(state.dense)[-1]
    chance = torch.sigmoid(state.dense[last])
    torch.testing.assert_close(chance, torch.full_like(chance, 1 / outputs))
    for name, value in fresh["even"][1].dense.items():  # and in nothing else do the two differ
        assert name == last or torch.equal(value, state.dense[name])
    # Without inputs that is what is foreseen: one label an example.
    nothing = {"x": torch.zeros(2, 20)}
    hidden = {name: torch.zeros_like(value) for name, value in state.dense.items() if name != last}
    found = torch.sigmoid(model.logits(Params({**state.dense, **hidden}, {}), nothing)).sum(-1)
    torch.testing.assert_close(found, torch.ones_like(found))


@pytest.mark.parametrize(
    "method", [{"name": "fedmlh", "hash_tables": 3, "buckets": 200}, {"name": "fedavg-bce"}]
)
def test_a_thousand_rare_labels_are_better_known_after_four_rounds_from_the_odds_of_a_rare_one(
    method: dict[str, object],
) -> None:
    found = {}
    for odds in ("even", "rare"):
        config = {
            "rounds": 4,
            "data": {
                "source": {
                    "name": "synthetic",
                    "classes": 1000,
                    "features": 300,
                    "examples": 800,
                    "test_examples": 300,
                    "labels_per_example": 3.0,
                },
                "partition": {"name": "frequent_classes", "clients": 4, "frequent": 20},
            },
            "model": {"encoder": "mlp", "hidden": [64, 64]},
            "method": {**method, "start_odds": odds},
            "clients": {"optimizer": "adam", "lr": 0.003, "local_epochs": 5, "batch": 32},
            "eval": {"every": 4, "references": False, "metrics": ["P@5"]},
        }
        found[odds] = so.run(so.Experiment.of(config)).history[-1]["P@5"]
    assert found["rare"] > found["even"] + 1  # by 4 to 5 points, and by 3 to 6 with two other seeds


def test_hashed_labels_are_learned(tmp_path: Path) -> None:
    data = label_sets(n=400)
    result = so.run(label_sets_config(HASHED, rounds=60), data=data, out=tmp_path / "run")
    assert result.metrics["P@1"] > 60
    assert result.summary["geometry"]["max_cosine"] is None
    scale = 2 * 4 * 20  # mean and deviation of every feature
    assert result.summary["model_bytes"] == side_by_side_bytes(3, [20, 16, 16, 8]) + scale
    again = evaluate(result.federation.model, result.state, data.test, ["P@1"])
    assert again.metrics["P@1"] == result.metrics["P@1"]


def test_frequent_and_infrequent_add_up_and_the_cap_helps_short_sets() -> None:
    data = label_sets(n=200)
    f, state = built(data, label_sets_config(HASHED))
    seen = frequencies(data.train, 5)
    assert int(seen.is_frequent.sum()) == 5
    assert int(seen.counts[seen.is_frequent].min()) >= int(seen.counts[~seen.is_frequent].max())
    names = ["P@3", "P@3 frequent", "P@3 infrequent", "capped P@3", "PSP@3"]
    found = evaluate(f.model, state, data.test, names, seen=seen).metrics
    assert found["P@3 frequent"] + found["P@3 infrequent"] == pytest.approx(found["P@3"])
    often = set(seen.is_frequent.nonzero()[:, 0].tolist())
    same = torch.arange(20).expand(len(data.test), -1)  # classes 0, 1 and 2 for everyone
    for name, counted in (("P@3 frequent", often), ("P@3 infrequent", set(range(20)) - often)):
        right = [len({0, 1, 2} & counted & set(data.test.labels[i].tolist())) for i in range(len(same))]
        labelled = [r for r, length in zip(right, data.test.labels.lengths, strict=True) if length]
        by_hand = 100 * sum(labelled) / (3 * len(labelled))
        assert metrics.compute(name, same, data.test.labels, seen=seen) == pytest.approx(by_hand)
    short = data.test.labels.lengths
    assert int(short.max()) <= 3
    ranking = torch.cat([torch.arange(20)[None]] * len(data.test))
    by_hand = [
        len({0, 1, 2} & set(data.test.labels[i].tolist())) / min(3, int(short[i]))
        for i in range(len(data.test))
        if short[i]
    ]
    capped = metrics.compute("capped P@3", ranking, data.test.labels)
    assert capped == pytest.approx(100 * np.mean(by_hand))
    assert found["capped P@3"] >= found["P@3"]


def test_an_instance_on_several_clients_is_counted_once() -> None:
    """Two clients hold the same instance, with labels of their own or with all of them."""
    x = Dense(torch.eye(3), index=torch.tensor([0, 1, 0, 2]))
    sets = Lists.of(Ragged.from_lists([[0, 1], [1], [0, 1], [2]]))
    held = FederatedDataset({"x": x, "y": sets}, torch.tensor([0, 2, 4]), 3)
    seen = frequencies(held, 1)
    assert seen.instances == 3
    assert seen.counts.tolist() == [1, 2, 1]
    single = FederatedDataset({"x": x, "y": Dense(torch.tensor([0, 1, 1, 2]))}, held.offsets, 3)
    assert frequencies(single, 1).counts.tolist() == [1, 2, 1]


def test_sparse_features_become_dense_a_step_at_a_time() -> None:
    """The same training as from dense features, whichever executor; hashed in test and training alike."""
    data = label_sets()
    x = data.train.columns["x"].values  # type: ignore[attr-defined]
    every = torch.arange(x.numel()) % x.shape[1]
    sparse = Sparse(every, x.flatten(), torch.arange(len(x) + 1) * x.shape[1], x.shape[1])
    thin = replace(data, train=replace(data.train, columns={**data.train.columns, "x": sparse}))
    dense = [run_of(data, executor) for executor in ("sequential", "simulator")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spreadout.runs.build.DENSE_UP_TO", 0)  # as if it were too large to hold
        lazy = [run_of(thin, executor) for executor in ("sequential", "simulator")]
    for other in (dense[1], *lazy):
        torch.testing.assert_close(other.dense, dense[0].dense, rtol=1e-3, atol=1e-5)


def run_of(data: Splits, executor: str) -> ServerState:
    f, state = built(data, label_sets_config(HASHED, run={"executor": executor}))
    for _ in range(2):
        run_round(f, state)
    return state


def test_hashed_features_are_hashed_in_every_part() -> None:
    source = {"name": "synthetic", "classes": 30, "features": 500, "examples": 80, "test_examples": 20}
    loaded = load_data(
        DataConfig.model_validate({"source": source, "hash_features": 40, "validation_fraction": 0.2})
    )
    parts = [loaded.train.columns["x"], loaded.test.inputs["x"], loaded.validation.inputs["x"]]  # type: ignore[union-attr]
    assert [part.width for part in parts] == [40] * 3  # type: ignore[attr-defined]
    plain = load_data(DataConfig.model_validate({"source": source})).test.inputs["x"]
    assert isinstance(plain, Sparse)
    expected = hashed(plain, 40, signed=False).take(torch.arange(20))
    assert torch.equal(parts[1].take(torch.arange(20)), expected)


def test_labels_beyond_the_classes_are_refused() -> None:
    data = label_sets()
    wrong = replace(data, train=replace(data.train, classes=15))
    with pytest.raises(so.UserError, match="a training label is 19: there are 15 classes"):
        build_federation(label_sets_config(HASHED), wrong, CPU)


def test_clients_count_alike_whatever_they_hold() -> None:
    """Line 17: 1/S of each; by examples where that is asked for."""
    data = label_sets()
    uneven = replace(data, train=replace(data.train, offsets=torch.tensor([0, 50, 60])))
    moved = {}
    for weighting in ("uniform", "examples"):
        clients = {"per_round": "all", "batch": "full", "local_steps": 1, "lr": 0.1}
        f, state = built(uneven, label_sets_config({**HASHED, "weighting": weighting}, clients=clients))
        before = {name: value.clone() for name, value in state.dense.items()}
        run_round(f, state)
        moved[weighting] = torch.cat([(state.dense[n] - before[n]).flatten() for n in before])
    each = []
    for client in (0, 1):
        alone = replace(uneven, train=uneven.train.part(torch.tensor([client])))
        f, state = built(alone, label_sets_config(HASHED, clients=clients))
        before = {name: value.clone() for name, value in state.dense.items()}
        run_round(f, state)
        each.append(torch.cat([(state.dense[n] - before[n]).flatten() for n in before]))
    torch.testing.assert_close(moved["uniform"], (each[0] + each[1]) / 2, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(moved["examples"], (5 * each[0] + each[1]) / 6, rtol=1e-3, atol=1e-6)


BY_VALIDATION = {"split": "validation", "keep": "last"}


def validated(data: Splits) -> Splits:
    return replace(data, validation=data.test)


def test_training_stops_when_it_gets_no_better() -> None:
    data = validated(label_sets())
    names = ["P@1", "P@3", "P@5"]
    evaluated = {"metrics": names, "every": 1, "best_by": names, "patience": 3, **BY_VALIDATION}
    clients = {"per_round": 2, "batch": 8, "lr": 1e-9}  # nothing moves: the start is the best
    result = so.run(label_sets_config(HASHED, rounds=50, eval=evaluated, clients=clients), data=data)
    assert result.summary["rounds"] == 3
    assert result.summary["best"]["round"] == 0
    assert result.summary["stopped_early"]
    with pytest.raises(so.UserError, match=r"R@9 is not among eval\.metrics"):
        label_sets_config(HASHED, eval={"metrics": ["P@1"], "best_by": ["R@9"]})


def test_the_best_round_is_best_by_the_mean_of_the_metrics() -> None:
    names = ["P@1", "P@3", "P@5"]
    evaluated = {"metrics": names, "every": 1, "best_by": names, **BY_VALIDATION}
    data = validated(label_sets(seed=0))
    result = so.run(label_sets_config(HASHED, rounds=12, eval=evaluated), data=data)
    means = [sum(record[name] for name in names) for record in result.history]
    alone = [record["P@1"] for record in result.history]
    best = means.index(max(means))
    assert result.summary["best"]["round"] == best
    assert best != alone.index(max(alone))  # or it would prove nothing


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"buckets": 1}, "buckets"),
        ({"hash_tables": 0}, "tables"),
        ({"buckets": 20}, "must be below the number of classes, 20"),
    ],
)
def test_hashes_that_make_no_sense_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(so.UserError, match=said):
        build_federation(label_sets_config({**HASHED, **change}), label_sets(), CPU)


def test_metrics_and_encoders_that_do_not_go_with_it_are_refused() -> None:
    with pytest.raises(so.UserError, match="needs a score of every class"):
        build_federation(label_sets_config(HASHED, eval={"metrics": ["MRR"]}), label_sets(), CPU)
    with pytest.raises(so.UserError, match="trains a network of its own"):
        build_federation(label_sets_config(HASHED), label_sets(), CPU, torch.nn.Linear(20, 4))
    with pytest.raises(so.UserError, match="one label an example"):
        build_federation(label_sets_config({"name": "fedaws"}), label_sets(), CPU)


def test_one_label_an_example_is_a_set_of_one() -> None:
    x, y = np.eye(12, dtype=np.float32)[np.arange(48) % 12], np.arange(48) % 12
    splits = so.Splits("plain", FederatedDataset.from_arrays(x, y, y % 3), so.Examples.from_arrays(x, y))
    method = {"name": "fedmlh", "hash_tables": 4, "buckets": 6}
    result = so.run(
        label_sets_config(method, rounds=40, clients={"batch": 8, "optimizer": "adam", "lr": 0.02}),
        data=splits,
    )
    assert result.metrics["P@1"] > 80


def test_plan_hash_tells_what_to_take() -> None:
    (four,) = [plan for plan in plans(131_073, 0.01, features=5000, hidden=500) if plan.tables == 4]
    assert four.buckets == least_buckets(131_073, 4, 0.01)
    assert four.collisions <= 0.01
    told = CliRunner().invoke(app, ["plan-hash", "--classes", "131073"])
    assert told.exit_code == 0
    assert f"{four.buckets:,}" in told.stdout
    few = CliRunner().invoke(app, ["plan-hash", "--classes", "5"])
    assert "too few to hash" in few.stdout


def test_fedmlh_is_a_value() -> None:
    assert FedMLH(hash_tables=2) == FedMLH(hash_tables=2)
    assert FedMLH().hashes(3, 1000).nbytes == 8 * 9


def test_hashed_runs_stand_beside_others_in_a_report(tmp_path: Path) -> None:
    data = label_sets()
    for name, method in (("hashed", HASHED), ("plain", {"name": "fedavg-bce"})):
        so.run(label_sets_config(method, rounds=2, name=name), data=data, out=tmp_path / name)
    arms = [arm for name in ("hashed", "plain") for arm in arms_of(tmp_path / name)]
    text = write_page(arms, tmp_path / "page.html", title="both").read_text()
    assert "hashed" in text
    assert "largest cosine" not in text.lower()  # no column, no note and no chart of what is not there
    assert "Proposition 1" not in text
    assert "Cosine of the two nearest classes" not in text
    told = CliRunner().invoke(app, ["audit", str(tmp_path / "hashed")])
    assert told.exit_code != 0


def test_a_sketch_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        CountSketch.empty(0, 10, seed=0)
    with pytest.raises(ValueError, match="median, mean"):
        CountSketch.empty(2, 10, seed=0).estimate(torch.arange(3), how="mdian")  # type: ignore[arg-type]
    for ids in (torch.tensor([0.5]), torch.tensor([-1])):
        with pytest.raises(ValueError, match="whole numbers from 0 on"):
            CountSketch.empty(2, 10, seed=0).add_(ids, torch.ones(1))


def test_labels_below_zero_are_refused() -> None:
    data = label_sets()
    y = data.train.columns["y"]
    assert isinstance(y, Lists)
    wrong = replace(y, values=torch.where(y.values == y.values[0], -5, y.values))
    train = replace(data.train, columns={**data.train.columns, "y": wrong})
    with pytest.raises(so.UserError, match="a training label is -5"):
        build_federation(label_sets_config(HASHED), replace(data, train=train), CPU)


def test_clients_that_are_never_chosen_are_no_reason_to_warn() -> None:
    from spreadout.runs.advice import idle_clients

    f, _ = built(label_sets(), label_sets_config(HASHED))
    empty = replace(f.data, offsets=torch.cat([f.data.offsets, f.data.offsets[-1:]]))
    assert "1 of 5" in str(idle_clients(replace(f, data=empty)))
    chosen = replace(f.server, selection="nonempty")
    assert idle_clients(replace(f, data=empty, server=chosen)) is None


def test_fixed_rows_are_sums_of_the_rows_of_buckets() -> None:
    """FedMLH as FedALC's paper compares it: rows of buckets drawn at random and never trained."""
    fixed = {"name": "baseline-2", "hash_tables": 2, "buckets": 3, "prior": 0.0}
    result = so.run(so.Experiment.of({"rounds": 2, "chosen": [], "method": fixed}))
    table = result.state.tables["classes"]
    place = HashFamily.drawn(2, 3, seed=0, use="labels")(torch.arange(10))  # (2, 10)
    alike = (place[:, :, None] == place[:, None, :]).sum(0)  # buckets that two classes share
    cosine = table @ table.T
    assert (cosine[alike == 2] > 0.999).all()
    assert (cosine[alike == 1].mean() - cosine[alike == 0].mean()).item() > 0.25  # 0.5 but for chance
    torch.testing.assert_close(table.norm(dim=1), torch.ones(10))
    with pytest.raises(so.UserError, match="give both, or neither"):
        Baseline2(hash_tables=2)


def test_two_classes_have_a_bucket_each_and_are_learned() -> None:
    """With draws, both would share a bucket in half of the tables, and in all of them for some seeds."""
    torch.manual_seed(0)
    y = torch.arange(120) % 2
    x = torch.randn(120, 4) + 3 * y[:, None]
    train = so.FederatedDataset.from_arrays(x[:80], y[:80], client=y[:80])
    splits = so.Splits("two", train, so.Examples.from_arrays(x[80:], y[80:]))
    asked = so.Experiment.of({"method": {"name": "fedmlh"}, "rounds": 20, "eval": {"references": False}})
    for seed in range(3):
        found = so.run(asked.model_copy(update={"seed": seed}), data=splits, device="cpu")
        assert found.summary["metrics"]["P@1"] > 90
    alone = so.Splits(
        "one",
        so.FederatedDataset.from_arrays(x, torch.zeros(120, dtype=torch.int64), client=y),
        so.Examples.from_arrays(x[:9], torch.zeros(9, dtype=torch.int64)),
    )
    with pytest.raises(so.UserError, match="'fedmlh': there is one class only"):
        so.run(asked, data=alone, device="cpu")
    with pytest.raises(so.UserError, match="'fedss': there is one class only"):
        so.run(so.Experiment.of({"method": {"name": "fedss"}, "rounds": 2}), data=alone, device="cpu")


def test_the_loss_of_label_sets_is_binary_cross_entropy_and_so_is_its_gradient() -> None:
    """Labels that share a bucket count once, and those that are not there not at all."""
    logits = (10 * torch.randn(3, 6, 8, dtype=torch.float64)).requires_grad_()
    right = torch.randint(-1, 8, (3, 6, 5))
    right[0, 0] = -1  # an example without labels
    target = torch.zeros(3, 6, 9).double().scatter(-1, torch.where(right < 0, 8, right), 1.0)[..., :-1]
    expected = F.binary_cross_entropy_with_logits(logits, target, reduction="none").mean(-1)
    found = so.losses.label_sets(logits, right)
    torch.testing.assert_close(found, expected)
    (slope,) = torch.autograd.grad(found.sum(), logits)
    torch.testing.assert_close(slope, (logits.detach().sigmoid() - target) / 8)
