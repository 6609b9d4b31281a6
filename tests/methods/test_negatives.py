"""Negatives of a whole cohort at once: what each client would draw by itself."""

import numpy as np
import pytest

from spreadout.core.ragged import Ragged
from spreadout.methods import negatives


@pytest.mark.parametrize("count", [1, 10, 30])
def test_a_cohort_draws_what_its_clients_draw_alone(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(count)
    lists = [sorted(rng.choice(500, 1 + i % 3, replace=False).tolist()) for i in range(200)]
    own = Ragged.from_lists(lists)
    numbers = rng.permutation(1000)[:200]
    together = negatives.with_negatives(own, count, (0, 500), 3, numbers)
    assert negatives._at_once(own, count, (0, 500), 3, numbers, 2 * count + 16) is not None
    with monkeypatch.context() as small:
        small.setattr(negatives, "AT_ONCE", 1000)  # some clients after others
        blocks = negatives.with_negatives(own, count, (0, 500), 3, numbers)
    assert blocks.values.tolist() == together.values.tolist()
    assert blocks.offsets.tolist() == together.offsets.tolist()
    monkeypatch.setattr(negatives, "FEW_OWN", 0)  # one after another
    alone = negatives.with_negatives(own, count, (0, 500), 3, numbers)
    assert together.values.tolist() == alone.values.tolist()
    assert together.offsets.tolist() == alone.offsets.tolist()


@pytest.mark.parametrize("classes", [16, 24, 500])  # of the last, 15 draws are enough
def test_few_draws_find_what_more_of_them_find(classes: int) -> None:
    own = Ragged.from_lists([[i % classes] for i in range(60)])
    found = negatives.with_negatives(own, 10, (0, classes), 3, np.arange(60))
    few, more = (negatives._at_once(own, 10, (0, classes), 3, np.arange(60), n) for n in (15, 100))
    assert more is not None
    assert found.values.tolist() == more.values.tolist()
    assert (few is not None) == (classes == 500)
    assert few is None or few.values.tolist() == more.values.tolist()


def test_few_classes_are_drawn_one_client_after_another() -> None:
    own = Ragged.from_lists([[1], [2]])
    assert negatives._at_once(own, 100, (0, 60), 3, np.arange(2), 216) is None
    found = negatives.with_negatives(own, 100, (0, 60), 3, np.arange(2))
    assert found.lengths.tolist() == [60, 60]
