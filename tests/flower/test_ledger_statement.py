"""A node's ledger, signed: whoever has the public key can check it, and a change is noticed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("flwr")

from spreadout.cli.main import app
from spreadout.core.chained_log import ChainedLog
from spreadout.core.errors import UserError
from spreadout.flower import keys
from spreadout.flower.access import AccessControl, access_log
from spreadout.flower.ledger_statement import sign
from spreadout.flower.releases import ReleaseLog
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.ledger import Budget, NodeLedger, Release


def told(*args: object) -> str:
    result = CliRunner().invoke(app, ["deploy", *map(str, args)])
    return result.output if result.exit_code == 0 else str(result.exception or result.output)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    for name in ("node0", "node1"):
        keys.make_node_key(tmp_path / name)
    counted = NodeLedger(tmp_path / "ledger", Budget(100.0))
    for round in range(3):
        counted.spend(Release("a", round, 5.0), [4, 7] if round else [4])
    return tmp_path / "ledger"


def test_it_says_what_each_client_has_given_away(ledger: Path) -> None:
    found = json.loads(told("ledger", ledger, "--json"))["clients"]
    assert found["4"]["epsilon"] == pytest.approx(epsilon_of(5.0, 3, 1e-6))
    assert (found["4"]["releases"], found["7"]["releases"]) == (3, 2)
    assert f"{epsilon_of(5.0, 2, 1e-6):.3f}" in told("ledger", ledger)
    assert "has no ledger.jsonl" in told("ledger", ledger.parent)
    assert "must lie between" in told("ledger", ledger, "--delta", "2")


def test_a_signature_is_the_nodes_and_of_this_very_statement(ledger: Path, tmp_path: Path) -> None:
    out = tmp_path / "statement.json"
    assert str(out) in told("ledger", ledger, "--sign", tmp_path / "node0", "-o", out)
    shown = json.loads(told("verify", out, tmp_path / "node0.pub", "--json"))
    assert shown["clients"]["4"]["releases"] == 3
    assert "was not signed with" in told("verify", out, tmp_path / "node1.pub")
    value = json.loads(out.read_text())
    value["statement"]["clients"]["4"]["releases"] = 1
    out.write_text(json.dumps(value))
    assert "or was changed since" in told("verify", out, tmp_path / "node0.pub")
    out.write_text("{}")
    assert "is no signed statement" in told("verify", out, tmp_path / "node0.pub")
    assert "No such file" in told("verify", tmp_path / "nothing", tmp_path / "node0.pub")
    assert "is no private key" in told("ledger", ledger, "--sign", tmp_path / "node0.pub")


def test_what_is_no_statement_is_one_line(ledger: Path, tmp_path: Path) -> None:
    out, key = tmp_path / "statement.json", tmp_path / "node0.pub"
    for nested in ("[" * 100_000, '{"statement": ' + '{"a":' * 900 + "1" + "}" * 900 + "}"):
        out.write_text(nested)
        assert "is no signed statement" in told("verify", out, key)
    sign({"delta": 1e-6, "time": "now", "clients": {"4": {"releases": -1}}}, tmp_path / "node0", out)
    assert "statement.json: is damaged or was changed (lines: " in told("verify", out, key)


@pytest.mark.parametrize(
    ("record", "word"),
    [
        ({"kind": "release", "round": 0, "clients": [1], "noise": 5.0}, "run: Field required"),
        ({"kind": "release", "run": "a", "round": 0, "clients": [1]}, "a release has no noise"),
        ({"kind": "gift", "run": "a", "round": 0, "clients": [1]}, "kind = 'gift'"),
        ({"kind": "look", "run": "a", "round": 0, "clients": "many"}, "clients = 'many'"),
    ],
)
def test_a_ledger_line_that_no_node_writes_is_named(
    tmp_path: Path, record: dict[str, object], word: str
) -> None:
    ChainedLog(tmp_path / "ledger.jsonl").append(record)
    said = told("ledger", tmp_path)
    assert "ledger.jsonl:1: is damaged or was changed" in said
    assert word in said


def test_lines_that_no_server_writes_are_named(tmp_path: Path) -> None:
    ChainedLog(tmp_path / "releases.jsonl").append({"round": 3})
    with pytest.raises(UserError, match=r"releases\.jsonl:1: .*clients: Field required"):
        ReleaseLog(tmp_path / "releases.jsonl", resume=True)
    for record in ({"client": 3}, {"client": "x", "rows": {}}, {"client": 3, "node": "a"}):
        path = tmp_path / "access.jsonl"
        path.unlink(missing_ok=True)
        ChainedLog(path).append(record)
        with pytest.raises(UserError, match=r"access\.jsonl:1: is damaged or was changed"):
            AccessControl("own", {"classes": 8}, log=access_log(path)).recall()
