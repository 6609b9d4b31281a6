"""Cover sets: a request says which public blocks hold a client's classes, and no more."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import spreadout as so
from spreadout.cli.main import app
from spreadout.core.ragged import Ragged
from spreadout.data.dataset import FederatedDataset
from spreadout.methods import FedSS
from spreadout.privacy.counted_events import in_blocks
from spreadout.privacy.cover import blocks_of, covered
from spreadout.privacy.request_audit import audit


@pytest.mark.parametrize(("first", "end", "size"), [(0, 100, 10), (1, 98, 10), (0, 7, 7), (2, 40, 3)])
def test_every_class_is_in_one_block_of_enough_classes(first: int, end: int, size: int) -> None:
    blocks = blocks_of(first, end, size)
    assert (blocks[:first] == -1).all()
    counts = np.bincount(blocks[first:])
    assert counts.min() >= size
    assert counts.max() <= counts.min() + 1
    assert len(counts) == (end - first) // size


def test_blocks_are_of_no_order_that_classes_have() -> None:
    """Classes of neighbouring numbers, such as one alphabet's, are as often in a block as any."""
    blocks = blocks_of(0, 5000, 10)
    neighbours = float((blocks[1:] == blocks[:-1]).mean())
    assert neighbours < 5 * 9 / 4999  # 9 of 4,999 in the mean


def test_a_request_is_whole_blocks_whoever_asks_and_in_every_round() -> None:
    y = np.array([0, 1, 2, 5, 5, 9])
    data = FederatedDataset.from_arrays(
        np.eye(12, dtype=np.float32)[y], y, np.array([0, 0, 1, 2, 3, 3]), classes=12
    )
    method, everyone = FedSS(draw="cover", cover=4), torch.arange(4)
    blocks = blocks_of(data.first_class, 12, 4)
    own = data.rows_of(everyone)["classes"]
    asked = method.request(data, everyone, seed=7, round=0)["classes"]
    again = method.request(data, everyone, seed=8, round=3)["classes"]
    for i in range(4):
        assert torch.equal(asked[i], again[i])  # neither the seed nor the round is in it
        held = set(blocks[own[i].numpy()].tolist())
        assert asked[i].tolist() == [c for c in range(12) if blocks[c] in held]
    assert not method.has_secret_draws
    # Two clients with other classes of the same blocks ask for the same: nobody can tell them apart.
    twins = [c for c in range(12) if blocks[c] == blocks[5]][:2]
    both = covered(Ragged.from_lists([[c] for c in twins]), blocks)
    assert torch.equal(both[0], both[1])


def test_beliefs_are_those_of_an_observer_who_tries_every_set() -> None:
    rng = np.random.default_rng(3)
    odds, block = rng.normal(size=9), np.array([4, 4, 4, 7, 7, 7, 7, 9, 9])
    for own in (3, 4, 6):
        weight = {
            some: np.exp(odds[list(some)].sum())
            for some in itertools.combinations(range(9), own)
            if set(block[list(some)]) == {4, 7, 9}
        }
        exact = [sum(w for some, w in weight.items() if c in some) for c in range(9)]
        found = in_blocks(odds, block, own)
        np.testing.assert_allclose(found, np.array(exact) / sum(weight.values()), rtol=1e-9)


@pytest.mark.parametrize("size", [4, 10])
def test_the_best_observer_of_requests_is_no_better_than_one_in_a_block(size: int) -> None:
    """400 clients with one class each, all alike: he is sure of 1/B, and finds it as often."""
    classes, clients = 200, 400
    rng = np.random.default_rng(0)
    own = {i: rng.integers(0, classes, 1) for i in range(clients)}
    blocks = blocks_of(0, classes, size)
    asked = covered(Ragged.from_lists([own[i].tolist() for i in range(clients)]), blocks)
    requests = [(i, asked[i].tolist()) for _ in range(5) for i in range(clients)]
    looks = audit(requests, own, np.full(classes, 1 / classes), fixed=True, blocks=blocks)
    assert len(looks) == 5
    for look in looks:  # however often he looks
        assert look.confidence == pytest.approx(1 / size)
        assert look.found == pytest.approx(1 / size)
        assert look.exposed == 0
    # Any other rule of guessing from requests alone hits as rarely: here, the first of a block.
    hits = np.mean([asked[i][0] == own[i][0] for i in range(clients)])
    assert hits < 1 / size + 4 * (1 / size / clients) ** 0.5


