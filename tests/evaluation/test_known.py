"""Classes by the labels of the nearest known examples, held against a plain loop."""

from pathlib import Path

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.cli.main import main
from spreadout.core.ragged import Ragged
from spreadout.core.rows import project_to_sphere
from spreadout.evaluation.known import KnownExamples, _within
from spreadout.objectives.neighbours import nearest


def by_loop(known: KnownExamples, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Every class's score: its share of the votes, and its own score by its weight. (C,)"""
    cosines = known.rows @ x[: known.rows.shape[1]]
    voters = sorted(range(len(known.rows)), key=lambda i: -float(cosines[i]))[: known.neighbours]
    total = sum(max(float(cosines[i]), 0.0) for i in voters)
    scores = known.own * (table @ x)
    for i in voters:
        for label in known.labels[i].tolist():
            scores[label] += max(float(cosines[i]), 0.0) / total
    return scores


@pytest.mark.parametrize("own", [1e-6, 1.0])
def test_votes_are_those_of_a_plain_loop(own: float) -> None:
    draw = torch.Generator().manual_seed(0)
    rows, table, asked = (project_to_sphere(torch.randn(n, 6, generator=draw)) for n in (40, 15, 12))
    sets = [torch.randperm(15, generator=draw)[: 1 + i % 4].tolist() for i in range(40)]
    known = KnownExamples(rows, Ragged.from_lists(sets), 7, own)
    found = known.best(asked, table, nearest(asked, table, 4))
    for x, ids, scores in zip(asked, found.ids, found.scores, strict=True):
        every = by_loop(known, x, table)
        assert len(set(ids.tolist())) == 4
        torch.testing.assert_close(scores, every[ids])
        torch.testing.assert_close(scores, every.topk(4).values, atol=1e-5, rtol=1e-5)


def test_few_known_examples_leave_the_rest_to_class_vectors() -> None:
    table = torch.eye(4)
    known = KnownExamples(torch.eye(4)[:1], Ragged.from_lists([[2]]), 20)
    asked = project_to_sphere(torch.tensor([[0.5, 0.9, 0.1, 0.3]]))
    assert known.best(asked, table, nearest(asked, table, 3)).ids.tolist() == [[2, 1, 0]]


def test_labels_without_a_row_have_no_vote() -> None:
    labels = _within(Ragged.from_lists([[0, 9], [9], [], [2, 1]]), first=1, classes=3)
    assert [labels[i].tolist() for i in range(4)] == [[], [], [], [2, 1]]


def test_a_decoding_that_is_none_is_refused() -> None:
    data = so.load_data(so.DataConfig(source="digits", validation_fraction=0.1))
    predictor = so.run(so.Experiment.of({**settings(), "rounds": 1}), data=data).predictor
    with pytest.raises(so.UserError, match=r"decode = 'kn': must be \"knn\" or \"both\""):
        predictor.by_neighbours(data.validation, "kn")  # type: ignore[arg-type]


def settings(**eval_: object) -> dict[str, object]:
    scored = {"metrics": ["P@1"], "every": 10, "references": False, **eval_}
    return {"rounds": 10, "chosen": [], "method": {"name": "fedaws"}, "eval": scored}


def test_a_run_is_scored_by_the_votes_of_its_validation_examples() -> None:
    data = so.load_data(so.DataConfig(source="digits", validation_fraction=0.3))
    voted = so.run(settings(decode="knn", neighbours=5), data=data)
    predictor = voted.predictor.by_neighbours(data.validation, "knn", 5)
    x = data.test.inputs["x"].take(torch.arange(len(data.test)))
    first = [guesses[0].id for guesses in predictor.predict(x, top=1)]
    right = [str(int(labels)) for labels in data.test.labels.values]
    share = 100 * sum(a == b for a, b in zip(first, right, strict=True)) / len(right)
    assert voted.metrics["P@1"] == pytest.approx(share)
    assert share > 60


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({**settings(decode="knn")}, "no validation examples to vote"),
        (
            {**settings(decode="knn", split="validation"), "data": {"validation_fraction": 0.2}},
            "others are scored",
        ),
        ({**settings(neighbours=3)}, "eval.neighbours"),
        (
            {
                **settings(decode="both"),
                "method": {"name": "fedmlh", "buckets": 5},
                "data": {"validation_fraction": 0.2},
            },
            "has no embeddings",
        ),
    ],
)
def test_votes_that_cannot_be_are_refused(config: dict[str, object], complaint: str) -> None:
    with pytest.raises(so.UserError, match=complaint):
        so.run(so.Experiment.of(config))


def test_the_command_asks_the_examples_that_were_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {**settings(), "rounds": 2, "data": {"validation_fraction": 0.2}}
    experiment = so.Experiment.of(config)
    result = so.run(experiment, out=tmp_path / "run")
    data = so.load_data(experiment.data, 0)
    x = data.test.inputs["x"].take(torch.arange(3)).numpy()
    np.save(tmp_path / "x.npy", x)
    said = {}
    for decode in ("classes", "knn", "both", "far"):
        arguments = ["predict", str(tmp_path / "run"), "--input", str(tmp_path / "x.npy"), "--top", "1"]
        monkeypatch.setattr("sys.argv", ["spreadout", *arguments, "--decode", decode])
        with pytest.raises(SystemExit) as stopped:
            main()
        said[decode] = (stopped.value.code or 0, capsys.readouterr())
    assert [code for code, _ in said.values()] == [0, 0, 0, 2]
    assert "must be classes, knn or both" in said["far"][1].err
    voted = result.predictor.by_neighbours(data.validation)
    best = voted.predict(x, top=1)[0][0]
    assert f"{best.score:7.4f}  {best.id}" in said["knn"][1].out
