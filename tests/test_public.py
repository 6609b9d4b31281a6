"""`import spreadout as so`: what it has, that all of it is explained, and how results show themselves."""

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.config.presets import OWN, presets
from spreadout.runs.compare import Suite
from spreadout.runs.parts import as_described

SHORT = so.Experiment(rounds=2, clients={"local_steps": 1})


@pytest.fixture
def own_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Presets that this test registers, and no other test has."""
    monkeypatch.setattr(OWN, "_parts", {})


def test_every_public_name_is_there_once_and_nothing_else_is_listed() -> None:
    assert len(so.__all__) == len(set(so.__all__))
    assert set(so.__all__) == set(so._HOME_OF) | set(so._MODULES)
    assert dir(so) == sorted([*so.__all__, "__version__"])
    for name in so.__all__:
        assert getattr(so, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        so.runn  # noqa: B018


@pytest.mark.parametrize("name", so.__all__)
def test_every_public_name_has_an_example(name: str) -> None:
    """In its own docstring; a name for a type has it in its module's. All of them are run as tests."""
    value = getattr(so, name)
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        assert ">>> " in (value.__doc__ or ""), f"so.{name} has no example"
        own = inspect.getmodule(value)
        assert own is not None
        assert own.__name__.startswith("spreadout.")
    else:
        home = sys.modules[f"spreadout.{so._HOME_OF[name]}"].__doc__ or ""
        assert f"so.{name}" in home, f"so.{name} has no example in its module"


def public_parts(module: ModuleType) -> Iterator[Any]:
    """The functions and classes a module lists in `__all__`, and those it defines under a plain name."""
    for name, value in vars(module).items():
        listed = name in getattr(module, "__all__", ())
        own = not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        if (listed or own) and (inspect.isclass(value) or inspect.isfunction(value)):
            yield pytest.param(value, id=f"{module.__name__.split('.')[-1]}.{name}")


PARTS = [part for name in so._MODULES for part in public_parts(getattr(so, name))]


@pytest.mark.parametrize("part", PARTS)
def test_every_function_and_class_of_a_public_module_has_an_example(part: type | FunctionType) -> None:
    """In its own docstring, so that `help(so.losses.softmax)` shows one."""
    assert ">>> " in (part.__doc__ or ""), f"{part.__module__}.{part.__name__} has no example"


def test_the_walk_over_public_modules_finds_what_is_theirs() -> None:
    found = {part.id for part in PARTS}
    assert {
        "losses.softmax",
        "regularizers.HingePenalty",
        "metrics.Frequencies",
        "metrics.hits",
    } <= found
    assert found.isdisjoint({"losses.Tensor", "regularizers.Rows", "metrics.Ragged", "metrics._recall"})


def test_neither_the_package_nor_its_list_of_names_waits_for_torch() -> None:
    code = "import sys, spreadout as so; dir(so); so.UserError, so.register_preset; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_result_shows_itself_in_two_lines() -> None:
    result = so.run(so.Experiment.of({**SHORT.model_dump(), "name": "mine"}))
    first, second = repr(result).splitlines()
    assert first == f"<Result mine: fedaws on digits, 2 rounds, P@1 {result.metrics['P@1']:.2f}"
    assert second.startswith(" 1.27 MiB down, 1.27 MiB up, ")  # 20 visits of 66,568 bytes each way


def test_a_result_is_a_table_in_notebooks_and_names_are_text_there(toy: so.Splits) -> None:
    named = so.Splits("<b>toy</b> & co", toy.train, toy.test)
    result = so.run(so.Experiment(rounds=2), data=named)
    shown = result._repr_html_()
    assert "<td>&lt;b&gt;toy&lt;/b&gt; &amp; co</td>" in shown
    assert shown.count("<td>") == shown.count("<th>") == 8
    assert f"<td>{result.metrics['P@1']:.2f}</td>" in shown


def test_the_history_as_a_data_frame_has_its_numbers() -> None:
    result = so.run(so.Experiment.of({"rounds": 4, "eval": {"every": 2, "metrics": ["P@1", "R@3"]}}))
    frame = result.to_pandas()
    assert frame["round"].tolist() == [0, 2, 4]
    for name in ("P@1", "R@3", "bytes_up", "seconds"):
        assert frame[name].tolist() == [record[name] for record in result.history]
    assert frame["refused"].tolist() == [0, 0, 0]
    assert frame["loss"].isna().tolist() == [True, False, False]  # before the first round there is none


