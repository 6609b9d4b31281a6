"""A section that is made in Python tells its errors in one line, as a config file does."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

import spreadout as so
from spreadout.core.registry import Section
from spreadout.federated.robust.norm_clipping import NormClipping
from spreadout.methods import FedAwS


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda: so.DataConfig(source="tabel"),
            r"^DataConfig: source = 'tabel': unknown; did you mean 't",
        ),
        (
            lambda: so.DataConfig(test_fracton=0.1),
            r"^DataConfig: test_fracton: .* mean 'test_fraction'\?",
        ),
        (
            lambda: so.DataConfig(source={"name": "table", "lable": "x"}),
            r"^DataConfig: source\.lable: unk",
        ),
        (
            lambda: so.ModelConfig(encoder="mpl"),
            r"^ModelConfig: encoder = 'mpl': unknown; did you mean 'm",
        ),
        (lambda: so.Optimizer(lr=-1), r"^Optimizer: lr = -1: must be above 0$"),
        (lambda: FedAwS(name="fedaws", margin="far"), r"^FedAwS: margin = 'far': must be a number$"),
        (
            lambda: FedAwS(hash_tables=3),
            r"^FedAwS: hash_tables: unknown key; it is one of .* and fedmlh",
        ),
        (lambda: NormClipping(factor=0), r"^NormClipping: factor"),
        (lambda: so.Experiment(rounds=0), r"^experiment: rounds = 0: must be at least 1$"),
        (
            lambda: so.Experiment(lr=0.1),
            r"^experiment: lr: unknown key; did you mean clients\.lr or serv",
        ),
        (
            lambda: so.Experiment(clients={"local_step": 1}),
            r"^experiment: clients\.local_step: unk.*_steps'",
        ),
    ],
)
def test_an_error_is_one_line_with_a_remedy(made: Callable[[], object], said: str) -> None:
    with pytest.raises(so.UserError, match=said) as told:
        made()
    assert "\n" not in str(told.value)
    assert told.value.__suppress_context__  # nothing of pydantic's is printed above it


def test_python_and_a_config_say_the_same_of_an_experiment() -> None:
    values = {"clients": {"lr": "fast"}, "data": {"partition": "iidd"}}
    with pytest.raises(so.UserError) as written:
        so.Experiment.of(values)
    with pytest.raises(so.UserError) as made:
        so.Experiment(**values)  # type: ignore[arg-type]
    assert str(made.value) == str(written.value)
    assert "(and 1 more)" in str(made.value)  # sections inside others are still read to the end


def test_pydantic_is_asked_as_before() -> None:
    class Outer(BaseModel):
        inner: so.DataConfig

    with pytest.raises(ValidationError) as found:
        Outer(inner={"source": "tabel"})  # type: ignore[arg-type]
    assert found.value.errors()[0]["loc"] == ("inner", "source")
    with pytest.raises(ValidationError):
        so.DataConfig.model_validate({"source": "tabel"})
    whole = so.Experiment.of({"rounds": 3, "method": {"name": "fedavg"}})
    assert so.Experiment.model_validate(whole.model_dump()) == whole
    assert pickle.loads(pickle.dumps(whole)) == whole
    assert whole.model_copy(update={"rounds": 4}).rounds == 4


def test_a_section_of_ones_own_says_it_too() -> None:
    class Mine(Section):
        size: int = 1

    assert Mine(size=2).size == 2
    with pytest.raises(so.UserError, match=r"^Mine: siez: unknown key; did you mean 'size'\?"):
        Mine(siez=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("given", ["run.toml", Path("run.toml")])
def test_a_file_in_the_place_of_values_is_told_where_it_goes(given: object) -> None:
    with pytest.raises(so.UserError, match=r"not sections with values; Experiment\.load reads a file"):
        so.Experiment.of(given)  # type: ignore[arg-type]


def test_a_word_in_the_place_of_a_list_is_shown_as_one() -> None:
    with pytest.raises(so.UserError, match=r'must be a list: \["balanced_accuracy"\]'):
        so.Experiment.of({}, overrides=["eval.metrics=balanced_accuracy"])
    made = so.Experiment.of({}, overrides=['eval.metrics=["balanced_accuracy"]'])
    assert made.eval.metrics == ["balanced_accuracy"]
