"""What is said of roots of long tails: gains by rule, of all sets or of every second one."""

from typing import Any

import pytest

from benchmarks.quote import tails as quoted
from benchmarks.quote.columns import METHODS

RULES = (2.7, 4.0, 10.0)


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


def test_gains_are_means_over_seeds_with_which_both_methods_were_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = [
        *both("a", 80.0, {(2.7, 4.0): 3.0, (10.0,): 1.0}),
        run("a", 10.0, 2, "fedaws"),  # a seed of nothing else
        *(run("a", 71.0, 3, method) for method in METHODS),  # by whose rows no tail is long
        *both("b", 60.0, {(2.7,): -2.0}),
        *both("c", 50.0, {(2.7, 4.0, 10.0): 1.0}),
        run("d", 50.0, 0, "fedaws"),  # no run of FedSS
    ]
    about = {"commit": "c", "hardware": "h", "versions": {"torch": "2"}, "runs": runs}
    monkeypatch.setattr(quoted, "read", lambda path: about)
    monkeypatch.setattr("benchmarks.quote.tables.read", lambda path: about)
    lines = quoted.gains("f", RULES, half=0).splitlines()
    assert "| a | 3 | 77.7 | +2.0 | +2.0 | +0.7 | 77.0 | +2.0 | +2.0 | +0.7 |" in lines
    of_method = "+1.50 ± 0.50 | +1.50 ± 0.50 | +0.83 ± 0.17"
    assert f"| mean | | | {of_method} | | {of_method} |" in lines
    lines = quoted.gains("f", RULES, half=1, mean=False).splitlines()
    assert [line for line in lines if line.startswith(("| a", "| b", "| c", "| d", "| m"))] == [
        "| b | 2 | 61.0 | -2.0 | | | 60.0 | -2.0 | | |"
    ]
    assert len([line for line in quoted.gains("f", RULES).splitlines() if line.startswith("|")]) == 6
