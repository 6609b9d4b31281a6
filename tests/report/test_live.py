"""Runs in progress on a page of this machine's own: who may see it, and that it follows them."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import spreadout as so
from command import invoke
from spreadout.report import live
from spreadout.report.live import LiveServer, changes_of
from tiny import tiny, tiny_data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that was stopped after its third round."""
    calls = iter(range(100))
    with pytest.raises(so.Interrupted):
        so.run(tiny(rounds=5), data=tiny_data(), out=tmp_path / "run", stop=lambda: next(calls) == 2, device="cpu")
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
    assert "new EventSource('events')" in first
    with urllib.request.urlopen(f"{server.address}events", timeout=10) as events:
        assert events.readline() == b": watching\n"
        so.resume(folder, data=tiny_data(), device="cpu")
        while (line := events.readline()) != b"data: changed\n":
            assert line in (b"\n", b": nothing new\n")
    with urllib.request.urlopen(server.address, timeout=10) as answer:
        assert "is not finished" not in answer.read().decode()


def test_what_has_nothing_to_show_yet_says_so(tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    assert "not a run folder" in live.page_now([tmp_path / "begun"])
    assert changes_of([tmp_path / "begun"]) == ()


def test_on_the_terminal_until_all_are_finished(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: so.resume(folder, data=tiny_data(), device="cpu"))
    assert invoke(monkeypatch, "watch", "--terminal", str(folder)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "round 3 of 5" in lines[0]
    assert "finished" in lines[-1]
    assert invoke(monkeypatch, "watch", "nowhere") == 2
