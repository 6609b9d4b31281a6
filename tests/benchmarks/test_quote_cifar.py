"""Table 1 in documents: test scores, how far from the oracle's, and which points there were."""

from typing import Any

import pytest

from benchmarks.quote import cifar

NET = "cifar-10 resnet8"


def _run(
    arm: str, point: int, lr: float, score: float, *, test: bool = False, decay: float | None = None
) -> dict[str, Any]:
    named = {"net": NET, "arm": arm, "point": point, "test": test, "seed": 0, "P@1": score}
    server = {"lr": lr} if decay is None else {"lr": lr, "weight_decay": decay}
    return {
        **named,
        "epochs": 40 if test else 6,
        "settings": {"server": server, "method": {"margin": 0.9}},
    }


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"fedaws": 83.7, "centralized": 81.9}
    about = {"epochs": 40, "seeds": 1}
    file = {
        **{"norm": "batch", "tuning epochs": 6},
        "table": [{"net": NET, "arm": arm, "P@1": score, **about} for arm, score in scores.items()],
        "runs": [
            _run("fedaws", 0, 0.4, 57.3),
            _run("fedaws", 1, 0.1, 54.0),
            _run("fedaws", 0, 0.4, 83.7, test=True),
            _run("centralized", 0, 0.02, 60.2, decay=5e-4),
            _run("centralized", 1, 0.02, 61.3, decay=2e-3),
            _run("centralized", 0, 0.02, 81.9, test=True),
        ],
    }
    monkeypatch.setattr(cifar, "read", lambda path: file)
    monkeypatch.setattr(cifar, "table", lambda head, rows, *paths, note="": [note, *rows])


@pytest.mark.usefixtures("made")
def test_arms_are_beside_the_oracle_and_the_paper() -> None:
    found: Any = cifar.arms("x.json")
    note, fedaws, oracle = found
    assert note == "40 epochs, 1 seed, norm: batch."
    scores = ["83.7", "+1.8", "86.3", "−2.1"]
    assert fedaws == ["CIFAR-10, ResNet-8", "FedAwS", *scores, "40", "lr 0.4, margin 0.9"]
    assert oracle[1:6] == ["Softmax oracle", "81.9", "–", "88.4", "–"]


@pytest.mark.usefixtures("made")
def test_points_are_by_their_rate_and_the_chosen_one_is_bold() -> None:
    found: Any = cifar.points("x.json")
    note, fedaws, oracle = found
    assert "P@1 after 6 epochs" in note
    assert fedaws == ["CIFAR-10, ResNet-8", "FedAwS", "0.1: 54.0", "0.4: **57.3**"]
    assert oracle[2:] == ["0.02, 0.0005: 60.2", "0.02, 0.002: **61.3**"]


@pytest.mark.usefixtures("made")
def test_points_beyond_the_rates_are_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [_run("fedaws-rows", i, 0.4, score) for i, score in ((1, 52.0), (0, 51.7), (2, 49.4))]
    tested = _run("fedaws-rows", 1, 0.4, 64.9, test=True)
    monkeypatch.setattr(cifar, "read", lambda path: {"runs": [*runs, tested]})
    found: Any = cifar.all_settings("x.json")
    assert found[0] == "After 6 epochs; the best of an arm in bold."
    assert [row[3] for row in found[1:]] == ["51.7", "**52.0**", "49.4"]
