"""`eval.keep = "best"`: the last model that validation examples like no less than the best, but for chance."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import spreadout as so
from faulty import blobs
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.early_stopping import best_of, chance, out_of_patience, shown_of

KEYS = (
    "rounds=12", "eval.every=2", "data.validation_fraction=0.2", "clients.local_steps=3",
    "clients.lr=3.0", "eval.references=false",
)  # fmt: skip


def experiment(*overrides: str) -> so.Experiment:
    """Rates so large that scores go up and down."""
    return so.Experiment.load("digits-fedaws", [*KEYS, *overrides])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "weights.safetensors")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> so.Result:
    return so.run(experiment("eval.keep=best"), out=tmp_path_factory.mktemp("kept") / "run")


def test_the_model_is_that_of_the_best_round_by_validation_examples(
    kept: so.Result, tmp_path: Path
) -> None:
    scores = [record["validation P@1"] for record in kept.history]
    share, held = max(scores) / 100, 0.2 * 1257  # 1,257 of 1,797 digits are for training
    error = 100 * math.sqrt(share * (1 - share) / round(held))
    best = max(place for place, score in enumerate(scores) if score >= max(scores) - error)
    at = kept.history[best]["round"]
    assert 0 < at < 12, "this test needs a run whose last model is not its best"
    assert kept.summary["kept_round"] == at
    assert kept.metrics["P@1"] == kept.history[best]["P@1"]
    so.run(experiment(f"rounds={at}", "eval.keep=last"), out=tmp_path / "run")
    assert kept.folder is not None
    ours, theirs = weights(kept.folder), weights(tmp_path / "run")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert torch.equal(kept.state.tables["classes"], theirs["table.classes"])


def test_the_last_model_is_kept_where_that_is_asked() -> None:
    last = so.run(experiment("rounds=4", "eval.keep=last"))
    assert "validation P@1" not in last.history[-1]
    assert last.summary["kept_round"] == 4
    assert not last.state.kept


def test_the_kept_model_survives_an_interruption(kept: so.Result, tmp_path: Path) -> None:
    at = int(kept.summary["kept_round"])
    rounds = iter(range(1, 100))
    with pytest.raises(so.Interrupted):
        so.run(
            experiment("eval.keep=best"),
            out=tmp_path / "run",
            stop=lambda: next(rounds) == at + 1,
        )
    again = so.resume(tmp_path / "run")
    assert again.summary["kept_round"] == at
    assert kept.folder is not None
    ours, theirs = weights(kept.folder), weights(tmp_path / "run")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_patience_counts_by_validation_examples_where_there_are_some(keep: str) -> None:
    found = so.run(experiment(f"eval.keep={keep}", "eval.patience=1"))
    scores = [record["validation P@1"] for record in found.history]
    assert scores[-1] <= max(scores[:-1])
    assert scores[-2] == max(scores)


def test_nothing_is_chosen_by_test_examples() -> None:
    with pytest.raises(so.UserError, match=r"no validation examples .* data.validation_fraction"):
        so.run(experiment("eval.keep=best", "data.validation_fraction=0"))


def test_which_round_was_best_is_no_matter_of_test_examples() -> None:
    test = [{"P@1": score} for score in (50.0, 90.0, 60.0)]
    both = [
        {**record, "validation P@1": score}
        for record, score in zip(test, (70.0, 30.0, 60.0), strict=True)
    ]
    judged = EvalConfig()
    assert best_of(judged, both) == 0
    assert best_of(judged, test) == 2  # nothing says which: the last one
    assert best_of(EvalConfig(split="validation"), test) == 1  # they are scores of validation examples
    patient = EvalConfig(patience=1)
    assert out_of_patience(patient, both)
    assert not out_of_patience(patient, test)
    assert best_of(judged, [*test, both[1]]) == 3  # as of a run that was gone on with


def test_a_run_that_holds_nothing_out_says_nothing_of_a_best_round() -> None:
    found = so.run(experiment("data.validation_fraction=0", "eval.keep=last"))
    scores = [record["P@1"] for record in found.history]
    assert max(scores) > scores[-1]  # or it would prove nothing
    assert found.summary["best"]["round"] == found.summary["rounds"]
    assert found.summary["best"]["P@1"] == scores[-1]


@pytest.mark.parametrize(
    "asked",
    [
        "eval.keep=best",
        "eval.split=validation",
        "eval.patience=3",
        "eval.decode=both",
        "method.prior=validation",
    ],
)
@pytest.mark.parametrize("share", [0, 0.2])
def test_of_data_given_in_python_a_config_holds_nothing_out(asked: str, share: float) -> None:
    """Whatever it says: the remedy is to give a part."""
    changes = [asked, "rounds=1", f"data.validation_fraction={share}"]
    if asked == "eval.split=validation" and not share:
        changes.pop()  # the config itself refuses both
    config = so.Experiment.of({}, overrides=changes)
    with pytest.raises(so.UserError, match="or give Splits of your own a validation part"):
        so.run(config, data=blobs())
    assert so.run(config, data=blobs(validation=3)).metrics


def test_of_few_examples_the_highest_score_is_luck() -> None:
    def history(examples: int, *scores: float) -> list[dict[str, object]]:
        found = EvalConfig(keep="best")
        return [{"validation P@1": s, "validation chance": chance(found, s, examples)} for s in scores]

    few, many = history(30, 40.0, 60.0, 53.0, 45.0), history(3000, 40.0, 60.0, 53.0, 45.0)
    config = EvalConfig(keep="best")
    assert shown_of(config, few) == 2  # 60 ± 9
    assert shown_of(config, many) == 1  # 60 ± 0.9
    assert shown_of(EvalConfig(), [{"P@1": s} for s in (3.0, 2.0, 1.0)]) == 2
