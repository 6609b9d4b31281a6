"""Pages of benchmarks: where there is nothing to draw yet, what is there stays."""

import runpy
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("suite", ["dual_encoder", "fedmlh"])
@pytest.mark.parametrize("asked", ["--seconds=0", "--report-only"])
def test_no_empty_page_takes_the_place_of_another(
    suite: str,
    asked: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page, out = tmp_path / "page.html", tmp_path / "results"
    page.write_text("of an earlier call")
    monkeypatch.setattr(sys, "argv", [suite, asked, "--out", str(out), "--report", str(page)])
    runpy.run_module(f"benchmarks.papers.{suite}", run_name="__main__", alter_sys=True)
    assert page.read_text() == "of an earlier call"
    assert f"{page}: not written; no result file has anything to draw yet" in capsys.readouterr().out
    assert not out.exists()
