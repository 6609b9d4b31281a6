"""The papers' figures beside ours: marks where we are below, shares and ratios by hand, arms that exist."""

from typing import Any

import pytest

from benchmarks.papers.published import Row, Table, figures_of, tables
from benchmarks.quote import papers


def _variant(name: str, score: float, sent: float, best: float) -> dict[str, Any]:
    """sent: by a client in a round, both ways."""
    moved = {"down": 0.75 * sent, "up": 0.25 * sent}
    about = {"bytes_per_client_round": moved, "best": {"round": best}}
    return {"name": name, "metrics": {"P@1": {"mean": score}}, **about}


def _config(rounds: int, patience: int | None = None) -> dict[str, Any]:
    return {"rounds": rounds, "clients": {"per_round": 4}, "eval": {"patience": patience}}


MADE: dict[str, Any] = {
    "variants": [_variant("own", 50.04, 1.0, 7.0), _variant("full", 80.0, 0.8, 7.0)],
    "configs": {"own": _config(10), "full": _config(25)},
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    """One result file, whatever is asked for."""
    monkeypatch.setattr(papers, "read", lambda path: MADE)


def _table(*rows: Row, **more: Any) -> Table:
    return Table("page", "A paper, Table 1", "a set", ("P@1",), rows, data="the paper's", **more)


def _cell(table: Table, at: int = 0) -> str:
    """The figures of a line; four lines are above the first."""
    return papers.beside(table).splitlines()[4 + at].split(" | ")[1]


@pytest.mark.usefixtures("made")
def test_a_figure_below_the_papers_is_marked_and_one_that_prints_alike_is_not() -> None:
    below = Row("own", (50.1,), "x.json", "own")
    alike = Row("own", (50.0,), "x.json", "own")
    assert _cell(_table(below)) == "50.1 → 50.0 (−0.1 ✗)"
    assert _cell(_table(alike)) == "50.0 → 50.0 (+0.0)"


@pytest.mark.usefixtures("made")
def test_other_methods_have_no_mark_and_what_was_not_run_no_figure() -> None:
    table = _table(Row("other", (99.0,), "x.json", "own", reference=True), Row("none", (12.0,)))
    assert _cell(table) == "99.0 → 50.0 (−49.0)"
    assert _cell(table, 1) == "12.0 → –"


@pytest.mark.usefixtures("made")
def test_shares_are_of_the_named_rows_own_figure() -> None:
    table = _table(
        Row("own", (30.0,), "x.json", "own"), Row("full", (40.0,), "x.json", "full"), relative_to="full"
    )
    assert _cell(table) == "75.0 → 62.5 (−12.5 ✗)"  # 50.04 of 80


@pytest.mark.usefixtures("made")
def test_ratios_are_the_other_arms_over_ones_own() -> None:
    row = Row("own", (1.5, 3.0), "x.json", "own")
    table = Table("page", "A paper", "", ("bytes", "rounds"), (row,), times="full")
    assert list(papers.pairs(table, row)) == [(1.5, 80 / 40), (3.0, 25 / 10)]


def test_an_arm_that_chose_its_own_rounds_has_spent_those(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = {**MADE, "configs": {"own": _config(10, patience=3), "full": _config(25)}}
    monkeypatch.setattr(papers, "read", lambda path: stopping)
    row = Row("own", (1.5, 3.0), "x.json", "own")
    table = Table("page", "A paper", "", ("bytes", "rounds"), (row,), times="full")
    assert list(papers.pairs(table, row)) == [(1.5, 80 / 28), (3.0, 25 / 7)]


def test_a_file_with_a_table_is_read_by_network_and_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"net": "set net8", "arm": arm, "P@1": score} for arm, score in (("own", 60.0), ("x", 7.0))]
    monkeypatch.setattr(papers, "read", lambda path: {"table": rows})
    assert _cell(_table(Row("own", (58.0,), "x.json", "set net8 own"))) == "58.0 → 60.0 (+2.0)"


def test_a_file_of_points_is_read_by_arm_and_point(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = [{"arm": "own", "point": point, "P@1": score} for point, score in (("2", 60.0), ("6", 7.0))]
    monkeypatch.setattr(papers, "read", lambda path: {"points": tried})
    row = Row("own, on validation data", (58.0,), "x.json", "own 2", reference=True)
    assert _cell(_table(row)) == "58.0 → 60.0 (+2.0)"


def test_every_arm_that_is_named_is_in_its_file() -> None:
    for name, table in tables().items():
        assert table.page in papers.PAGES
        for row in table.rows:
            assert len(row.paper) == len(table.metrics), (name, row.label)
            found = [ours for _, ours in papers.pairs(table, row)]
            assert (found[0] is not None) == bool(row.result), (name, row.label)
            assert bool(table.data) == any(one.result for one in table.rows), name


def test_figures_are_by_label() -> None:
    assert figures_of("dual_encoder-table2")["H+S"] == (1.17, 5.56, 10.43)
