"""A key that has no effect is an error with the remedy, whichever component would have read it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

import spreadout as so
from spreadout.config import effect
from spreadout.config.experiment import Experiment
from spreadout.config.values import changes_of, overlay
from spreadout.core.registry import conditions_of
from spreadout.methods import METHODS
from spreadout.runs.compare import Suite
from tiny import tiny, tiny_data

SPREAD = {"name": "fedaws", "prior": 0}
CASES: dict[str, tuple[list[str], str]] = {
    "input_lr with an mlp": (
        ["clients.input_lr=0.5"],
        "clients.input_lr = 0.5: has no effect, as model.encoder = 'mlp' has no feature rows: it is for a lookup",
    ),
    "a key of another encoder": (
        ["chosen=[]", "model.pooling=sum"],
        "model.pooling = sum: has no effect, as model.encoder = 'mlp' has no use for it: leave it out",
    ),
    "k without top-k": (
        ["method.k=7"],
        'method.k = 7: has no effect, as method.spreadout_form is "hinge": it is for "topk" or "both"',
    ),
    "an index that is not there": (
        ["method.spreadout_form=topk", "method.k=2", "method.index_probes=3"],
        'method.index_probes = 3: has no effect, as method.index is "none": it is for "ivf"',
    ),
    "a margin of another loss": (
        ["method.loss_form=square", "method.margin=0.5"],
        'method.margin = 0.5: has no effect, as method.loss_form is "square": it is for "hinge"',
    ),
    "momentum with Adam": (
        ["server.optimizer=adam", "server.momentum=0.9"],
        'server.momentum = 0.9: has no effect, as server.optimizer is "adam": it is for "sgd"',
    ),
    "Adam's constants with SGD": (
        ["clients.eps=1e-8"],
        'clients.eps = 1e-08: has no effect, as clients.optimizer is "sgd": it is for "adam" or "adagrad" or "yogi"',
    ),
    "rates of rows that are fixed": (
        ["method.name=baseline-2", "clients.row_lr=0.7"],
        "clients.row_lr = 0.7: has no effect, as method.name = 'baseline-2' keeps class rows fixed: leave it out",
    ),
    "an optimizer of rows that are replaced": (
        ["server.tables.classes.lr=0.5"],
        "server.tables.classes.lr = 0.5: has no effect, as rows are replaced and not averaged: set method.merge, or leave it out",
    ),
    "who is chosen of everybody": (
        ["clients.selection=weighted"],
        'clients.selection = weighted: has no effect, as clients.per_round = "all" takes everybody: set it to a number',
    ),
    "a cohort of one place": (
        ["method.name=centralized", "clients.per_round=2"],
        "clients.per_round = 2: has no effect, as method.name = 'centralized' has all examples in one place: leave it out",
    ),
    "a remainder of everything": (
        ["clients.batch=full", "clients.drop_remainder=true"],
        'clients.drop_remainder = True: has no effect, as clients.batch = "full" has no remainder: leave it out',
    ),
    "propensities without PSP": (
        ["eval.propensity=[0.6, 2.6]"],
        "eval.propensity = (0.6, 2.6): has no effect, as no metric uses propensities: add PSP@1 to eval.metrics",
    ),
    "frequent classes that nobody asks for": (
        ["eval.frequent=2"],
        "eval.frequent = 2: has no effect, as no metric asks for frequent classes: add P@1 frequent to eval.metrics",
    ),
    "a seed of no validation part": (
        ["data.validation_seed=3"],
        "data.validation_seed = 3: has no effect, as data.validation_fraction is 0: set that too",
    ),
}


def changed(changes: list[str]) -> so.Experiment:
    given = changes_of(changes)
    base = tiny().model_dump(exclude_unset=True)
    if "name" in given.get("method", {}):
        base["method"] = {"prior": 0}
    return Experiment.model_validate(overlay(base, given))


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_with_the_reason(case: str) -> None:
    changes, said = CASES[case]
    with pytest.raises(so.UserError) as error:
        so.run(changed(changes), data=tiny_data())
    assert str(error.value) == said


@pytest.mark.parametrize("case", CASES)
def test_it_would_have_had_none(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow twin of every rule: with the key and without it, the runs are the same."""
    changes, _ = CASES[case]
    monkeypatch.setattr("spreadout.runs.misfits.refuse_idle", lambda *_: None)
    runs = [so.run(changed(some), data=tiny_data()) for some in (changes, changes[:-1])]
    ours, theirs = ([{**r, "seconds": 0} for r in run.history] for run in runs)
    assert ours == theirs


def test_keys_that_are_read_are_not_refused() -> None:
    for changes in (
        ["method.spreadout_form=topk", "method.k=2"],
        [
            "method.spreadout_form=topk",
            "method.k=2",
            "method.mined_form=hinge",
            "method.spreadout_margin=0.9",
        ],
        ["server.optimizer=adam", "server.eps=1e-8", "server.beta1=0.8"],
        ["clients.per_round=2", "clients.selection=weighted"],
        ["clients.row_lr=0.7"],
        ["eval.metrics=['P@1 frequent']", "eval.frequent=2"],
    ):
        assert effect.idle_keys(changed(changes), tiny_data()) == {}, changes


def test_a_published_test_part_leaves_nothing_to_cut_off(tmp_path: Path) -> None:
    x, y = np.eye(3, 4).repeat(4, axis=0), np.repeat(np.arange(3), 4)
    np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x, y_test=y)
    data = {"source": "npz", "path": str(tmp_path / "a.npz"), "test_fraction": 0.5}
    with pytest.raises(
        so.UserError, match=r"data.test_fraction = 0.5: .* npz has a test part of its own"
    ):
        so.run({"rounds": 1, "data": data})


def test_what_an_override_leaves_idle_is_taken_back_and_what_it_sets_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    config.write_text(
        'data.source = "digits"\nclients.row_lr = 0.7\nserver.optimizer = "adam"\nserver.eps = 1e-8\n'
    )
    assert so.Experiment.load(config).clients.row_lr == 0.7
    other = so.Experiment.load(config, ["method.name=baseline-2", "server.optimizer=sgd"])
    assert other.clients.row_lr is None
    assert other.server.eps == 1e-3
    with pytest.raises(so.UserError, match=r"clients.row_lr = 0.5: has no effect"):
        so.run(so.Experiment.load(config, ["method.name=baseline-2", "clients.row_lr=0.5", "rounds=1"]))


def test_a_variant_takes_back_what_it_leaves_idle(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    (tmp_path / "base.toml").write_text('data.source = "digits"\nclients.row_lr = 0.7\n')
    suite.write_text(
        'base = "base.toml"\n[variants.a]\n[variants.b]\nmethod.name = "baseline-2"\n'
        '[variants.c]\nmethod.name = "baseline-2"\nclients.row_lr = 0.5\n'
    )
    found = Suite.load([str(suite)], None).variants
    assert [found[name].clients.row_lr for name in "abc"] == [0.7, None, 0.5]
    assert list(effect.idle_keys(found["c"])) == ["clients.row_lr"]


def _sections(model: type[BaseModel]) -> list[type[BaseModel]]:
    found = [model]
    for field in model.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += _sections(field.annotation)
    return found


def test_conditions_name_keys_that_there_are() -> None:
    for section in [*_sections(Experiment), *METHODS.parts()]:
        for key, any_of in conditions_of(section).items():  # type: ignore[arg-type]
            named: set[Any] = {key, *(other for all_of in any_of for other in all_of)}
            assert named <= set(section.model_fields), section
