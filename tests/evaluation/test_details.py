"""What a run writes down by class and by client, beside slow and obvious counts of the same."""

import base64
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.core.traffic import Traffic
from spreadout.evaluation.by_class import by_class, by_frequency
from spreadout.evaluation.by_client import by_client
from spreadout.evaluation.embed import ranked
from spreadout.evaluation.projection import projection_of
from spreadout.evaluation.similarity import BINS, histogram
from spreadout.federated.cohort import draw_cohort
from toys import several_classes, tagged, tagged_config


@pytest.fixture(scope="module")
def trained() -> so.Result:
    e = so.Experiment.of(
        {
            "rounds": 6,
            "model": {"hidden": [8], "dim": 6},
            "clients": {"per_round": 3},
            "method": {"name": "fedss", "negatives": 2},
        }
    )
    return so.run(e, data=several_classes(), device="cpu")


def test_by_class_counts_every_example(trained: so.Result) -> None:
    f, state, held = trained.federation, trained.state, several_classes().test
    of = by_class(f.model, state, held, 8)
    guesses = [
        int(ranked(f.model, state, held, torch.tensor([i]), 1).ids[0, 0]) for i in range(len(held))
    ]
    labels = held.labels.values.tolist()
    assert of.examples == len(labels)
    assert of.found.tolist() == [
        sum(y == g == c for y, g in zip(labels, guesses, strict=True)) for c in range(8)
    ]
    assert of.tested.tolist() == [labels.count(c) for c in range(8)]
    assert of.pairs is not None
    pairs = {(a, b): n for a, b, n in of.pairs.tolist()}
    assert pairs == {
        p: list(zip(labels, guesses, strict=True)).count(p) for p in zip(labels, guesses, strict=True)
    }
    bins = by_frequency(torch.tensor([0, 1, 2, 3, 4, 7, 8, 100]), of)
    assert [(b["low"], b["high"], b["classes"]) for b in bins] == [
        (0, 0, 1),
        (1, 1, 1),
        (2, 3, 2),
        (4, 7, 2),
        (8, 15, 1),
        (64, 127, 1),
    ]
    assert sum(b["found"] for b in bins) == int(of.found.sum())


def test_label_sets_count_the_first_five_and_have_no_confusion() -> None:
    result = so.run(tagged_config({"name": "fedalc"}, rounds=1), data=tagged(), device="cpu")
    held = tagged().test
    of = by_class(result.federation.model, result.state, held, 6)
    assert of.depth == 5
    assert of.pairs is None
    found = ranked(result.federation.model, result.state, held, torch.arange(len(held)), 5).ids.tolist()
    for c in range(6):
        sets = [set(held.labels[i].tolist()) for i in range(len(held))]
        assert int(of.found[c]) == sum(
            c in own and c in best for own, best in zip(sets, found, strict=True)
        )


def test_examples_of_classes_that_were_never_trained_are_left_out(trained: so.Result) -> None:
    held = so.Examples.from_arrays(np.zeros((3, 6), dtype=np.float32), np.array([1, 8, 9]))
    of = by_class(trained.federation.model, trained.state, held, 8)
    assert of.examples == 1
    assert int(of.tested.sum()) == 1


def test_bytes_of_clients_add_up_to_what_was_measured(trained: so.Result) -> None:
    f, state = trained.federation, trained.state
    share = torch.linspace(0, 1, 8, dtype=torch.float64)
    share[3] = torch.nan  # not tested
    told = by_client(f, state.traffic, 6, share)
    assert told is not None
    cohorts = [draw_cohort(f, round).clients.tolist() for round in range(6)]
    assert told["visits"] == [sum(c in cohort for cohort in cohorts) for c in range(6)]
    moved = state.traffic
    assert sum(told["down"]) == pytest.approx(moved.down - moved.once_down, abs=6)
    assert sum(told["up"]) == pytest.approx(moved.up - moved.once_up, abs=6)
    for client in range(6):
        labels = f.data.view(client).columns["y"].take(torch.arange(int(f.data.sizes[client]))).tolist()
        known = [float(share[y]) for y in labels if y != 3]
        assert told["score"][client] == pytest.approx(np.mean(known), abs=1e-4)
        assert told["holds"][client] == sorted(set(labels))
    assert by_client(f, Traffic(), 10_000, share) is None


def test_a_histogram_counts_pairs() -> None:
    rows = torch.nn.functional.normalize(
        torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), dim=1
    )
    counts = [0] * BINS
    for a, b in itertools.combinations(rows.double(), 2):
        counts[min(int((float(a @ b) + 1) / 2 * BINS), BINS - 1)] += 1
    assert histogram(rows) == pytest.approx([n / 66 for n in counts], abs=1e-6)


def test_small_rows_keep_cosines(trained: so.Result) -> None:
    told = projection_of(trained.federation.model, trained.state, several_classes().test)
    raw = np.frombuffer(base64.b64decode(told["vectors"]["data"]), dtype=np.int8)
    kept = torch.from_numpy(raw.reshape(8, told["vectors"]["dims"]).astype(np.float32))
    kept = torch.nn.functional.normalize(kept, dim=1)
    rows = torch.nn.functional.normalize(trained.state.tables["classes"].float(), dim=1)
    assert torch.allclose(kept @ kept.T, rows @ rows.T, atol=0.02)
    assert told["ids"] is None


def test_a_run_writes_it_down_and_a_report_reads_it(tmp_path: Path) -> None:
    e = so.Experiment.of({"rounds": 1, "model": {"hidden": [], "dim": 3}})
    so.run(e, data=several_classes(), out=tmp_path / "run", device="cpu")
    told = json.loads((tmp_path / "run" / "details.json").read_text())
    assert sum(told["classes"]["trained"]) == 37
    assert told["similarity"]["before"] != told["similarity"]["after"]
    told["classes"]["found"].pop()
    (tmp_path / "run" / "details.json").write_text(json.dumps(told))
    (tmp_path / "run" / "SHA256SUMS").unlink()
    from spreadout.runs.arms import arms_of

    with pytest.raises(so.UserError, match=r"details.json: is damaged or was changed .*counts of some"):
        arms_of(tmp_path / "run")
