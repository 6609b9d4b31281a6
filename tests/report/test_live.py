"""Runs in progress on a page of this machine's own: who may see it, and that it follows them."""

import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import spreadout as so
from command import invoke
from spreadout.report import live
from spreadout.report.live import LiveServer, state_of
from spreadout.runs.deployed import deployed_of, lines_of
from tiny import tiny, tiny_data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that was stopped after its third round."""
    calls = iter(range(100))
    with pytest.raises(so.Interrupted):
        so.run(
            tiny(rounds=5),
            data=tiny_data(),
            out=tmp_path / "run",
            stop=lambda: next(calls) == 2,
            device="cpu",
        )
    return tmp_path / "run"


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    monkeypatch.setattr(live, "EVERY", 0.02)
    with LiveServer([folder]) as one:
        thread = threading.Thread(target=one.serve_forever, daemon=True)
        thread.start()
        yield one
        one.shutdown()
        thread.join()


def status_of(address: str, host: str | None = None) -> int:
    asked = urllib.request.Request(address, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_only_who_has_the_token_on_this_machine_is_answered(server: LiveServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert status_of(server.address) == 200
    root = server.address.removesuffix(f"{server.token}/")
    for path in ("", "wrong/", f"{server.token[:-1]}/", f"{server.token}/other", "wrong/events"):
        assert status_of(root + path) == 404, path
    assert status_of(server.address, host="evil.example") == 404


def test_the_page_follows_the_run(server: LiveServer, folder: Path) -> None:
    with urllib.request.urlopen(server.address, timeout=10) as answer:
        first = answer.read().decode()
    assert "Shown is round 3 of 5" in first
    (seen,) = re.findall(r'new EventSource\("events\?(\w+)"\)', first)
    with urllib.request.urlopen(f"{server.address}events?{seen}", timeout=10) as events:
        assert events.readline() == b": watching\n"
        so.resume(folder, data=tiny_data(), device="cpu")
        while (line := events.readline()) != b"data: changed\n":
            assert line in (b"\n", b": nothing new\n")
    with urllib.request.urlopen(f"{server.address}events?{seen}", timeout=10) as events:
        told = [events.readline() for _ in range(3)]
        assert told[-1] == b"data: changed\n"  # also to a page that was drawn before it happened
    with urllib.request.urlopen(server.address, timeout=10) as answer:
        assert "is not finished" not in answer.read().decode()


def test_what_has_nothing_to_show_yet_says_so(tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    assert "no run has begun here yet" in live.page_now([tmp_path / "begun"])


def test_one_run_that_has_not_begun_does_not_hide_the_others(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    text = live.page_now([tmp_path / "begun", folder])
    assert "no run has begun here yet" in text
    assert "Shown is round 3 of 5" in text


HEARD = """{"event": "nodes", "nodes": 0, "clients": 0, "needed": 2}
{"event": "nodes", "nodes": 2, "clients": 7, "needed": 2}
{"event": "started", "round": 0}
{"event": "round", "round": 1, "asked": 7, "accepted": 7, "refused": {}, "nodes": 2, "down": 2048, "up": 4096}
{"event": "round", "round": 2, "asked": 7, "accepted": 4, "refused": {"<b>late": 3}, "nodes": 1, "down": 1024, "up": 2048}
{"event": "round", "round": 2, "asked": 7, "accepted": 5, "refused": {"<b>late": 2}, "nodes": 1, "down": 1024, "up": 2048}
"""


def test_nodes_answers_refusals_and_bytes_of_a_deployment(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "begun" / "deployment" / "events.jsonl"
    path.parent.mkdir(parents=True)
    before = state_of([tmp_path / "begun"])
    path.write_text(HEARD.partition("\n")[0] + "\n")
    assert state_of([tmp_path / "begun"]) != before
    early = live.page_now([tmp_path / "begun"])  # nobody has come yet
    assert "waiting for nodes" in early
    assert "2 needed to begin; they answer for 0 clients" in early
    path.write_text(HEARD + '{"event": "round", ')  # a line that is being written
    found = deployed_of(tmp_path / "begun")
    assert found is not None
    assert (found.state, found.total("accepted"), found.refused) == ("training", 12, {"<b>late": 2})
    assert list(lines_of(found)) == [
        "round 1: 7 of 7 updates accepted, 2 nodes, 2.00 KiB down, 4.00 KiB up",
        "round 2: 5 of 7 updates accepted, 1 node, 1.00 KiB down, 2.00 KiB up; refused: 2 <b>late",
    ]
    shutil.copytree(path.parent, folder / "deployment")
    text = live.page_now([folder])
    assert "data-tab='Deployment'" in text
    assert "7 clients, 3 rounds" in text
    assert "all data in one place" not in text
    for said in ("<b>5 of 7</b>", "of all rounds 12 of 14", "9.00 KiB", "&lt;b&gt;late"):
        assert said in text
    assert "<b>late" not in text
    path.write_text('{"event": "nodes", "nodes": -1}\n')
    with pytest.raises(
        so.UserError, match=r"events\.jsonl:1: is damaged .*; delete it, and the run is shown"
    ):
        deployed_of(tmp_path / "begun")
    assert "no run has begun here yet" in live.page_now([tmp_path / "begun"])


def test_on_the_terminal_until_all_are_finished(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: so.resume(folder, data=tiny_data(), device="cpu"))
    assert invoke(monkeypatch, "watch", "--terminal", str(folder)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "round 3 of 5" in lines[0]
    assert "finished" in lines[-1]
    assert invoke(monkeypatch, "watch", "nowhere") == 2
