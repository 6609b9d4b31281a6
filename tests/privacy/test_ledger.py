"""A node's own count: over runs, through crashes, and up to its budget."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spreadout.core.chained_log import ChainedLog
from spreadout.core.errors import UserError
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.ledger import LEDGER, Budget, NodeLedger, Release


def test_releases_add_up_over_runs_of_different_noise(tmp_path: Path) -> None:
    ledger = NodeLedger(tmp_path, Budget(100.0))
    assert ledger.spend(Release("a", 0, 5.0), [1, 2]) == [1, 2]
    assert ledger.spend(Release("a", 1, 5.0), [2]) == [2]
    assert NodeLedger(tmp_path, Budget(100.0)).spend(Release("b", 0, 2.5), [1]) == [1]  # started anew
    accounts = ledger.accounts()
    assert accounts[2].epsilon(1e-6) == pytest.approx(epsilon_of(5.0, 2, 1e-6))
    assert accounts[1].epsilon(1e-6) == pytest.approx(epsilon_of(5.0, 5, 1e-6))  # 1 + (5/2.5)²
    assert (accounts[1].releases, accounts[2].releases) == (2, 2)


def test_clients_run_out_one_by_one(tmp_path: Path) -> None:
    most = epsilon_of(5.0, 2, 1e-6)
    ledger = NodeLedger(tmp_path, Budget(most * 1.0001))
    ledger.spend(Release("a", 0, 5.0), [1])
    ledger.spend(Release("a", 1, 5.0), [1, 2])
    assert ledger.affordable(Release("a", 2, 5.0), [1, 2]) == [2]
    assert ledger.spend(Release("a", 2, 5.0), [1, 2]) == [2]
    with pytest.raises(UserError, match=r"client 1: another release after 2 would give away ε = "):
        ledger.spend(Release("b", 0, 5.0), [1, 2])
    with pytest.raises(UserError, match="everything, without noise"):
        NodeLedger(tmp_path / "other", Budget(1e6)).spend(Release("b", 0, 0.0), [1])
    before = (tmp_path / LEDGER).read_bytes()
    assert ledger.spend(Release("b", 0, 5.0), []) == []
    assert (tmp_path / LEDGER).read_bytes() == before


def test_without_a_budget_it_counts_and_does_not_refuse(tmp_path: Path) -> None:
    ledger = NodeLedger(tmp_path, Budget())
    for round in range(3):
        assert ledger.spend(Release("a", round, 0.0), [1]) == [1]
    assert ledger.accounts()[1].epsilon(1e-6) == math.inf
    with pytest.raises(UserError, match="answered round 2 already"):
        ledger.spend(Release("a", 2, 0.0), [1])


def test_looks_keep_pace_with_training(tmp_path: Path) -> None:
    ledger = NodeLedger(tmp_path, Budget(100.0, spare_looks=0))
    assert ledger.look("a", 0, {1: "x"}) == [1]
    with pytest.raises(UserError, match=r"1 of its requests were seen, and it was trained on 0: "):
        ledger.look("a", 1, {1: "y"})
    assert ledger.look("b", 0, {1: "x"}) == [1]  # seen before: nothing new
    ledger.spend(Release("a", 0, 5.0), [1], {1: "x"})
    assert ledger.look("a", 1, {1: "y"}) == [1]
    ledger.spend(Release("b", 0, 5.0), [1], {1: "x"})  # trained on the same again: no look is earned
    with pytest.raises(UserError, match="2 of its requests"):
        ledger.look("a", 2, {1: "z"})


def test_another_answer_for_a_round_that_was_seen_is_another_look(tmp_path: Path) -> None:
    """Four configs got four requests of round 0 for one look, and their intersection was the classes."""
    ledger = NodeLedger(tmp_path, Budget(100.0, spare_looks=1))
    assert ledger.look("a", 0, {1: "60 negatives", 2: "x"}) == [1, 2]
    assert ledger.look("b", 0, {1: "20 negatives", 2: "x"}) == [1, 2]
    assert ledger.look("c", 0, {1: "1 negative", 2: "y"}) == [2]
    assert ledger.look("d", 0, {1: "20 negatives"}) == [1]
    assert {client: len(own.looks) for client, own in ledger.accounts().items()} == {1: 2, 2: 2}


def test_looks_of_a_ledger_that_named_no_answers_still_count(tmp_path: Path) -> None:
    ledger = NodeLedger(tmp_path, Budget(100.0, spare_looks=0))
    old = {"kind": "look", "run": "a", "round": 0, "clients": [1]}
    ChainedLog(tmp_path / LEDGER).append(old)
    with pytest.raises(UserError, match="1 of its requests were seen"):
        ledger.look("a", 0, {1: "x"})  # it may be another answer
    ledger.spend(Release("a", 0, 5.0), [1])
    assert ledger.look("a", 1, {1: "x"}) == [1]


def test_a_line_cut_short_by_a_crash_is_not_a_release_and_a_changed_one_is_noticed(
    tmp_path: Path,
) -> None:
    ledger = NodeLedger(tmp_path, Budget(100.0))
    ledger.spend(Release("a", 0, 5.0), [1])
    path = tmp_path / LEDGER
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert ledger.accounts()[1].releases == 1
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "clients": []}) + "\n")
    with pytest.raises(UserError, match=r"ledger\.jsonl:1: is damaged or was changed"):
        ledger.spend(Release("a", 1, 5.0), [1])


def test_messages_at_the_same_time_are_counted_one_after_another(tmp_path: Path) -> None:
    def ask(i: int) -> bool:
        try:
            return bool(NodeLedger(tmp_path, Budget(100.0)).spend(Release("a", 0, 5.0), [1]))
        except UserError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(24))) == 1
