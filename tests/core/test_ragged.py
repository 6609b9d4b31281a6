import torch
from hypothesis import given
from hypothesis import strategies as st

from spreadout.core.ragged import Ragged

lists = st.lists(st.lists(st.integers(0, 20), max_size=6), min_size=1, max_size=8)


@given(lists, st.data())
def test_select_equals_indexing_a_list_of_lists(held: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(held) - 1), max_size=10))
    chosen = Ragged.from_lists(held).select(torch.tensor(rows, dtype=torch.int64))
    assert [chosen[i].tolist() for i in range(len(chosen))] == [held[i] for i in rows]


@given(lists)
def test_padded_keeps_every_value_in_place(held: list[list[int]]) -> None:
    width = max(map(len, held))
    padded = Ragged.from_lists(held).padded(-1)
    assert padded.tolist() == [row + [-1] * (width - len(row)) for row in held]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=30))
def test_from_pairs_is_a_set_per_owner(pairs: list[tuple[int, int]]) -> None:
    owner = torch.tensor([o for o, _ in pairs], dtype=torch.int64)
    value = torch.tensor([v for _, v in pairs], dtype=torch.int64)
    held = Ragged.from_pairs(owner, value, 5)
    assert [held[i].tolist() for i in range(5)] == [
        sorted({v for o, v in pairs if o == i}) for i in range(5)
    ]
