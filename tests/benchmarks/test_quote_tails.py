"""What is said of roots of long tails: gains by rule, of every second set."""

from typing import Any

import pytest

from benchmarks.quote import tails as quoted
from benchmarks.quote.columns import METHODS


def run(name: str, score: float, seed: int, method: str, *rules: float) -> dict[str, Any]:
    shared = {"set": name, "seed": seed, "method": method, "metrics": {"P@1": score}}
    return {**shared, "rules": list(rules)}


def both(name: str, plain: float, gains: dict[tuple[float, ...], float]) -> list[dict[str, Any]]:
    """Two seeds of each method, the second two points higher, whatever is changed."""
    return [
        run(name, plain + gain + 2 * seed - (method == "fedss"), seed, method, *rules)
        for seed in (0, 1)
        for method in METHODS
        for rules, gain in {(): 0.0, **gains}.items()
    ]


def test_a_rule_is_judged_on_the_sets_that_it_was_not_chosen_on(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        *both("a", 80.0, {(2.7, 4.0): 3.0, (10.0,): 1.0}),
        *both("b", 60.0, {(2.7,): -2.0}),
        *both("c", 50.0, {(2.7, 4.0, 10.0): 1.0}),
        run("d", 50.0, 0, "fedaws"),  # not whole: no run of FedSS
    ]
    about = {"commit": "c", "hardware": "h", "versions": {"torch": "2"}, "runs": runs}
    monkeypatch.setattr(quoted, "read", lambda path: about)
    monkeypatch.setattr("benchmarks.quote.tables.read", lambda path: about)
    lines = quoted.by_rule("f", half=0).splitlines()
    assert [line for line in lines if line.startswith("| a")] == [
        "| a | 2 | 81.0 | +3.0 | +3.0 | +1.0 | 80.0 | +3.0 | +3.0 | +1.0 |"
    ]
    assert "| mean | | | +2.00 | +2.00 | +1.00 | | +2.00 | +2.00 | +1.00 |" in lines
    lines = quoted.by_rule("f", half=1).splitlines()
    assert "| b | 2 | 61.0 | -2.0 | | | 60.0 | -2.0 | | |" in lines
    assert "| mean | | | -2.00 | +0.00 | +0.00 | | -2.00 | +0.00 | +0.00 |" in lines
