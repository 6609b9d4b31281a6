"""What is odd about data is named before training, or refused with the remedy."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.evaluation.config import EvalConfig
from spreadout.report.page import page
from spreadout.runs import diagnosis
from spreadout.runs.arms import arms_of

X, Y = np.eye(3, 4).repeat(8, axis=0), np.repeat(np.arange(3), 8)


class Heard(so.Observer):
    def __init__(self) -> None:
        self.said: list[str] = []

    def warned(self, text: str) -> None:
        self.said.append(text)


def heard(x: np.ndarray, y: np.ndarray, folder: Path, **config: object) -> list[str]:
    np.savez(folder / "a.npz", x=x, y=y, **config.pop("test", {}))  # type: ignore[call-overload]
    values = {"rounds": 1, "data": {"source": "npz", "path": str(folder / "a.npz")}, **config}
    observer = Heard()
    so.run(values, observer=observer)
    return observer.said


def test_ordinary_data_is_not_talked_about(tmp_path: Path) -> None:
    assert heard(X, Y, tmp_path) == []


def test_test_classes_without_a_training_example_are_named(tmp_path: Path) -> None:
    names = np.array(["ash", "beech", "cedar", "yew"])
    test = {"x_test": X[:6], "y_test": names[[0, 1, 3, 3, 3, 3]]}
    (said,) = heard(X, names[Y], tmp_path, test=test)
    assert said == (
        "1 of the 3 classes to be scored have no training example (yew): 66.7 % of the answers cannot "
        "be right"
    )


def test_a_class_for_every_example_is_said_to_look_like_ids(tmp_path: Path) -> None:
    (said,) = heard(np.eye(60, 4), np.array([f"u{i}" for i in range(60)]), tmp_path)
    assert re.search(r"be right; (\d+) examples have \1 classes: that looks like ids or a quant", said)


def test_labels_from_one_in_python_are_named() -> None:
    train = so.FederatedDataset.from_arrays(X, Y + 1, Y)
    observer = Heard()
    data = so.Splits("from one", train, so.Examples.from_arrays(X, Y + 1))
    so.run(so.Experiment(rounds=1), data=data, observer=observer)
    assert any("no training example has class 0, and all from 1 to 3 occur" in s for s in observer.said)


def test_a_single_class_is_said_to_be_one_and_not_to_collapse(tmp_path: Path) -> None:
    (said,) = heard(X, np.full(len(Y), "ash"), tmp_path)
    assert said == "all training examples have one class, ash: any answer is right"


def test_features_far_apart_in_scale_are_named_or_brought_to_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=X.shape) * [1.0, 1e6, 1, 1] + X
    assert heard(x, Y, tmp_path) == []  # the default scales them
    (said,) = heard(x, Y, tmp_path, model={"input_scaling": "none"})
    assert 'set model.input_scaling = "standard"' in said
    assert heard(X * 1e30, Y, tmp_path, model={"input_scaling": "standard"}) == []
    with pytest.raises(so.UserError, match=r"x has the value 1.0e\+30, too large .*input_scaling"):
        heard(X * 1e30, Y, tmp_path, model={"input_scaling": "none"})


def test_an_encoder_of_ones_own_hears_of_features_far_apart_too() -> None:
    x = np.random.default_rng(0).normal(size=X.shape) * [1.0, 1e6, 1, 1] + X
    data = so.FederatedDataset.from_arrays(x, Y), so.Examples.from_arrays(x, Y)
    plain = torch.nn.Linear(4, 3)
    observer = Heard()
    so.run({"rounds": 1}, data=data, encoder=plain, observer=observer)
    (said,) = [s for s in observer.said if s.startswith("deviations of features")]
    assert said.endswith("; scale the features, or begin your encoder with so.Standardized(4)")
    observer = Heard()
    scaled = torch.nn.Sequential(so.Standardized(4), plain)
    result = so.run({"rounds": 1}, data=data, encoder=scaled, observer=observer)
    assert not [s for s in observer.said if s.startswith("deviations of features")]
    mean = result.encoder.get_parameter("0.mean")  # the remedy does what it is named for
    np.testing.assert_allclose(mean.detach(), x.mean(0), rtol=1e-4, atol=1e-4)
    with pytest.raises(so.UserError, match=r"encoder: has so.Standardized: .* with \[privacy\] scale"):
        so.run({"rounds": 1, "privacy": {"clip": 1.0, "noise": 1.0}}, data=data, encoder=scaled)


def test_users_who_are_all_shorter_than_a_batch(tmp_path: Path) -> None:
    rows = [f"u{u},i{(u + t) % 9},{t}" for u in range(30) for t in range(4 if u else 9)]
    (tmp_path / "events.csv").write_text("\n".join(["user,item,time", *rows]) + "\n")
    config = {
        "rounds": 2,
        "data": {"source": "interactions", "path": str(tmp_path / "events.csv")},
        "method": {"name": "dual_encoder"},
        "clients": {"drop_remainder": True, "batch": 16, "selection": "uniform"},
    }
    with pytest.raises(so.UserError, match=r"every client has fewer examples than clients.batch = 16"):
        so.run(config)
    observer = Heard()
    so.run({**config, "clients": {**config["clients"], "batch": 4}}, observer=observer)  # type: ignore[dict-item]
    assert any("23 of 24 clients have fewer examples than clients.batch = 4" in s for s in observer.said)
    quiet = Heard()
    so.run({**config, "clients": {}}, observer=quiet)
    assert quiet.said == []


def test_fedmlh_on_two_classes_trains_and_too_many_buckets_say_what_to_take(tmp_path: Path) -> None:
    assert heard(X[:16], Y[:16], tmp_path, method={"name": "fedmlh"}) == []
    for x, y in ((X[:16], Y[:16]), (X, Y)):
        with pytest.raises(so.UserError, match=r'method\.buckets = 3: .*take name = "fedavg-bce"'):
            heard(x, y, tmp_path, method={"name": "fedmlh", "buckets": 3})
    assert heard(X[:16], Y[:16], tmp_path, method={"name": "fedavg-bce"}) == []


def test_a_run_with_few_evaluations_can_be_unfinished() -> None:
    def records(*scores: float) -> list[dict[str, object]]:
        return [{"round": 10 * i, "P@1": score} for i, score in enumerate(scores)]

    found = diagnosis.unfinished(EvalConfig(), records(10.0, 40.0, 60.0), 20)
    assert found is not None
    assert found.sign == "P@1 rose by 20.00 up to the last of 3 evaluations, in round 20"
    assert found.remedy.startswith("set rounds = 160")
    assert diagnosis.unfinished(EvalConfig(), records(10.0, 60.0, 60.5), 20) is None
    assert diagnosis.unfinished(EvalConfig(), records(10.0, 60.0, 55.0), 20) is None
    assert diagnosis.unfinished(EvalConfig(), records(10.0, 100.0), 20) is None
    assert diagnosis.unfinished(EvalConfig(), records(10.0), 20) is None


def _from_one() -> so.Splits:
    train = so.FederatedDataset.from_arrays(X, Y + 1, Y)
    return so.Splits("from one", train, so.Examples.from_arrays(X, Y + 1))


def test_what_is_said_of_the_data_stays_in_the_folder_and_on_its_page(tmp_path: Path) -> None:
    observer = Heard()
    calls = iter(range(100))
    with pytest.raises(so.Interrupted):
        so.run(
            so.Experiment(rounds=3),
            data=_from_one(),
            out=tmp_path / "run",
            observer=observer,
            stop=lambda: next(calls) == 0,
        )
    (said,) = (one for one in observer.said if "no training example has class 0" in one)
    (cut,) = arms_of(tmp_path / "run")
    assert cut.summaries[0]["data_notes"] == observer.said
    assert said in page([cut], "cut")
    result = so.resume(tmp_path / "run", data=_from_one())
    assert result.summary["data_notes"] == observer.said
    (done,) = arms_of(tmp_path / "run")
    assert said in page([done], "done")


def test_a_private_run_keeps_no_word_of_its_rows(tmp_path: Path) -> None:
    observer = Heard()
    private = so.Experiment.of({"rounds": 1, "privacy": {"clip": 1.0, "noise": 1.0}})
    so.run(private, data=_from_one(), out=tmp_path / "run", observer=observer)
    (said,) = (one for one in observer.said if "no training example has class 0" in one)
    assert arms_of(tmp_path / "run")[0].summaries[0]["data_notes"] == []
    written = [path.read_text() for path in (tmp_path / "run").rglob("*.json*")]
    assert not any(said[:40] in text for text in written)