def test_without_pandas_there_is_one_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = so.run(SHORT)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        so.UserError, match=r"pandas is not installed; pip install 'spreadout\[pandas\]'"
    ):
        result.to_pandas()


def test_a_comparison_in_memory_finds_what_one_on_disk_does(tmp_path: Path) -> None:
    variants = {"a": SHORT, "b": so.Experiment.of({"rounds": 2, "method": {"name": "baseline-2"}})}
    here = so.compare(variants, seeds=[0, 3])
    there = so.compare(variants, out=tmp_path / "out", seeds=[0, 3])
    assert (here.folder, there.folder) == (None, tmp_path / "out")
    for one, other in zip(here, there, strict=True):
        assert one.metric("P@1") == other.metric("P@1")
        assert [s["seed"] for s in one.summaries] == [s["seed"] for s in other.summaries] == [0, 3]
    alone = so.run(variants["b"].model_copy(update={"seed": 3}))
    assert here["b"].metric("P@1")[1] == alone.metrics["P@1"]
    assert here[1] is here["b"]
    frame = here.to_pandas()
    assert frame["variant"].tolist() == ["a", "a", "b", "b"]
    assert frame["P@1"].tolist() == [*here["a"].metric("P@1"), *here["b"].metric("P@1")]


def test_a_comparison_shows_a_line_for_each_variant_and_escapes_labels(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(
        "seeds = [0, 1]\ncommon = {rounds = 1, data = {source = 'digits'}}\nvariants = {x = {label = 'A <i>'}, y = {eval = {metrics = ['R@2']}}}"
    )
    found = so.compare(suite)
    first, *lines = repr(found).splitlines()
    assert first == "<Comparison of 2 variants, 2 seeds"
    mean = sum(found["x"].metric("P@1")) / 2
    assert lines[0].startswith(f" A <i>: P@1 {mean:.1f} ± ")
    assert len(lines) == 2
    shown = found._repr_html_()
    assert "<td>A &lt;i&gt;</td>" in shown
    assert shown.count("<td>–</td>") == 2  # each lacks the other's metric


def test_a_comparison_takes_presets_and_data_of_ones_own(toy: so.Splits) -> None:
    base = so.Experiment.load("digits-fedaws", ["rounds=1"])
    found = so.compare([base, so.Experiment(rounds=1)], data=toy, encoder=torch.nn.Linear(6, 4))
    assert [arm.name for arm in found] == ["digits-fedaws", "run"]
    for arm in found:
        assert arm.summaries[0]["dataset"] == "toy"
        assert arm.summaries[0]["model_bytes"] == 4 * (6 * 4 + 4 + 6 * 4)  # six classes
    with pytest.raises(so.UserError, match="name = 'run': two of the configs have it"):
        so.compare([SHORT, SHORT])
    with pytest.raises(so.UserError, match="variant 'a/b'"):
        so.compare({"a/b": SHORT})
    with pytest.raises(so.UserError, match="was given no variant"):
        so.compare([])


def encoder(width: int = 4) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, width))


def test_a_run_with_its_own_encoder_is_loaded_with_it(toy: so.Splits, tmp_path: Path) -> None:
    given = encoder()
    before = [value.clone() for value in given.parameters()]
    result = so.run(so.Experiment(rounds=3), data=toy, encoder=given, out=tmp_path / "run")
    x = np.random.default_rng(5).normal(size=(4, 6)).astype(np.float32)
    right = result.predictor.predict(x, top=6)
    torch.manual_seed(9)  # what weights it comes with does not matter
    other = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4))
    assert so.load(tmp_path / "run", encoder=other).predict(x, top=6) == right
    assert all(torch.equal(a, b) for a, b in zip(before, given.parameters(), strict=True))
    with torch.no_grad():  # the same by hand
        dense = result.state.dense
        hidden = torch.tanh(torch.from_numpy(x) @ dense["0.weight"].T + dense["0.bias"])
        embedded = torch.nn.functional.normalize(hidden @ dense["2.weight"].T + dense["2.bias"])
        scores = embedded @ result.state.tables["classes"].T + result.state.scoring["prior"]
    for guesses, row in zip(right, scores, strict=True):
        assert [int(guess.id) for guess in guesses] == row.argsort(descending=True).tolist()
        assert guesses[0].score == pytest.approx(float(row.max()), abs=1e-6)


