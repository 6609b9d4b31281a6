"""The search for defaults: what it draws, which rows it looks at, and how a choice is judged."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.common import record
from benchmarks.common.paths import RESULTS
from benchmarks.defaults import differences, leave_one_out, runs, search, sets
from benchmarks.defaults.emulation import Scores
from benchmarks.defaults.leave_one_out import Compared, judged
from benchmarks.defaults.runs import Run, Search
from spreadout.core.errors import UserError


def scored(config: int, name: str, p1: float, loss: float = 0.1) -> Run:
    return Run(config, name, Scores([p1, p1 / 2, p1 / 4], [p1 - 1, p1 / 2, p1 / 4], 0.03, loss))


def found() -> Search:
    """Config 0 is best on a and b, config 1 on c; 2 was not run on c, 3 diverged on a."""
    p1 = {
        0: {"a": 80.0, "b": 60.0, "c": 10.0},
        1: {"a": 40.0, "b": 30.0, "c": 40.0},
        2: {"a": 99.0, "b": 99.0},
        3: {"a": 95.0, "b": 59.0, "c": 39.0},
    }
    made = [
        scored(config, name, value, float("nan") if (config, name) == (3, "a") else 0.1)
        for config, some in p1.items()
        for name, value in some.items()
    ]
    return Search({n: {"method": "fedaws", "dim": [64, 128][n % 2]} for n in p1}, made)


def test_a_choice_is_judged_where_it_was_not_made() -> None:
    made = judged(Compared.of("fedaws", found()))
    assert made["configs"] == 3
    by_set = {one["set"]: one for one in made["left out"]}
    # Without a, config 3 has 59/60 and 39/40; on a it diverged, which nobody knew who chose it.
    assert (by_set["a"]["chosen"], by_set["a"]["share"]) == (3, 0.0)
    # Without b: config 0 has 1 and 0.25, config 1 0.5 and 1, config 3 0 and 0.975.
    assert (by_set["b"]["chosen"], by_set["b"]["share"]) == (1, 0.5)
    assert (by_set["c"]["chosen"], by_set["c"]["share"]) == (0, 0.25)
    assert made["mean share"] == 0.25
    assert made["by value"]["dim"]["64"] == {"mean": 0.75, "upper quartile": 0.75, "configs": 1}
    assert made["by value"]["dim"]["128"]["configs"] == 2


def test_configs_tried_later_are_measured_by_what_the_search_had_found() -> None:
    first: dict[str, Any] = {"method": "fedaws", "dim": 64}
    later = Search({0: first, 1: {**first, "dim": 128}}, [scored(0, "a", 40.0), scored(1, "b", 66.0)])
    one, other = judged(Compared.of("fedaws", found()), later)["tried later"]
    assert (one["config"], one["mean share"], one["sets"]) == (first, 0.5, 1)
    assert (other["config"], other["mean share"]) == ({"dim": 128}, 1.1)


def test_too_little_to_compare_is_said() -> None:
    alone = found()
    with pytest.raises(UserError, match="1 configs were run on all of 3 sets"):
        Compared.of("fedaws", Search(alone.configs, [run for run in alone.runs if run.config in (0, 2)]))


def test_runs_as_columns_come_back() -> None:
    before = found()
    after = runs.from_file(runs.to_file(before.configs, before.runs))
    assert after.configs == before.configs
    assert [repr(run) for run in after.runs] == [repr(run) for run in before.runs]


def test_the_search_is_the_one_whose_results_are_committed() -> None:
    made = record.read(RESULTS / "defaults" / "search.json")
    recorded = runs.from_file(made)
    drawn = search.drawn(400, made["seed"])
    assert len(recorded.runs) == 1518
    for number, values in recorded.configs.items():
        expected = {**drawn[number], "hidden": list(drawn[number]["hidden"])}
        assert values == expected, number
    assert {run.set for run in recorded.runs} == set(sets.SETS) == set(made["sets"])


def test_what_is_committed_of_leaving_one_out_follows_from_the_search() -> None:
    made = record.read(RESULTS / "defaults" / "search.json")
    recorded, later = runs.from_file(made), runs.from_file(made["later"])
    committed = record.read(RESULTS / "defaults" / "leave-one-out.json")["methods"]
    assert list(committed) == recorded.methods
    for method, said in committed.items():
        assert judged(Compared.of(method, recorded), later) == said


def test_validation_rows_are_a_fifth_and_those_of_the_search() -> None:
    for name, rows in {"emotions": 391, "cal500": 502, "my own": 57}.items():
        assert int(sets.validation_rows(name, rows).sum()) == rows // 5
    drawn = np.random.default_rng(0)
    drawn.permutation(1744)  # corel16k comes first
    assert set(sets.validation_rows("cal500", 502).nonzero()[:, 0].tolist()) == set(
        drawn.permutation(502)[:100].tolist()
    )
    with pytest.raises(UserError, match="has 400 rows to train on, the published set has 391"):
        sets.validation_rows("emotions", 400)


def test_digits_leave_a_test_part_alone() -> None:
    x, y, valid = sets.arrays("digits", [])
    assert (x.shape, y.shape, int(valid.sum())) == ((1257, 64), (1257, 10), 251)
    assert (float(x.min()), float(x.max())) == (0.0, 1.0)
    assert bool((y.sum(1) == 1).all())


ARFF = "@relation toy\n@attribute word numeric\n@attribute one {0,1}\n@attribute two {0,1}\n@data\n"
XML = (
    '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="one"/><label name="two"/></labels>'
)


def test_a_folder_of_arff_gives_its_training_part(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "toy.xml").write_text(XML)
    (folder / "toy-train.arff").write_text(ARFF + "".join(f"{i},1,{i % 2}\n" for i in range(10)))
    (folder / "toy-test.arff").write_text(ARFF + "99,0,1\n")
    x, y, valid = sets.arrays("toy", [tmp_path / "elsewhere", tmp_path])
    assert x[:, 0].tolist() == list(range(10))
    assert y.tolist() == [[1, i % 2] for i in range(10)]
    assert int(valid.sum()) == 2
    held = sets.load("toy", [tmp_path], torch.device("cpu"))
    assert held.counts.sum() == held.together.trace() == y[~valid].sum()
    with pytest.raises(UserError, match=r"--sets other: no folder other and no other\.npz in --data"):
        sets.arrays("other", [tmp_path])


def stored(path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    label = np.arange(40) % 5
    x = np.eye(5, 6)[label] + draw.normal(0, 0.1, (40, 6))
    np.savez(path, x=x, y=np.eye(5)[label], va=np.arange(40) >= 30)


def test_a_search_from_the_command_line_to_the_judgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = {**search.SHARED, "rounds": (3,), "hidden": ((4,),), "dim": (4,)}
    monkeypatch.setattr(search, "SHARED", short)
    for seed, name in enumerate(("here", "there")):
        stored(tmp_path / f"{name}.npz", seed)
    out, judgement = tmp_path / "search.json", tmp_path / "judged.json"
    given = ["--sets", "here", "there", "--data", str(tmp_path), "--configs", "8", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["search", *given, "--out", str(out)])
    search.main()
    made = record.read(out)
    assert len(made["runs"]["set"]) == 16
    assert made["hardware"]
    assert made["differences"] == [*differences.STEPS, *differences.OTHERS]
    monkeypatch.setattr(sys, "argv", ["judge", str(out), "--out", str(judgement)])
    leave_one_out.main()
    methods = record.read(judgement)["methods"]
    assert set(methods) == {"fedaws", "fedss", "fedalc"}
    assert len(methods["fedaws"]["left out"]) == 2
    assert f"{methods['fedaws']['mean share']:.3f}" in capsys.readouterr().out


def test_a_file_without_its_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "half.npz", x=np.ones((3, 2)), y=np.ones((3, 1)))
    with pytest.raises(UserError, match="has no array 'va'; give x, y and va"):
        sets.arrays("half", [tmp_path])
