"""Numbers in order, against torch's own sorts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spreadout.core.rows import sum_by_id
from spreadout.core.sorting import distinct, stable_order

ENDS = [-(2**63), -1, 0, 1, 2**61 - 1, 2**61, 2**63 - 1]  # of these some leave no room for places


@given(st.lists(st.integers(0, 5) | st.sampled_from(ENDS), max_size=9))
def test_orders_are_those_of_torch(listed: list[int]) -> None:
    numbers = torch.tensor(listed, dtype=torch.int64)
    assert torch.equal(stable_order(numbers), torch.argsort(numbers, stable=True))
    assert torch.equal(distinct(numbers), torch.unique(numbers))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_other_whole_numbers_are_ordered_too(dtype: torch.dtype) -> None:
    numbers = torch.tensor([2**30, 3, 2**30, 0], dtype=dtype)
    assert stable_order(numbers).tolist() == [3, 1, 0, 2]
    assert distinct(numbers).tolist() == [0, 3, 2**30]


@given(st.lists(st.integers(0, 6), max_size=9))
def test_sums_are_by_id(listed: list[int]) -> None:
    ids, each = torch.tensor(listed, dtype=torch.int64), torch.arange(2.0 * len(listed)).view(-1, 2)
    unique, sums = sum_by_id(ids, each)
    assert unique.tolist() == sorted(set(listed))
    for number, total in zip(unique, sums, strict=True):
        assert torch.equal(total, each[ids == number].sum(0))
