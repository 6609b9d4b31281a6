"""What clients give away, on the page: said once for all arms of which it is true."""

from dataclasses import replace
from pathlib import Path

import spreadout as so
from spreadout.report.privacy_view import privacy_section
from spreadout.runs.arms import arms_of
from tiny import tiny, tiny_data


def test_arms_that_give_away_the_same_share_a_table(tmp_path: Path) -> None:
    so.run(tiny(), data=tiny_data(), out=tmp_path / "run", device="cpu")
    (arm,) = arms_of(tmp_path / "run")
    alone = privacy_section([arm])
    assert alone.count("<table class=words>") == 1
    assert "<h3>" not in alone
    both = privacy_section([arm, replace(arm, label="other <b>")])
    assert both.count("<table class=words>") == 1
    assert f"<h3>{arm.label}, other &lt;b&gt;</h3>" in both
    told = {**(arm.privacy or {}), "guarantee": "something else"}
    assert privacy_section([arm, replace(arm, privacy=told)]).count("<table class=words>") == 2
