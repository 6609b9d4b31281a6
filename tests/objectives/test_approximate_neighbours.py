"""An approximate index proposes neighbours; what it proposes is judged by the table as it is."""

from pathlib import Path

import pytest
import torch

import spreadout as so
from spreadout.core.rows import project_to_sphere
from spreadout.objectives import approximate_neighbours as approximate
from spreadout.objectives.approximate_neighbours import approximately_nearest, snapshot
from spreadout.objectives.neighbours import Nearest, nearest
from spreadout.objectives.regularizers import FarPenalty, mined_pairs

faiss = pytest.importorskip("faiss")
MINED = {"name": "fedaws", "spreadout_form": "topk", "k": 3, "index": "ivf", "index_every": 2}


def families(count: int = 2000, dim: int = 16, seed: int = 0) -> torch.Tensor:
    """Rows around fifty centres: neighbours are to be found in few of an index's lists."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(50, dim, generator=draw)
    rows = centres[torch.randint(50, (count,), generator=draw)]
    return project_to_sphere(rows + 0.3 * torch.randn(count, dim, generator=draw))


def test_most_neighbours_are_found_and_all_if_every_list_is_searched() -> None:
    table = families()
    some = torch.arange(0, 2000, 40)
    exact = nearest(table[some], table, 10, exclude=some)
    for probes, least in ((4, 0.8), (approximate.lists_for(2000), 0.999)):
        found = approximately_nearest(
            table[some], table, 10, snapshot(table), probes=probes, exclude=some
        )
        assert not (found.ids == some[:, None]).any()
        torch.testing.assert_close(found.scores, (table[found.ids] @ table[some][..., None])[..., 0])
        shared = (found.ids[:, :, None] == exact.ids[:, None]).any(-1).float().mean()
        assert float(shared) >= least


def test_scores_are_those_of_rows_as_they_are_now() -> None:
    table, some = families(), torch.tensor([5, 9])
    copy = snapshot(table)
    moved = project_to_sphere(table + 0.1 * torch.randn(table.shape, generator=torch.manual_seed(1)))
    found = approximately_nearest(moved[some], moved, 10, copy, probes=50, exclude=some)
    torch.testing.assert_close(found.scores, (moved[found.ids] @ moved[some][..., None])[..., 0])
    assert (found.scores.diff(dim=1) <= 0).all()


def test_a_few_lists_may_hold_too_few() -> None:
    table, some = families(count=120), torch.tensor([5])
    found = approximately_nearest(table[some], table, 100, snapshot(table), probes=1, exclude=some)
    missing = found.scores == -torch.inf
    assert 0 < int(missing.sum()) < 100


def test_where_too_few_are_found_nothing_else_moves() -> None:
    """No neighbour is no pair: the row that stands for it keeps its place, whatever the optimiser."""
    table, anchors = families(count=60), torch.tensor([7, 40])
    none = Nearest(torch.full((2, 3), -torch.inf), torch.zeros(2, 3, dtype=torch.int64))
    found = mined_pairs(table, anchors, 3, FarPenalty(), search=lambda rows, ids: none)
    assert found.gradient.ids.tolist() == [7, 40]
    assert not found.gradient.values.any()


def config(**changes: object) -> so.Experiment:
    return so.Experiment.of(
        {
            "rounds": 5,
            "data": {"source": {"name": "synthetic", "classes": 80, "features": 30, "examples": 400}},
            "model": {"hidden": [8], "dim": 6},
            "method": {key: value for key, value in {**MINED, **changes}.items() if value is not None},
            "clients": {"per_round": 30, "local_steps": 1, "batch": 8, "lr": 0.1},
            "eval": {"every": 5, "metrics": ["P@1"]},
            "run": {"checkpoint_every": 1},
        }
    )


def test_all_lists_searched_train_as_no_index_does() -> None:
    table = so.run(config(index_probes=80, index_every=1)).state.tables["classes"]
    exact = so.run(config(index="none", index_every=None)).state.tables["classes"]
    torch.testing.assert_close(table, exact, rtol=1e-4, atol=1e-5)


def test_a_resumed_run_goes_on_with_the_index_it_had(tmp_path: Path) -> None:
    experiment = config(index_probes=1, index_every=4)
    whole = so.run(experiment)
    rounds = iter(range(1, 100))
    with pytest.raises(so.Interrupted):
        so.run(experiment, out=tmp_path / "cut", stop=lambda: next(rounds) == 3)
    resumed = so.resume(tmp_path / "cut")
    assert torch.equal(resumed.state.tables["classes"], whole.state.tables["classes"])


def test_what_an_index_is_not_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(so.UserError, match='is for spreadout_form = "topk"'):
        so.run(config(spreadout_form="hinge"))
    monkeypatch.setattr(approximate, "available", lambda: False)
    with pytest.raises(so.UserError, match="needs faiss: pip install"):
        so.run(config())
