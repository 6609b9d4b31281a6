"""How strongly classes are pushed apart may be off by a factor of a hundred."""

import pytest

import spreadout as so

STRENGTHS = (0.01, 1, 100)


@pytest.fixture(scope="module")
def unset() -> float:
    return pushed().metrics["P@1"]


def pushed(*changes: str) -> so.Result:
    asked = {"method": {"name": "fedaws"}, "rounds": 60, "eval": {"references": False}}
    return so.run(so.Experiment.of(asked, overrides=changes), device="cpu")


@pytest.mark.parametrize("strength", STRENGTHS)
def test_any_strength_within_a_factor_of_a_hundred_does_no_harm(unset: float, strength: float) -> None:
    found = pushed(f"method.strength={strength}")
    assert unset > 90
    assert abs(found.metrics["P@1"] - unset) < 2
    assert {"collapse", "overshoot"}.isdisjoint(one["name"] for one in found.summary["findings"])