def test_loading_without_the_parts_it_was_given_says_which(toy: so.Splits, tmp_path: Path) -> None:
    class Own(so.PositiveOnly):
        name: str = "own"

    so.run(so.Experiment(rounds=1), data=toy, encoder=encoder(), out=tmp_path / "encoder")
    so.run(so.Experiment(rounds=1), data=toy, method=Own(), out=tmp_path / "method")
    so.run(so.Experiment(rounds=1), data=toy, out=tmp_path / "plain")
    with pytest.raises(
        so.UserError, match=r"its own encoder; load it in Python: so.load\(.*encoder=\.\.\.\)"
    ):
        so.load(tmp_path / "encoder")
    with pytest.raises(so.UserError, match="its own method"):
        so.load(tmp_path / "method")
    assert len(so.load(tmp_path / "method", method=Own()).predict(np.zeros((1, 6)), 2)[0]) == 2
    there = r"this Sequential has a parameter 2.bias of shape \(7,\), the trained one has one of shape \(4,\)"
    with pytest.raises(so.UserError, match=there):
        so.load(tmp_path / "encoder", encoder=encoder(7))
    with pytest.raises(
        so.UserError, match=r"has no parameter 0.bias, the trained one has one of shape \(5,\)"
    ):
        so.load(tmp_path / "encoder", encoder=torch.nn.Linear(6, 4))
    with pytest.raises(so.UserError, match=r"encoder: is the class Linear; give a torch\.nn"):
        so.load(tmp_path / "encoder", encoder=torch.nn.Linear)  # type: ignore[arg-type]
    plain = so.load(tmp_path / "plain")
    with pytest.raises(so.UserError, match=r"x has shape \(6,\): give a list of inputs, \[\[…\]\]"):
        plain.predict(np.zeros(6))
    with pytest.raises(so.UserError, match="with the encoder its config names; give no other"):
        so.load(tmp_path / "plain", encoder=encoder())


def test_a_predictor_of_a_result_answers_as_the_loaded_one(tmp_path: Path) -> None:
    result = so.run(SHORT, out=tmp_path / "run")
    loaded = so.load(str(tmp_path / "run"))
    x = torch.rand(3, 64)
    assert loaded.predict(x, 4) == result.predictor.predict(x.tolist(), 4)
    assert repr(loaded) == repr(result.predictor) == "<Predictor: 64 numbers in, 10 classes>"
    with pytest.raises(so.UserError, match="unseen: is for histories"):
        loaded.predict(x, unseen=True)


@pytest.mark.usefixtures("own_presets")
def test_a_preset_of_ones_own_is_listed_and_loaded_by_name(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("# From a file\nrounds = 7\n")
    so.register_preset("of-a-file", file)
    so.register_preset("of-text", "rounds = 8")
    assert presets()["of-a-file"] == "From a file"
    assert presets()["of-text"] == ""
    assert "digits-demo" in presets()
    assert so.Experiment.load("of-a-file", ["seed=3"]).rounds == 7
    so.register_preset("of-text", "rounds = 9")  # a module that is read again replaces its own
    assert so.Experiment.load("of-text").rounds == 9


@pytest.mark.usefixtures("own_presets")
@pytest.mark.parametrize(
    ("name", "config", "says"),
    [
        ("digits-demo", "rounds = 1", "preset 'digits-demo': spreadout has that name"),
        ("mine", "rounds = = 1", "preset 'mine': not valid TOML"),
        ("mine", "nowhere.toml", "preset 'mine': nowhere.toml cannot be read"),
        ("a=b", "rounds = 1", "preset 'a=b': is no name for a preset"),
    ],
)
def test_a_preset_that_cannot_be_is_refused(name: str, config: str, says: str) -> None:
    with pytest.raises(so.UserError, match=says):
        so.register_preset(name, config)
    assert "mine" not in presets()


@pytest.mark.usefixtures("own_presets")
def test_two_modules_cannot_give_two_presets_one_name() -> None:
    code = "import spreadout as so\nso.register_preset('shared', 'rounds = 1')"
    exec(code, {"__name__": "first"})
    with pytest.raises(so.UserError, match=r"preset 'shared': first\.Preset has that name"):
        exec(code, {"__name__": "second"})


def test_run_takes_a_preset_a_file_and_values(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text('rounds = 1\n[data]\nsource = "digits"\n')
    values = {"rounds": 1, "data": {"source": "digits"}}
    results = [so.run(given) for given in (tmp_path / "short.toml", values, so.Experiment.of(values))]
    assert results[0].metrics == results[1].metrics == results[2].metrics
    with pytest.raises(so.UserError, match="no such file, and no preset"):
        so.run("digits-fedawss")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": "digits"}, "data: is a str; give so.Splits"),
        ({"data": (1, 2, 3, 4)}, "data: has 4 parts; give so.Splits"),
        ({"data": (1, 2)}, r"data: its train part is a int; give so.FederatedDataset.from_arrays\(x"),
        ({"encoder": "mlp"}, "encoder: is a str; give a torch.nn.Module"),
        ({"encoder": torch.nn.Identity}, "encoder: is the class Identity; give a torch.nn.Module"),
        ({"method": "fedawz"}, "method.name = 'fedawz': unknown; did you mean 'fedaws'"),
        ({"method": torch.nn.Identity}, "method: is the class Identity; give an instance"),
        ({"method": 3}, "method: is a int; give an instance"),
        ({"observer": print}, "observer: is builtin_function_or_method; give an instance of a so.Observer"),
        ({"observer": so.Observer}, "observer: is Observer; give an instance of a so.Observer"),
        ({"stop": True}, "stop: is a bool; give a function"),
    ],
)  # fmt: skip
def test_parts_of_another_kind_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(so.UserError, match=said):
        so.run(so.Experiment(rounds=1), **given)
    with pytest.raises(so.UserError, match="experiment: is a int"):
        so.run(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rounds": 3}, r'no argument \'rounds\'; keys of a config come first: so.run\({"rounds": 3}, …\)'),
        ({"lr": 0.1}, r'so.run\({"clients": {"lr": 0.1}}, …\)'),
        ({"observers": None}, "so.run: has no argument 'observers'; did you mean 'observer'"),
    ],
)  # fmt: skip
def test_keys_of_a_config_given_as_arguments_are_named(given: Any, said: str, toy: so.Splits) -> None:
    with pytest.raises(so.UserError, match=said):
        so.run(data=toy, **given)


