"""What a method says when its classes fall onto each other is what helps with that method."""

from dataclasses import dataclass

import pytest

from spreadout.methods import METHODS

GENTLE = "raise method.strength or method.spreadout_margin, or lower clients.row_lr"
FIXED = "they are fixed: more dimensions, or another table, would keep them apart"
RATES = "lower clients.lr and clients.row_lr, or the server's rate"
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
        ("fedalc-fixed", FIXED),
        ("baseline-1", NOTHING),
        ("baseline-2", FIXED),
        ("flag", NOTHING),
        ("fedavg", RATES),
        ("fedss", RATES),
        ("dual_encoder", RATES),
    ],
)
def test_the_remedy_is_the_methods_own(name: str, remedy: str) -> None:
    said = METHODS[name](name=name).collapse_advice(Spread())
    assert said == (
        "classes are collapsing: the nearest two have cosine 0.988, "
        f"the mean over all pairs is 0.750; {remedy}"
    )


def test_classes_pushed_too_hard_are_not_to_be_pushed_harder() -> None:
    said = METHODS["fedaws"](name="fedaws").collapse_advice(Spread(mean_cosine=-0.1))
    assert said == (
        "classes are driven into few directions (effective rank 1.3); "
        "lower method.strength or clients.row_lr"
    )
