"""Rules for a prior over classes on a made-up table of cosines; rows that are drawn from a set."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.defaults import prior_rules
from benchmarks.defaults.prior_rules import RULES, scores
from benchmarks.defaults.small_sets import drawn
from spreadout.evaluation import cautious_prior

DEFAULT = "validation counts, cautiously"


def table(labels: list[int], ahead: list[float], classes: int) -> tuple[Tensor, Tensor]:
    """Cosines, and what is right: each label is ahead of the other classes, or behind class 1."""
    right = torch.zeros(len(labels), classes, dtype=torch.bool)
    right[torch.arange(len(labels)), torch.tensor(labels)] = True
    cosines = torch.zeros(len(labels), classes)
    for row, (label, by) in enumerate(zip(labels, ahead, strict=True)):
        cosines[row, label if by > 0 else 1] = abs(by)
    return cosines, right


def test_a_likely_prior_that_ranks_fewer_right_is_not_taken() -> None:
    """Rare classes are right by a hair, and some of the frequent one so wrong that none puts them right."""
    labels = [0] * 24 + [1, 2, 3, 4, 5, 6]
    cosines, right = table(labels, [0.3] * 20 + [-0.9] * 4 + [0.004] * 6, classes=7)
    counts = torch.tensor([240.0, 10, 10, 10, 10, 10, 10])
    for whose in ("validation", "clients'"):
        unguarded = RULES[f"{whose} counts, cautiously, unguarded"](cosines, right, counts)
        assert unguarded[0] - unguarded[1] > 0.1
        assert not RULES[f"{whose} counts, cautiously"](cosines, right, counts).any()


def test_where_cosines_say_nothing_the_frequent_class_wins() -> None:
    cosines, right = table([0] * 15 + [1] * 5, [-0.2] * 15 + [0.2] * 5, classes=2)  # always class 1
    found = RULES[DEFAULT](cosines, right, torch.tensor([1.0, 1000.0]))  # clients' counts have no say
    assert ((cosines + found).argmax(1) == 0).all()
    assert not RULES["no prior"](cosines, right, torch.tensor([1.0, 1000.0])).any()


def test_each_example_is_left_out_of_its_own_counts_while_the_weight_is_chosen() -> None:
    labels = [0, 0, 0, 1, 2]
    cosines, right = table(labels, [0.1, -0.2, 0.3, 0.1, 0.2], classes=4)
    seen: list[Tensor] = []

    def spy(scores: Tensor, right: Tensor, bias: Tensor) -> float:
        seen.append(bias.exp())
        return cautious_prior.weight(scores, right, bias)

    found = prior_rules._held_out(cosines, right, torch.ones(4), spy)
    others = [
        [1 + sum(b == c for j, b in enumerate(labels) if j != i) for c in range(4)] for i in range(5)
    ]
    assert torch.allclose(seen[0], torch.tensor(others).float())
    assert torch.equal(found, RULES[DEFAULT](cosines, right, torch.ones(4)))


def test_a_rule_scores_the_last_model_as_good_as_the_best_by_validation() -> None:
    labels = torch.eye(2, dtype=torch.bool)[[0, 0, 0, 1]]
    good, bad = labels.float(), 1 - labels.float()
    made = {
        "validation": torch.stack([bad, good, good, bad]),
        "test": torch.stack([good, good, bad, good]),
        "validation labels": labels,
        "test labels": labels,
        "counts": torch.tensor([3.0, 1.0]),
    }
    found = scores(made)
    assert list(found) == ["most frequent", *RULES]
    assert found["most frequent"] == 75.0
    assert found["no prior"] == 0.0  # of the third model: as good as the second by validation


def test_rows_to_train_on_and_to_judge_by_have_none_in_common(tmp_path: Path) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    head = "@relation some\n@attribute a numeric\n@attribute b {0,1}\n@data\n"
    (folder / "some-train.arff").write_text(head + "".join(f"{i},1\n" for i in range(10)) + "% end\n")
    (folder / "some.xml").write_text("<labels><label name='b'/></labels>")
    parts = []
    for seed in (0, 1):
        out = drawn(folder, 4, seed, tmp_path / "drawn")
        parts.append([_rows(out / f"some-{part}.arff", head) for part in ("train", "test")])
    for train, test in parts:
        assert len(train) == 4
        assert sorted(train + test) == [f"{i},1" for i in range(10)]
    assert parts[0] != parts[1]
    with pytest.raises(FileExistsError):
        drawn(folder, 4, 0, tmp_path / "drawn")


def _rows(path: Path, head: str) -> list[str]:
    text = path.read_text()
    assert text.startswith(head)
    return text.removeprefix(head).split()