def test_what_is_given_without_its_name_or_as_another_kind_is_one_line(toy: so.Splits) -> None:
    x, y = np.eye(3, 6)[np.arange(6) % 3], np.arange(6) % 3
    train, test = so.FederatedDataset.from_arrays(x, y), so.Examples.from_arrays(x, y)
    lstm = torch.nn.LSTM(6, 4)
    asked: list[tuple[str, Any]] = [
        ("takes one config, and a Splits behind it; .* data=…", lambda: so.run(SHORT, toy)),  # type: ignore[arg-type]
        ("encoder: gives a tuple; it must give one tensor", lambda: so.run(SHORT, data=toy, encoder=lstm)),
        ("test: its inputs have 4 numbers, those of the training data 6", lambda: so.Splits("s", train, so.Examples.from_arrays(x[:, :4], y))),
        ("train: is a Examples; give so.FederatedDataset.from_arrays", lambda: so.Splits("s", test, train)),  # type: ignore[arg-type]
        ("partitions: is a int", lambda: so.FederatedDataset.from_partitions(3)),
        ("config: is a str; give so.DataConfig", lambda: so.load_data("digits")),  # type: ignore[arg-type]
        ("compare: variants: is a NoneType", lambda: so.compare(None)),  # type: ignore[arg-type]
        ("seeds: is 3; give a list", lambda: so.compare({"a": SHORT}, seeds=3)),  # type: ignore[arg-type]
        ("seeds: is '012'; give a list", lambda: so.compare({"a": SHORT}, seeds="012")),  # type: ignore[arg-type]
    ]  # fmt: skip
    for said, ask in asked:
        with pytest.raises(so.UserError, match=said):
            ask()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"data": {"validation_fraction": 0.1}}, r"data.validation_fraction: has no effect, as data=… takes the place of \[data\]"),
        ({"model": {"hidden": [3]}}, r"model.hidden: has no effect, as encoder=… takes the place of \[model\]"),
        ({"method": {"name": "fedaws"}}, r"method.name: has no effect, as method=… takes the place of \[method\]"),
    ],
)  # fmt: skip
def test_keys_whose_place_a_part_takes_are_named(
    values: dict[str, Any], said: str, toy: so.Splits
) -> None:
    class Own(so.PositiveOnly):
        name: str = "own"

    with pytest.raises(so.UserError, match=said):
        so.run(values, data=toy, encoder=torch.nn.Linear(6, 4), method=Own)


def test_run_needs_a_config_or_data(toy: so.Splits) -> None:
    with pytest.raises(so.UserError, match=r"so\.run: nothing says what to train on"):
        so.run()
    with pytest.raises(so.Interrupted):
        so.run(data=toy, stop=lambda: True)


