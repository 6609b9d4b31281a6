"""Metrics say what they are; whatever asks them takes their word, built in or of the user's own."""

import importlib
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import spreadout as so
from spreadout.core import registry
from spreadout.core.ragged import Ragged
from spreadout.core.state import ServerState
from spreadout.evaluation import evaluate as evaluation
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.early_stopping import best_of, out_of_patience
from spreadout.evaluation.evaluate import evaluate, frequencies
from spreadout.evaluation.metric import METRICS, RESERVED, MetricInputs, register_metric
from spreadout.evaluation.metrics import compute, find_metric
from spreadout.runs.build import build_federation
from toys import several_classes, tagged

CPU = torch.device("cpu")
BUILT_IN = tuple(METRICS)
OWN = """
import spreadout as so

@so.register_metric("hit@k", unit="%", needs=("ranking",))
def hit(inputs, k):
    return 100 * so.metrics.hits(inputs.ranking[:, :k], inputs.labels).any(1).double().mean()

@so.register_metric("misses", better="lower", range=(0, None), needs=("rank",))
def misses(inputs):
    return (inputs.rank > 1).sum()
"""


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone after it."""
    monkeypatch.setattr(METRICS, "_parts", dict(METRICS._parts))
    imported = list(registry.IMPORTED)
    yield
    registry.IMPORTED[:] = imported
    sys.modules.pop("own_metrics", None)


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_metrics.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)


def config(metrics: list[str], **changes: object) -> so.Experiment:
    values: dict[str, object] = {
        "rounds": 3,
        "model": {"hidden": [8], "dim": 6},
        "clients": {"local_steps": 1, "lr": 0.3},
        "eval": {"metrics": metrics, "every": 1},
    }
    return so.Experiment.of({**values, **changes})


def by_validation(metric: str, patience: int | None = None, **changes: object) -> so.Experiment:
    judged: dict[str, object] = {"metrics": [metric], "every": 1, "split": "validation", "keep": "last"}
    judged |= {} if patience is None else {"patience": patience}
    return config([], eval=judged, method={"name": "fedaws", "prior": 0}, **changes)


def validated() -> so.Splits:
    data = several_classes()
    return replace(data, validation=data.test)


def with_k(name: str, k: int) -> str:
    return name.replace("@k", f"@{k}")


# ---------------------------------------------------------------- names


@given(st.sampled_from(BUILT_IN), st.integers(1, 10**6))
def test_a_metric_is_found_by_every_name_it_goes_by_and_no_other_is(name: str, k: int) -> None:
    found = find_metric(with_k(name, k))
    assert found.name == with_k(name, k)
    assert found.k == (k if "@k" in name else None)
    assert found.function is METRICS[name].function
    assert sum(m.named(found.name) is not None for m in METRICS.parts()) == 1


@given(st.text(max_size=12).filter(lambda name: all(m.named(name) is None for m in METRICS.parts())))
def test_a_name_nobody_goes_by_is_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(ValueError, match=r"is unknown.*P@k, .*retrieval R@k, .*mean rank, .*where k is"):
        find_metric(name)


def test_an_unknown_metric_is_told_by_its_own_name() -> None:
    with pytest.raises(so.UserError, match=r"'ndcg@5' is unknown; did you mean 'nDCG@k'\?") as told:
        config(["P@1", "ndcg@5"])
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("P@5", {}, r"'P@5': P@k has such names"),
        ("P@k", {}, r"'P@k': .*_precision has that name"),
        ("loss", {}, "'loss': is no name for a metric"),
        ("max_cosine", {}, "'max_cosine': is no name for a metric"),
        ("a@k b@k", {}, "is no name for a metric"),
        ("mine", {"needs": ("rankings",)}, "needs 'rankings': unknown; did you mean 'ranking'"),
        ("mine", {"range": (1, 0)}, r"range = \(1, 0\)"),
        ("mine", {"better": "smaller"}, "better = 'smaller'"),
        ("mine", {"depth": 0}, "depth = 0"),
    ],
)
def test_a_metric_that_cannot_be_is_refused_when_it_is_registered(
    name: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(so.UserError, match=said):
        register_metric(name, **{"needs": ("ranking",), **options})(lambda inputs, k: 0.0)  # type: ignore[arg-type]
    assert tuple(METRICS) == BUILT_IN


def test_a_later_pattern_may_not_take_in_an_earlier_name() -> None:
    register_metric("hit@7", needs=("ranking",))(lambda inputs: 0.0)
    with pytest.raises(so.UserError, match="hit@7 has such names"):
        register_metric("hit@k", needs=("ranking",))(lambda inputs, k: 0.0)


def test_a_module_read_again_replaces_its_own(own_module: None) -> None:
    module = importlib.import_module("own_metrics")
    before = METRICS["misses"]
    importlib.reload(module)
    assert METRICS["misses"] is not before
    assert METRICS["misses"].function is module.misses


# ---------------------------------------------------------------- what they say of themselves


def test_all_are_percentages_but_the_mean_rank() -> None:
    said = {name: (m.unit, m.better, m.range) for name, m in METRICS._parts.items()}
    assert said.pop("mean rank") == ("rank", "lower", (1, None))
    assert set(said.values()) == {("%", "higher", (0.0, 100.0))}
    assert find_metric("P@1").title == "P@1 (%)"
    assert find_metric("mean rank").title == "mean rank (lower is better)"


def test_every_value_lies_in_the_range_that_was_said() -> None:
    data = several_classes()
    f = build_federation(config(["P@1"]), data, CPU)
    state = ServerState(0, *f.model.initial(0, CPU))
    names = [with_k(name, 3) for name in BUILT_IN]
    found = evaluate(f.model, state, data.test, names, seen=frequencies(data.train, 3)).metrics
    assert list(found) == names
    for name, value in found.items():
        low, high = find_metric(name).range
        assert low is not None
        assert low <= value <= (high or math.inf), name


def test_records_have_no_name_that_a_metric_could_take() -> None:
    result = so.run(config(["P@1"]), data=several_classes())
    assert set(result.history[-1]) - {"P@1"} <= RESERVED
    assert set(result.summary["best"]) - {"P@1"} <= RESERVED


# ---------------------------------------------------------------- what they need


def test_only_what_the_metrics_need_is_computed_and_that_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = several_classes()
    f = build_federation(config(["P@1"]), data, CPU)
    state = ServerState(0, *f.model.initial(0, CPU))
    calls: list[str] = []
    for name in ("rank_of_right", "neighbours_of", "batch_rivals"):

        def counted(*args: object, name: str = name, real: object = getattr(evaluation, name)) -> object:
            calls.append(name)
            return real(*args)  # type: ignore[operator]

        monkeypatch.setattr(evaluation, name, counted)

    def computed(*names: str) -> list[str]:
        calls.clear()
        evaluate(f.model, state, data.test, names)
        return sorted(calls)

    assert computed("P@1", "nDCG@3") == []
    assert computed("mAP") == []
    assert computed("MRR", "mean rank") == ["rank_of_right"]  # one block of examples
    assert computed("MAP@3", "MAP@R", "retrieval R@1") == ["neighbours_of"]
    assert computed("batch R@1", "batch R@3") == ["batch_rivals"]


def test_a_ranking_is_as_deep_as_the_deepest_metric_asks() -> None:
    seen = []
    register_metric("wide", needs=("ranking",), depth=4)(lambda inputs: seen.append(inputs.ranking) or 0)
    data = several_classes()
    f = build_federation(config(["P@1"]), data, CPU)
    state = ServerState(0, *f.model.initial(0, CPU))
    for names, depth in ((["wide"], 4), (["wide", "P@6"], 6), (["wide", "R@2"], 4)):
        evaluate(f.model, state, data.test, names)
        assert seen[-1].shape == (len(data.test), depth)


def test_a_metric_that_reads_what_it_did_not_say_is_told() -> None:
    register_metric("sly", needs=("ranking",))(lambda inputs: inputs.rank.mean())
    labels = Ragged.from_lists([[0], [1]])
    inputs = MetricInputs.of(labels, ranking=torch.tensor([[0], [1]]))
    with pytest.raises(so.UserError, match=r'inputs.rank: is not there.* needs=\("rank",\)'):
        find_metric("sly").value(inputs)
    with pytest.raises(so.UserError, match=r'needs=\("frequencies",\)'):
        compute("PSP@1", torch.tensor([[0], [1]]), labels)


def test_own_metrics_are_refused_where_there_is_nothing_to_compute_them_from() -> None:
    register_metric("norm", needs=("embeddings",))(lambda inputs: inputs.embeddings.norm(dim=1).mean())
    buckets = {"name": "fedmlh", "hash_tables": 2, "buckets": 4}
    with pytest.raises(so.UserError, match="norm needs a score of every class"):
        build_federation(config(["norm"], method=buckets), tagged(), CPU)
    assert so.run(config(["norm"]), data=several_classes()).metrics["norm"] == pytest.approx(1, abs=1e-5)


def test_a_server_of_real_clients_refuses_own_metrics_of_frequencies() -> None:
    server_app = pytest.importorskip("spreadout.flower.server_app")
    register_metric("rare", needs=("ranking", "frequencies"))(lambda inputs: 0.0)
    e = config(["rare"])
    with pytest.raises(so.UserError, match="rare needs how often clients have each class"):
        server_app.refuse_misfits(e, e.method)


# ---------------------------------------------------------------- of the user's own


def test_a_metric_from_a_module_outside_works_in_a_config(own_module: None) -> None:
    data = several_classes()
    e = config(["hit@3", "R@3", "misses", "R@1"], imports=["own_metrics"])
    result = so.run(e, data=data)
    for record in result.history:
        assert record["hit@3"] == pytest.approx(record["R@3"])  # with one label each they are the same
        assert record["misses"] == round(len(data.test) * (1 - record["R@1"] / 100))
    assert so.Experiment.of(e.model_dump(exclude_none=True)) == e
    with pytest.raises(so.UserError, match=r"Known: .*hit@k"):
        config(["hits@3"])


def test_the_best_of_a_lower_is_better_metric_is_its_lowest(own_module: None) -> None:
    e = by_validation("misses", imports=["own_metrics"], rounds=8)
    result = so.run(e, data=validated())
    values = [record["misses"] for record in result.history]
    assert max(values) > min(values)
    assert result.summary["best"]["round"] == values.index(min(values))


def test_a_run_stops_when_a_lower_is_better_metric_falls_no_more() -> None:
    told = iter([9.0, 7.0, 5.0, 6.0, 8.0, 1.0])  # a rising one would have stopped after the second
    register_metric("scripted", better="lower", needs=("ranking",))(lambda inputs: next(told))
    e = by_validation("scripted", patience=2, rounds=5)
    result = so.run(e, data=validated())
    assert [record["scripted"] for record in result.history] == [9, 7, 5, 6, 8]
    assert result.summary["stopped_early"]
    assert result.summary["best"]["round"] == 2


def test_an_evaluation_without_a_value_is_never_the_best() -> None:
    e = EvalConfig(metrics=["mean rank"], patience=2, split="validation")
    history = [{"mean rank": v} for v in (math.nan, 4.0, None, 3.0, 5.0, 6.0)]
    assert [best_of(e, history[: n + 1]) for n in range(6)] == [0, 1, 1, 3, 3, 3]
    assert not out_of_patience(e, history[:5])
    assert out_of_patience(e, history)


def test_metrics_of_several_units_have_no_mean() -> None:
    with pytest.raises(so.UserError, match=r"eval\.best_by: mean rank has no mean with P@1"):
        config([], eval={"metrics": ["P@1", "mean rank"], "best_by": ["P@1", "mean rank"]})
    register_metric("median rank", unit="rank", better="lower", needs=("rank",))(
        lambda inputs: inputs.rank.median()
    )
    both = ["mean rank", "median rank"]
    e = EvalConfig(metrics=both, best_by=both, split="validation")
    history = [dict(zip(both, pair, strict=True)) for pair in ((5.0, 5.0), (4.0, 4.0), (2.0, 7.0))]
    assert best_of(e, history) == 1
