"""The attack benchmark itself: what hostile clients send, which settings are chosen, what is kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.quote import attacks as quote
from benchmarks.security import attacks
from benchmarks.security.cases import ABSENT, DEFAULT, MEAN, NONE, RULES, Case, Guard, cases_of, chosen
from benchmarks.security.hostile import ATTACKS, forged_dense, forged_rows, little, opposed, with_mark
from benchmarks.security.results import Results
from benchmarks.security.scenarios import SCENARIOS, TARGET, Scenario


def test_rows_are_forged_against_the_same_rows_of_honest_clients() -> None:
    ids = torch.tensor([[0, 2], [2, 3], [3, -1], [2, 5]])
    hostile = torch.tensor([False, False, False, True])
    change = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))
    change[2, 1] = 0.0  # padding
    sent = forged_rows(opposed, change, ids, hostile)
    assert torch.equal(sent[:3], change[:3])
    torch.testing.assert_close(sent[3, 0], -10 * (change[0, 1] + change[1, 0]) / 2)
    torch.testing.assert_close(sent[3, 1], -10 * change[3, 1])  # nobody else holds row 5
    sent = forged_rows(little, change, ids, hostile)
    two = torch.stack([change[0, 1], change[1, 0]])
    torch.testing.assert_close(sent[3, 0], two.mean(0) - 1.5 * two.std(0, correction=0))


def test_dense_parts_are_forged_out_of_the_honest_ones() -> None:
    change = torch.tensor([[1.0, 2.0], [3.0, 2.0], [100.0, 100.0]])
    hostile = torch.tensor([False, False, True])
    assert forged_dense(opposed, change, hostile).tolist() == [[1, 2], [3, 2], [-20, -20]]
    assert forged_dense(little, change, hostile)[2, 1] == 2.0  # the honest ones agree


def test_every_method_is_attacked_in_every_way_what_matters_most_first() -> None:
    guards = {method: [Guard(rule) for rule in RULES] for method in SCENARIOS}
    cases = list(dict.fromkeys(cases_of(guards, list(ATTACKS), [0.1, 0.2], [0, 1])))
    assert len(cases) == len(SCENARIOS) * len(RULES) * 2 * (1 + 2 * (1 + len(ATTACKS)))
    later = [case for case in cases if case.share == 0.2]
    assert cases[-len(later) :] == later
    assert {case.guard.rule for case in later[: len(later) // 6]} == {MEAN, DEFAULT}


def test_the_best_settings_of_tuning_are_taken_but_the_default_as_it_comes() -> None:
    def ran(rule: str, score: float, settings: list[str], attack: str = "sign flip") -> dict[str, Any]:
        return {"guard": str(Guard(rule, tuple(settings))), "attack": attack, "score": score}

    for rule, best in (("median", 1), (DEFAULT, 0)):
        runs = [ran(rule, 50 + (i == 1), settings) for i, settings in enumerate(RULES[rule])]
        runs += [ran(rule, 99, settings, NONE) for settings in RULES[rule][:1]]
        assert chosen(runs, rule).settings == tuple(RULES[rule][best])
        assert chosen(runs[:1], rule).settings == tuple(RULES[rule][0])  # not all have been tried


def test_runs_of_another_config_are_made_again(tmp_path: Path) -> None:
    case = Case("fedaws", Guard("spectral", ("server.robust.trim={share}",)), "sign flip", 0.2, 0)
    assert case.experiment().server.robust.trim == 0.2  # type: ignore[attr-defined]
    results = Results.open("fedaws", tmp_path / "one.json")
    results.add(case, {"score": 1.0}, "commit")
    results.write()
    again = Results.open("fedaws", tmp_path / "one.json")
    assert again.has(case)
    assert not again.has(replace(case, seed=1))
    again.configs[str(case.guard)] += "# another"
    assert not again.has(case)
    again.add(replace(case, seed=1), {"score": 2.0}, "commit")
    assert not again.has(case)


def test_runs_with_settings_that_are_no_longer_chosen_go(tmp_path: Path) -> None:
    results = Results.open("fedaws", tmp_path / "one.json")
    old, new, other = Guard("median"), Guard("median", ("server.robust.bucket=3",)), Guard("mean")
    for guard in (old, new, other):
        results.add(Case("fedaws", guard, NONE, 0.0, 0), {"score": 1.0}, "commit")
    results.keep_only([new])
    assert {one["guard"] for one in results.runs.values()} == set(results.configs) == {str(new), "mean"}


def test_a_claim_owns_the_mean_and_a_cap_ends_that(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Scenario.experiment
    monkeypatch.setattr(
        Scenario, "experiment", lambda self, seed, *words: load(self, seed, *words, "rounds=25")
    )
    scores = {
        (rule, attack): attacks.run(Case("fedaws", Guard(rule), attack, 0.1, 0))["score"]
        for rule, attack in ((MEAN, ABSENT), (MEAN, "claims"), (DEFAULT, "claims"))
    }
    assert scores[MEAN, ABSENT] > 60
    assert scores[MEAN, "claims"] < 20
    assert scores[DEFAULT, "claims"] > scores[MEAN, ABSENT] - 10


@pytest.mark.parametrize("method", SCENARIOS)
def test_a_backdoor_is_judged_on_marked_examples_of_other_classes(method: str) -> None:
    data = SCENARIOS[method].data(0)
    marked = with_mark(data.test)
    assert 0 < len(marked) < len(data.test)
    assert bool((marked.labels.values == TARGET).all())


def test_what_is_lost_is_counted_from_the_federation_without_the_hostile_clients() -> None:
    def ran(rule: str, attack: str, seed: int, score: float) -> dict[str, Any]:
        return {"rule": rule, "attack": attack, "share": 0.1, "seed": seed, "score": score}

    runs = [ran("mean", ABSENT, 0, 90.0), ran("mean", ABSENT, 1, 80.0)]
    runs += [ran("median", "claims", 0, 89.0), ran("median", "claims", 1, 78.0)]
    made = {"runs": {str(i): one for i, one in enumerate(runs)}}
    assert quote._lost(made, "median", "claims", 0.1) == pytest.approx(1.5)
