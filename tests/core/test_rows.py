import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from spreadout.core.rows import (
    Rows,
    Update,
    along_sphere,
    gather,
    project_to_sphere,
    scatter_add_,
    sub_model,
    sum_by_id,
)
from spreadout.runtime.sequential import traffic_of


def test_gather_copies_and_scatter_touches_only_the_named_rows() -> None:
    table = torch.arange(12.0).view(4, 3)
    rows = gather(table, torch.tensor([1, 3]))
    scatter_add_(table, Rows(rows.ids, torch.ones(2, 3)))
    assert rows.values.tolist() == [[3, 4, 5], [9, 10, 11]]
    assert table.tolist() == [[0, 1, 2], [4, 5, 6], [6, 7, 8], [10, 11, 12]]


def test_bytes_are_those_of_the_tensors_sent() -> None:
    dense = {"w": torch.zeros(3, 5), "b": torch.zeros(5, dtype=torch.float64)}
    sent = sub_model(0, dense, {"classes": torch.zeros(100, 7)}, {"classes": torch.tensor([4, 9])})
    update = Update(client=0, round=0, examples=1, dense={"w": torch.zeros(2)}, tables={})
    traffic = traffic_of(sent, update)
    # 15 floats of 4 bytes, 5 of 8, two ids of 8 and two rows of 7 floats.
    assert traffic.down == 60 + 40 + 16 + 56
    flat = {
        **sent.dense,
        "ids": sent.tables["classes"].ids,
        "values": sent.tables["classes"].values,
    }
    payload = save(flat)
    header = 8 + int.from_bytes(payload[:8], "little")
    assert traffic.down == len(payload) - header  # exactly what a serialiser puts on the wire
    # Up: two ids of 8 bytes in the request, two floats of 4 in an update without trained rows.
    assert (traffic.requests_up, traffic.dense_up, traffic.rows_up) == (16, 8, 0)


def test_projection_gives_unit_rows_and_leaves_padding_at_zero() -> None:
    rows = project_to_sphere(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    torch.testing.assert_close(rows, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


def test_along_sphere_is_the_gradient_through_normalisation() -> None:
    w = project_to_sphere(torch.randn(5, 4, dtype=torch.float64)).requires_grad_()
    target = torch.randn(5, 4, dtype=torch.float64)
    direct = torch.autograd.grad((project_to_sphere(w) * target).sum(), w)[0]
    torch.testing.assert_close(along_sphere(target, w.detach()), direct)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-50, 50)), min_size=1, max_size=40))
def test_sum_by_id_equals_a_dictionary(pairs: list[tuple[int, int]]) -> None:
    ids = torch.tensor([i for i, _ in pairs])
    values = torch.tensor([[float(v), 1.0] for _, v in pairs])
    unique, sums = sum_by_id(ids, values)
    expected: dict[int, list[float]] = {}
    for i, v in pairs:
        seen = expected.setdefault(i, [0.0, 0.0])
        expected[i] = [seen[0] + v, seen[1] + 1]
    assert unique.tolist() == sorted(expected)
    assert sums.tolist() == [expected[i] for i in sorted(expected)]
