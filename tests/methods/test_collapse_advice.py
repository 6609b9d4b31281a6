"""What a method says when its classes fall onto each other is what helps with that method."""

from dataclasses import dataclass

import pytest

from spreadout.methods import METHODS

GENTLE = "lower clients.row_lr tenfold, or raise method.spreadout_steps"
HASHED = "they are fixed: raise method.buckets, or method.hash_tables"
TRAINED = "they are fixed: raise method.push, or lower method.pull"
RATES = "lower clients.lr and clients.row_lr tenfold, or the server's rate"
APART = (
    'nothing keeps them apart here: set method.loss_form = "sampled_softmax", or raise '
    "method.server_spreadout"
)
NOTHING = 'nothing keeps them apart here: try method.name = "fedaws"'


@dataclass
class Spread:
    max_cosine: float = 0.98765
    mean_cosine: float = 0.75
    effective_rank: float = 1.26


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("fedaws", GENTLE),
        ("fedalc", GENTLE),
        ("fedaws-softmax", GENTLE),
        ("fedalc-fixed", TRAINED),
        ("baseline-1", NOTHING),
        ("baseline-2", "they are fixed: raise model.dim"),
        ("flag", NOTHING),
        ("fedavg", RATES),
        ("fedss", RATES),
        ("dual_encoder", APART),
    ],
)
def test_the_remedy_is_the_methods_own(name: str, remedy: str) -> None:
    said = METHODS[name](name=name).collapse_advice(Spread())
    assert said == (
        "classes are collapsing: the nearest two have cosine 0.988, "
        f"the mean over all pairs is 0.750; {remedy}"
    )


def test_fixed_rows_of_buckets_want_more_of_them() -> None:
    hashed = METHODS["baseline-2"](name="baseline-2", hash_tables=2, buckets=8)
    assert hashed.collapse_advice(Spread()).endswith(HASHED)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"strength": 0.01}, "raise method.strength"),
        ({"strength": 0.01, "spreadout_margin": 0.3}, "raise method.spreadout_margin"),
        ({"strength": 0.01, "spreadout_margin": 0.3, "spreadout_form": "topk"}, "raise method.strength"),
        ({"spreadout_step": "plain"}, "raise method.strength"),  # which has no end
        ({"strength": 5.0}, GENTLE),
    ],
)
def test_who_pushes_with_all_its_strength_is_not_to_push_harder(
    changes: dict[str, object], remedy: str
) -> None:
    assert METHODS["fedaws"](name="fedaws", **changes).collapse_advice(Spread()).endswith(f"; {remedy}")


@pytest.mark.parametrize(
    ("form", "remedy"),
    [
        ("topk", "set method.k = 25"),
        ("both", "set method.k = 25"),
        ("far", 'set method.spreadout_form = "hinge"'),
        ("hinge", "lower method.strength"),
    ],
)
def test_classes_pushed_too_hard_are_not_to_be_pushed_harder(form: str, remedy: str) -> None:
    method = METHODS["fedaws"](name="fedaws", spreadout_form=form)
    said = method.collapse_advice(Spread(mean_cosine=-0.1))
    assert said == f"classes are driven into few directions (effective rank 1.3); {remedy}"
    plain = METHODS["fedaws"](name="fedaws", spreadout_form=form, spreadout_step="plain", strength=5.0)
    own = 'set method.spreadout_step = "safe"'
    if form != "hinge":
        own += f" and {remedy.removeprefix('set ')}"
    assert plain.collapse_advice(Spread(mean_cosine=-0.1)).endswith(f"; {own}")


@pytest.mark.parametrize(
    ("k", "remedy"), [(28, "set method.k = 7"), (5, "set method.k = 1"), (2, "set method.k = 1")]
)
def test_fewer_neighbours_are_always_fewer(k: int, remedy: str) -> None:
    method = METHODS["fedaws"](name="fedaws", spreadout_form="topk", k=k)
    assert method.collapse_advice(Spread(mean_cosine=-0.1)).endswith(f"; {remedy}")


def test_who_has_one_neighbour_needs_another_form() -> None:
    one = METHODS["fedaws"](name="fedaws", spreadout_form="topk", k=1)
    said = one.collapse_advice(Spread(mean_cosine=-0.1))
    assert said.endswith('; set method.spreadout_form = "hinge"')
    plain = METHODS["fedaws"](
        name="fedaws", spreadout_form="topk", k=1, spreadout_step="plain", strength=5.0
    )
    assert plain.collapse_advice(Spread(mean_cosine=-0.1)).endswith(
        '; set method.spreadout_step = "safe" and method.spreadout_form = "hinge"'
    )
