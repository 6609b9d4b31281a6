"""No run trains on other data than was meant: a config names its data, and a file is read or refused."""

from pathlib import Path

import numpy as np
import pytest

import spreadout as so
from command import invoke
from tiny import tiny, tiny_data


@pytest.fixture
def wine(tmp_path: Path) -> Path:
    y = np.tile(np.arange(3), 20)
    np.savez(tmp_path / "wine.npz", x=np.eye(3, 5)[y] + 0.01 * np.arange(60)[:, None], y=y)
    return tmp_path / "wine.npz"


def test_a_file_that_the_source_does_not_read_is_refused_with_the_source_that_does(
    wine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = wine.parent / "run"
    assert invoke(monkeypatch, "run", "digits-fedaws", f"data.path={wine}", "--out", str(out)) == 2
    said = capsys.readouterr().err
    assert "data.path: source = 'digits' reads no file; for wine.npz set data.source = \"npz\"" in said
    assert not out.exists()
    with pytest.raises(so.UserError, match="reads no file"):
        so.Experiment.of({"data": {"source": "synthetic", "path": str(wine)}})


def test_data_in_the_place_of_a_config_is_told_of_init(
    wine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (wine.parent / "wine.csv").write_text("a,kind\n1,x\n")
    for name in ("wine.npz", "wine.csv"):
        for command in (["run"], ["data", "describe"]):
            assert invoke(monkeypatch, *command, str(wine.parent / name)) == 2
            said = capsys.readouterr().err
            assert f"{name}: is data and no config; `spreadout init " in said


def test_another_source_leaves_the_path_of_the_old_one_behind(wine: Path) -> None:
    config = wine.parent / "wine.toml"
    config.write_text(f'data.source = "npz"\ndata.path = "{wine}"\n')
    assert so.Experiment.load(config).data.path == wine
    assert so.Experiment.load(config, ["data.source=digits"]).data.path is None


def test_an_option_of_a_source_leaves_its_path(tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text('[data]\npath = "mine.csv"\nsource = {name = "table", label = "kind"}\n')
    for given in ("data.source.label=colour", "data.source={name='table',label='colour'}"):
        data = so.Experiment.load(config, [given]).data
        assert (data.path is not None, data.source.label) == (True, "colour")  # type: ignore[attr-defined]
    plain = tmp_path / "plain.toml"
    plain.write_text('data.source = "npz"\ndata.path = "mine.npz"\n')
    assert so.Experiment.load(plain, ["data.source=npz"]).data.path is not None


@pytest.mark.parametrize("text", ["", "rounds = 2\n", '[data]\npartition = "by_label"\n'])
def test_a_file_that_names_no_data_is_refused_with_the_remedy(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = tmp_path / "empty.toml", tmp_path / "run"
    config.write_text(text)
    assert invoke(monkeypatch, "run", str(config), "--out", str(out)) == 2
    said = capsys.readouterr().err
    assert "the config names no data" in said
    assert "spreadout init" in said
    assert not out.exists()
    # Named on the command line, or given in Python, it is enough.
    assert so.Experiment.load(config, ["data.source=digits"]).data.source.name == "digits"
    found = so.run(so.Experiment.load(config).model_copy(update={"rounds": 1}), data=tiny_data())
    assert found.summary["dataset"] == "tiny"


def test_a_path_without_a_source_is_told_which_one(wine: Path) -> None:
    config = wine.parent / "wine.toml"
    config.write_text(f'data.path = "{wine}"\n')
    with pytest.raises(so.UserError, match=r'for wine\.npz set data.source = "npz"'):
        so.Experiment.load(config)


def test_a_suite_that_names_no_data_is_refused(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text("[variants.one]\nrounds = 1\n[variants.two]\nrounds = 2\n")
    with pytest.raises(so.UserError, match="the config names no data"):
        so.compare(str(suite))


def test_a_run_given_its_data_in_python_says_so_and_does_not_run_without_it(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = so.run(tiny(), data=tiny_data(), out=out)
    written = so.Experiment.load(out / "config.toml")
    assert written.data.source.name == "python"
    assert written.data.source.called == "tiny"
    for action in (so.run, so.resume):
        with pytest.raises(so.UserError, match=r"the data of this run \(tiny\) were given in Python"):
            action(out / "config.toml" if action is so.run else out)
    again = so.run(out / "config.toml", data=tiny_data(), out=tmp_path / "again")
    assert again.metrics == first.metrics
    assert (tmp_path / "again/config.toml").read_bytes() == (out / "config.toml").read_bytes()
    # Other data may be named, and is then what is trained on.
    assert so.Experiment.load(out / "config.toml", ["data.source=digits"]).data.source.name == "digits"


def test_a_run_given_its_own_parts_does_not_run_without_them(tmp_path: Path) -> None:
    import torch

    class Own(so.PositiveOnly):
        name: str = "own-of-this-test"

    out, encoder = tmp_path / "run", torch.nn.Linear(4, 3)
    so.run(tiny(), data=tiny_data(), encoder=encoder, method=Own(prior=0.0), out=out)
    assert so.Experiment.load(out / "config.toml").own == ["encoder", "method"]
    with pytest.raises(so.UserError, match=r"the encoder of this run was given in Python"):
        so.run(out / "config.toml", data=tiny_data())
    with pytest.raises(so.UserError, match=r"own = \['method'\]: the method of this run was given"):
        so.run(out / "config.toml", data=tiny_data(), encoder=encoder)
    kept = so.run(out / "config.toml", data=tiny_data(), encoder=encoder, method=Own(prior=0.0))
    assert kept.summary["method"] == "own-of-this-test"
    other = so.Experiment.load(out / "config.toml", ["own=[]", "clients.lr=0.2"])
    assert so.run(other, data=tiny_data()).summary["method"] == "fedaws"


def test_a_comparison_on_given_data_is_gone_on_with(tmp_path: Path) -> None:
    variants = {"a": tiny(), "b": tiny(rounds=3)}
    so.compare(variants, out=tmp_path / "all", data=tiny_data())
    again = so.compare(variants, out=tmp_path / "all", data=tiny_data(), go_on=True)
    assert [arm.name for arm in again] == ["a", "b"]