def test_popular_classes_are_better_guesses_in_a_cover_set_too() -> None:
    """What is public stays so: the page says it."""
    blocks = np.zeros(4, np.int64)
    skewed = np.array([0.7, 0.1, 0.1, 0.1])
    (look,) = audit([(0, [0, 1, 2, 3])], {0: np.array([0])}, skewed, fixed=True, blocks=blocks)
    assert look.confidence == pytest.approx(0.7)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty clients with three of 120 classes each."""
    folder = tmp_path_factory.mktemp("cover")
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(120, 16))
    y = np.concatenate([np.repeat(np.sort(rng.choice(120, 3, replace=False)), 6) for _ in range(20)])
    x = (mean[y] + 0.5 * rng.normal(size=(len(y), 16))).astype(np.float32)
    np.savez(folder / "data.npz", x=x, y=y, client=np.repeat(np.arange(20), 18), x_test=x, y_test=y)
    e = {
        "chosen": [],
        "rounds": 2,
        "data": {"source": "npz", "path": str(folder / "data.npz"), "partition": "given"},
        "model": {"encoder": "mlp", "hidden": [32], "dim": 16},
        "method": {"name": "fedss", "draw": "cover", "cover": 8},
        "clients": {"local_steps": 3, "batch": 18, "lr": 0.1},
        "eval": {"metrics": ["P@1"], "references": False},
        "run": {"log_requests": True},
    }
    (folder / "config.toml").write_text(so.Experiment.of(e).to_toml())
    return folder / "config.toml"


def test_a_run_says_what_cover_sets_cost_and_what_they_disclose(config: Path, tmp_path: Path) -> None:
    result = so.run(so.Experiment.load(config), out=tmp_path / "run")
    told = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert told["channels"]["rows"]["status"] == "disclosed"
    assert "blocks of 8" in told["channels"]["rows"]["what"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "requests.jsonl").read_text().splitlines()]
    rows = sum(len(line["rows"]) for line in lines)
    assert result.summary["bytes"]["rows_down"] == rows * (4 * 16 + 8)
    said = CliRunner().invoke(app, ["audit", str(tmp_path / "run")])
    assert said.exit_code == 0, said.output
    assert f"{rows / len(lines):.1f} rows" in said.output


def test_moved_rows_name_the_class_where_no_noise_hides_them(config: Path) -> None:
    """What requests hide, updates tell: positives alone move own rows only; noise hides them again."""

    def found(*more: str) -> dict[str, float]:
        told = CliRunner().invoke(app, ["audit", str(config), "--updates", "--json", *more])
        assert told.exit_code == 0, told.output
        return json.loads(told.output)  # type: ignore[no-any-return]

    alone = found("method.loss_form=positives")
    assert alone["found"] > 0.99
    assert found()["found"] > alone["chance"] + 0.2
    noised = ["privacy.clip=0.1", "privacy.noise=5", "method.weighting=uniform", "method.merge=mean"]
    assert found(*noised)["found"] < alone["chance"] + 0.2


def test_an_audit_of_sums_tries_their_noise_and_looks_at_no_single_update(config: Path) -> None:
    summed = ["privacy.model=distributed", "privacy.clip=0.1", "privacy.noise=2", "rounds=1"]
    summed += ["method.weighting=uniform", "method.merge=mean"]
    told = CliRunner().invoke(app, ["audit", str(config), "--updates", *summed])
    assert "sees no single update" in str(told.exception)
    told = CliRunner().invoke(app, ["audit", str(config), "--canary", "--trials", "400", *summed])
    assert told.exit_code == 0, told.output  # the noise of the fewest nodes is enough for the claim
    assert "within the claim" in told.output


def test_more_classes_in_a_block_than_there_are_is_refused() -> None:
    y = np.arange(3)
    data = FederatedDataset.from_arrays(np.eye(3, dtype=np.float32), y, y)
    assert "there are only 3 classes" in str(FedSS(draw="cover", cover=4).validate_data(data))
