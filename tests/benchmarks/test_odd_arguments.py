"""Whatever a benchmark is given: one line that says what is wrong, and no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEFAULTS = "benchmarks.defaults"
ODD = [
    ([DEFAULTS, "--sets", "digit"], "--sets digit: unknown; known are digits, "),
    ([DEFAULTS, "--sets", "digits", "--methods", "fedaw"], "--methods fedaw: unknown; known are "),
    ([DEFAULTS, "--sets", "digits", "--seeds", "a"], "'a': give whole numbers, as 0,1,2"),
    ([DEFAULTS, "--sets", "digits", "--seeds", ""], "give whole numbers, as 0,1,2"),
    ([DEFAULTS, "--sets", "digits", "--workers", "0"], "'0': give a whole number, 1 or more"),
    ([DEFAULTS, "--sets", "", "--folder", "mine"], "--folder mine: write it as NAME=PATH"),
    ([DEFAULTS, "--sets", "", "--npz", "mine=/no/where.npz"], "no such file or folder"),
    ([DEFAULTS, "--sets", "delicious", "--methods", "fedaws"], "SPREADOUT_DATA: is not set"),
    ([DEFAULTS, "--out", "README.md"], "README.md: is no file of results"),
    ([f"{DEFAULTS}.tuning", "--sets", "digit"], "--sets digit: unknown"),
    ([f"{DEFAULTS}.tuning", "--sets", "digits", "--methods", "flag"], "--methods flag: unknown"),
    ([f"{DEFAULTS}.tuning", "--points", "-1"], "'-1': give a whole number, 1 or more"),
    ([f"{DEFAULTS}.trials", "--groups", "none"], "--groups none: unknown; known are "),
    ([f"{DEFAULTS}.next_items", "--sets", "none"], "--sets none: unknown; known are staples"),
    ([f"{DEFAULTS}.prior_rules", "--data", "no", "--keep", "no"], "--data no: no such folder"),
    ([f"{DEFAULTS}.leave_one_out", "no.json", "--out", "no"], "no.json: No such file"),
    ([f"{DEFAULTS}.merge", "README.md", "README.md"], "README.md: is no file of results"),
    ([f"{DEFAULTS}.mirror", "--arrays", "no"], "--arrays no: has none of cifar-10.npz"),
    (["benchmarks.privacy.utility", "--sets", "none"], "--sets none: unknown"),
    (["benchmarks.privacy.utility", "--models", "none"], "--models none: unknown"),
    (["benchmarks.privacy.trivial", "--sets", "none"], "--sets none: unknown"),
]


@pytest.mark.parametrize(("given", "said"), ODD, ids=[" ".join(given) for given, _ in ODD])
def test_what_is_wrong_is_one_line(
    given: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SPREADOUT_DATA", raising=False)
    here = str(tmp_path / "out.json")
    asked = [*given, "--out", here] if given[0] == DEFAULTS and "--out" not in given else given
    ended = subprocess.run(
        [sys.executable, "-m", *asked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert not Path(here).exists()
