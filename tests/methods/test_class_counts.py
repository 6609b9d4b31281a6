"""Whether a client names rows and counts as it must: the quick checks against slow obvious ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spreadout.methods.class_counts import MOST, is_count, is_row_list

NUMBERS = st.lists(st.integers(-2, 9), max_size=5)


@given(NUMBERS, st.integers(0, 9))
def test_a_row_list_is_distinct_ascending_and_within_its_table(rows: list[int], count: int) -> None:
    slow = rows == sorted(set(rows)) and all(0 <= row < count for row in rows)
    assert is_row_list(np.array(rows, dtype=np.int64), count) == slow


@given(NUMBERS, st.lists(st.sampled_from([-1, 0, 1, 7, MOST - 1, MOST]), max_size=5))
def test_counts_are_positive_bounded_and_one_for_each_class(
    classes: list[int], counts: list[int]
) -> None:
    slow = (
        is_row_list(np.array(classes, dtype=np.int64), 8)
        and len(counts) == len(classes)
        and all(0 < count < MOST for count in counts)
    )
    assert is_count(np.array(classes, dtype=np.int64), np.array(counts, dtype=np.int64), 8) == slow


@pytest.mark.parametrize("rows", [np.array([1.0]), np.array([1], np.int32), np.array([[1]])])
def test_arrays_of_another_kind_are_no_row_list(rows: np.ndarray) -> None:
    assert not is_row_list(rows, 8)
    assert not is_count(np.array([1]), rows, 8)