def test_run_takes_a_pair_of_data_and_a_method_by_its_name_or_class(toy: so.Splits) -> None:
    class Own(so.PositiveOnly):
        name: str = "own"

    class Needy(so.PositiveOnly):
        name: str = "needy"
        rate: float

    plain = so.run(SHORT, data=toy)
    pair = so.run(SHORT, data=(toy.train, toy.test))
    assert (pair.metrics, pair.summary["dataset"]) == (plain.metrics, "own data")
    held = so.run(SHORT, data=[toy.train, toy.test, toy.test])
    assert held.summary["clients"] == plain.summary["clients"]
    with pytest.raises(so.UserError, match=r"its test part is a FederatedDataset; give so\.Examples"):
        so.run(SHORT, data=(toy.train, toy.train))
    values = {"rounds": 2, "data": {"source": "digits"}, "clients": {"lr": 0.3}}
    named = so.run(values, method="baseline-2")
    same = so.run({**values, "method": {"name": "baseline-2"}})
    assert (named.summary["method"], named.metrics) == ("baseline-2", same.metrics)
    assert so.run(SHORT, data=toy, method=Own).summary["method"] == "own"
    with pytest.raises(so.UserError, match=r"Needy has keys without defaults; give an instance, Needy"):
        so.run(SHORT, data=toy, method=Needy)


def test_what_a_preset_had_for_other_data_or_another_method_is_chosen_anew_in_python_too(
    toy: so.Splits,
) -> None:
    class Own(so.PositiveOnly):
        name: str = "own"

    plain = as_described("digits-fedaws", None, None)
    assert (plain.rounds, plain.clients.lr) == (200, 0.3)
    assert as_described("digits-fedaws", None, "fedaws") == plain
    for method in ("fedavg", so.FullSoftmax(name="fedavg"), Own):
        found = as_described("digits-fedaws", None, method)
        assert found.data.source.name == "digits"
        assert not {"rounds", "clients", "server", "model"} & found.model_fields_set
    found = as_described("digits-fedaws", toy, None)
    assert (found.data.source.name, found.method.name) == ("python", "fedaws")
    assert not {"rounds", "clients", "server", "model"} & found.model_fields_set
    (compared,) = Suite.of({"a": "digits-fedaws"}, data=toy).variants.values()
    assert (compared.method.name, compared.clients.model_fields_set) == ("fedaws", set())
    with pytest.raises(so.Interrupted) as stopped:
        so.run("digits-fedaws", data=toy, method="baseline-2", stop=lambda: True)
    assert stopped.value.result.summary["method"] == "baseline-2"


def test_a_comparison_takes_plain_values(toy: so.Splits) -> None:
    variants = {"a": {"rounds": 1}, "b": {"rounds": 2}}
    found = so.compare(variants, data=toy)
    assert [(arm.name, arm.summaries[0]["rounds"]) for arm in found] == [("a", 1), ("b", 2)]
    with pytest.raises(so.UserError, match=r"so\.compare: nothing says what to train on"):
        so.compare(variants)


def test_a_notebook_completes_the_public_names() -> None:
    pytest.importorskip("IPython")
    from IPython.core.completer import Completer

    found = Completer(namespace={"so": so}).attr_matches("so.re")
    assert {"so.resume", "so.register_method", "so.references_of"} <= set(found)
    assert all(name.removeprefix("so.") in so.__all__ for name in found)


def test_configs_without_a_name_are_compared_by_their_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text('rounds = 1\n[data]\nsource = "digits"\n')
    found = so.compare([tmp_path / "one.toml", tmp_path / "two.toml"])
    assert [arm.name for arm in found] == ["one", "two"]


def test_what_is_wrong_with_a_part_is_said_in_one_line() -> None:
    class Lossless(so.Method):
        name: str = "lossless"

    with pytest.raises(so.UserError, match="Lossless: has no loss"):
        so.register_method(Lossless)
    vector = so.Metric("vector", lambda inputs: [1, 2], frozenset())
    with pytest.raises(so.UserError, match="metric 'vector': gave a list; it must give one number"):
        vector.value(None)  # type: ignore[arg-type]
    with pytest.raises(so.UserError, match=r"clients.drift.alpa: unknown key; did you mean 'alpha'"):
        so.Experiment.of({"clients": {"drift": {"name": "feddyn", "alpa": 1}}})


def test_plain_values_name_their_data() -> None:
    with pytest.raises(so.UserError, match="nothing says what to train on"):
        so.run({"rounds": 1})
    assert so.run({"rounds": 1, "data": {"source": "digits"}}, progress=False).summary["rounds"] == 1
