"""A rule chosen on some sets is judged on the one that was left out."""

from typing import Any

import pytest

from benchmarks.defaults.leave_one_out import BY_SIZE, DEFAULT, HIDDEN, judged, rule_of, scores_of
from benchmarks.defaults.points import adam
from spreadout.core.errors import UserError


def run(name: str, score: float, *changes: str, method: str = "fedaws") -> dict[str, Any]:
    return {"set": name, "method": method, "changes": list(changes), "metrics": {"P@1": score}}


def test_points_have_names_and_the_other_encoder_is_one_rule() -> None:
    assert rule_of([]) == DEFAULT
    assert rule_of(["model.hidden=[]"]) == rule_of(["model.hidden=[256]"]) == HIDDEN
    assert rule_of(adam(0.003)) == "server.lr=0.003"


def test_the_set_left_out_has_no_say() -> None:
    runs = [run("a", 100.0), run("b", 50.0), run("c", 50.0)]
    runs += [run("a", 50.0, "rounds=9"), run("b", 100.0, "rounds=9"), run("c", 40.0, "rounds=9")]
    found = judged(scores_of(runs, "fedaws"))
    # Without a: 0.75 and 0.9 in the mean; without b: 1 and 0.65; without c: equal, the first is taken.
    chosen = {one["set"]: (one["chosen"], one["share"]) for one in found["left out"]}
    assert chosen == {"a": ("rounds=9", 0.5), "b": (DEFAULT, 0.5), "c": (DEFAULT, 1.0)}
    assert found["rules"][DEFAULT]["mean share"] == pytest.approx(2.5 / 3, abs=1e-4)
    assert found["rules"][DEFAULT]["smallest"] == 0.5


def test_rules_that_were_not_tried_everywhere_are_left_out() -> None:
    runs = [run("a", 1.0), run("b", 1.0), run("a", 9.0, "rounds=9")]
    with pytest.raises(UserError, match="1 rules were tried on all of 2 sets"):
        scores_of(runs, "fedaws")


def test_a_rule_by_size_takes_each_rate_where_it_belongs() -> None:
    runs = [run("digits", 1.0, method="fedss"), run("bibtex", 2.0, method="fedss")]
    runs += [run("digits", 3.0, *adam(0.003), method="fedss")]
    runs += [run("bibtex", 4.0, *adam(0.003), method="fedss")]
    assert scores_of(runs, "fedss")[BY_SIZE] == {"digits": 1.0, "bibtex": 4.0}
