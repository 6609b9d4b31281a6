"""What our results say to each question: means, and on how many sets seeds part two methods."""

from typing import Any

from benchmarks.quote import which


def _runs(name: str, method: str, *scores: float) -> list[dict[str, Any]]:
    return [
        {"set": name, "method": method, "seed": seed, "metrics": {"P@1": score}}
        for seed, score in enumerate(scores)
    ]


def test_a_lead_in_the_mean_is_told_apart_from_one_with_every_seed() -> None:
    runs = [
        *_runs("parted", "one", 52.0, 53.0),
        *_runs("parted", "other", 50.0, 51.0),
        *_runs(
            "mixed", "one", 52.0, 53.0
        ),  # ahead in the mean, and with each seed, but by less than seeds differ
        *_runs("mixed", "other", 51.5, 52.5),
        *_runs("behind", "one", 40.0),
        *_runs("behind", "other", 44.0, 45.0),
        *_runs("alone", "one", 99.0),
    ]
    said = which._ahead({"runs": runs}, "one", "A", "other", "B")
    assert "A is ahead of B in the mean of P@1 on 2 of 3 sets, +2.0 (parted) to −4.5 (behind)" in said
    assert said.endswith("above every seed of the other on 1, and below on 1")


def test_seeds_are_those_of_the_cell_with_the_fewest_and_the_most() -> None:
    runs = [*_runs("a", "one", 1.0, 2.0, 3.0), *_runs("b", "one", 1.0)]
    assert which.seeds_of({"runs": runs}) == "1 to 3"
    assert which.seeds_of({"runs": runs[:3]}) == "3"
    assert which.seeds_of({"seeds": [0, 1]}) == "2"
    assert which.seeds_of({"draws": [{"MAP@10": {"values": [1.0, 2.0]}}]}) == "2"
    assert which.seeds_of({"draws": [{}]}) == "–"
