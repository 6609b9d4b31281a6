import dataclasses
import math

import pytest
import torch

from spreadout.core.rows import Rows, SubModel, Update
from spreadout.federated import checks

SENT = SubModel(3, {"w": torch.zeros(2, 2)}, {"classes": Rows(torch.tensor([1, 4]), torch.zeros(2, 3))})


def honest(**changes: object) -> Update:
    rows = Rows(torch.tensor([1, 4]), torch.ones(2, 3))
    update = Update(7, 3, 5, {"w": torch.ones(2, 2)}, {"classes": rows}, loss=0.1)
    return dataclasses.replace(update, **changes)


def rows(ids: list[int], values: torch.Tensor) -> dict[str, object]:
    return {"tables": {"classes": Rows(torch.tensor(ids), values)}}


def judge(update: Update, **limits: float) -> str | None:
    return checks.validate_update(update, SENT, client=7, table_sizes={"classes": 10}, **limits)


def test_an_honest_update_is_accepted() -> None:
    assert judge(honest()) is None
    assert judge(honest(**rows([4], torch.ones(1, 3)))) is None  # it need not send all rows back
    assert judge(honest(), max_norm=math.sqrt(10) + 1e-4) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"client": 8}, "wrong client"),
        ({"round": 2}, "wrong round"),
        ({"examples": math.nan}, "malformed"),
        ({"examples": 5.0}, "malformed"),
        ({"examples": "five"}, "malformed"),
        ({"examples": True}, "malformed"),
        ({"examples": 2**70}, "too many examples"),
        ({"loss": math.nan}, "not finite"),
        ({"loss": None}, "malformed"),
        ({"dense": None}, "malformed"),
        ({"dense": {"w": [[1, 1], [1, 1]]}}, "malformed"),
        ({"dense": {"w": torch.ones(2, 2).to_sparse()}}, "malformed"),
        ({"tables": {"classes": "all of them"}}, "malformed"),
        # Finite, but not once it is weighed by its examples: the sum would be infinite.
        ({"dense": {"w": torch.full((2, 2), 3e38)}}, "not finite"),
        ({"examples": 0}, "no examples"),
        ({"examples": -5}, "no examples"),
        ({"dense": {}}, "wrong parts"),
        ({"dense": {"w": torch.ones(2, 2), "x": torch.ones(1)}}, "wrong parts"),
        ({"tables": {}}, "wrong parts"),
        ({"dense": {"w": torch.ones(2, 3)}}, "wrong shape"),
        ({"dense": {"w": torch.ones(2, 2, dtype=torch.float64)}}, "wrong dtype"),
        ({"dense": {"w": torch.tensor([[0, math.nan], [0, 0]])}}, "not finite"),
        ({"dense": {"w": torch.tensor([[0, math.inf], [0, -math.inf]])}}, "not finite"),
        (rows([1, 4], torch.ones(2, 4)), "wrong shape"),
        (rows([1], torch.ones(2, 3)), "wrong shape"),
        (rows([1, 4], torch.ones(2, 3).half()), "wrong dtype"),
        (rows([1, 10], torch.ones(2, 3)), "unknown rows"),
        (rows([-1, 4], torch.ones(2, 3)), "unknown rows"),
        (rows([1, 5], torch.ones(2, 3)), "unrequested rows"),
        (rows([1, 1], torch.ones(2, 3)), "repeated rows"),
        (rows([1, 4], torch.full((2, 3), math.nan)), "not finite"),
    ],
)
def test_what_is_refused_and_why(changes: dict[str, object], reason: str) -> None:
    assert judge(honest(**changes)) == reason


def test_a_norm_above_the_limit_is_refused() -> None:
    assert judge(honest(), max_norm=3.0) == "norm above limit"  # the norm is √10


def test_a_fixed_table_must_not_come_back() -> None:
    fixed = frozenset({"classes"})
    assert (
        checks.validate_update(honest(), SENT, client=7, table_sizes={"classes": 10}, fixed=fixed)
        == "wrong parts"
    )
    assert (
        checks.validate_update(
            honest(tables={}), SENT, client=7, table_sizes={"classes": 10}, fixed=fixed
        )
        is None
    )


def test_a_stack_is_judged_client_by_client_as_single_updates_are() -> None:
    dense = torch.ones(6, 2, 2)
    values = torch.ones(6, 2, 3)
    dense[1, 0, 0], values[2, 1, 1], dense[3], dense[5] = math.nan, math.inf, 100.0, 3e38
    loss, examples = torch.tensor([0.1, 0.1, 0.1, 0.1, math.nan, 0.1]), torch.full((6,), 5)
    bad = checks.invalid_clients({"w": dense}, {"classes": values}, loss, examples, max_norm=50.0)
    single = [
        judge(
            honest(dense={"w": dense[i]}, loss=float(loss[i]), **rows([1, 4], values[i])), max_norm=50.0
        )
        for i in range(6)
    ]
    assert [[reason for reason, found in bad.items() if found[i]] for i in range(6)] == [
        [reason] if reason else [] for reason in single
    ]
    assert single == [None, "not finite", "not finite", "norm above limit", "not finite", "not finite"]


def test_a_claim_beyond_the_limit_of_examples_is_refused() -> None:
    assert judge(honest(examples=300), max_examples=300) is None
    assert judge(honest(examples=301), max_examples=300) == "too many examples"


@pytest.mark.parametrize(
    ("positives", "reason"),
    [
        ({"classes": torch.tensor([3, 0])}, None),
        ({}, "wrong parts"),
        ({"classes": torch.tensor([3])}, "wrong shape"),
        ({"classes": torch.tensor([3.0, math.nan])}, "wrong dtype"),
        ({"classes": torch.tensor([3, -1])}, "malformed"),
        ({"classes": torch.tensor([3, 6])}, "too many examples"),  # of five
        ({"classes": "many"}, "malformed"),
    ],
)
def test_positives_are_told_where_they_are_asked_for(
    positives: dict[str, object], reason: str | None
) -> None:
    asked = frozenset({"classes"})
    assert judge(honest(positives=positives), counted=asked) == reason  # type: ignore[arg-type]
    assert judge(honest(positives={"classes": torch.tensor([3, 0])})) == "wrong parts"  # nobody asked
