"""Whatever a benchmark is given: one line that says what is wrong, and no traceback."""

import runpy
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
    ([f"{DEFAULTS}.next_items", "--priors", "own"], "--priors own: unknown; known are none, default"),
    ([f"{DEFAULTS}.prior_rules", "--data", "no", "--keep", "no"], "--data no: no such folder"),
    ([f"{DEFAULTS}.leave_one_out", "no.json", "--out", "no"], "no.json: No such file"),
    ([f"{DEFAULTS}.merge", "README.md", "README.md"], "README.md: is no file of results"),
    ([f"{DEFAULTS}.mirror", "--arrays", "no"], "--arrays no: has none of cifar-10.npz"),
    ([DEFAULTS, "--sets", "digits", "--seconds", "-1"], "--seconds: '-1': give a number, 0 or more"),
    (["benchmarks.papers.suite", "none", "--out", "no", "--seconds", "nan"], "give a number, 0 or more"),
    (["benchmarks.papers.suite", "none", "--out", "no", "--jobs", "0"], "a whole number, 1 or more"),
    (["benchmarks.papers.cifar", "--out", "no", "--seconds", "-1"], "give a number, 0 or more"),
    (["benchmarks.papers.extreme", "--seconds", "-0.5"], "'-0.5': give a number, 0 or more"),
    (["benchmarks.papers.extreme", "--scale", "2"], "'2': give a number above 0, at most 1"),
    (["benchmarks.papers.shapes", "--scale", "0"], "'0': give a number above 0, at most 1"),
    (["benchmarks.security.attacks", "--minutes", "-1"], "'-1': give a number, 0 or more"),
    (["benchmarks.serve", "--seconds", "0"], "'0': give a number above 0"),
    (["benchmarks.privacy.utility", "--sets", "none"], "--sets none: unknown"),
    (["benchmarks.privacy.utility", "--models", "none"], "--models none: unknown"),
    (["benchmarks.privacy.trivial", "--sets", "none"], "--sets none: unknown"),
]


@pytest.mark.parametrize(("given", "said"), ODD, ids=[" ".join(given) for given, _ in ODD])
def test_what_is_wrong_is_one_line(
    given: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.delenv("SPREADOUT_DATA", raising=False)
    monkeypatch.chdir(ROOT)
    here = str(tmp_path / "out.json")
    asked = [*given, "--out", here] if given[0] == DEFAULTS and "--out" not in given else given
    monkeypatch.setattr(sys, "argv", asked)
    with pytest.raises(SystemExit) as ended:  # another exception would be a traceback
        runpy.run_module(asked[0], run_name="__main__", alter_sys=True)
    told = capsys.readouterr().err
    assert ended.value.code == 2, told
    assert said in told.splitlines()[-1]
    assert not Path(here).exists()
