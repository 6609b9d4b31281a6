"""Table 1 on CIFAR: arms are treated alike, every point is a config that runs, results are kept."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.common.record import commit
from benchmarks.papers import cifar
from benchmarks.papers.cifar import (
    ARMS,
    LONG_STEPS,
    NETS,
    OWN,
    Epochs,
    Job,
    Load,
    Results,
    experiment_of,
    final_jobs,
    tuning_jobs,
)
from spreadout.config.effect import idle_keys
from spreadout.core.errors import UserError
from spreadout.runs.compare import Suite

ROOT = Path(__file__).resolve().parents[2]


def run_of(job: Job, score: float) -> dict[str, object]:
    return {**vars(job), "P@1": score, "seconds": 3.0, "rounds": job.rounds}


def test_arms_have_equally_many_points_and_all_are_configs_without_idle_keys() -> None:
    assert {len(points) for points in ARMS.values()} == {6 + len(LONG_STEPS)}
    for net in NETS:
        for arm, points in ARMS.items():
            for i in range(len(points)):
                for test in (False, True):
                    made = experiment_of(Job(net, arm, i, test, 5, 0), "batch")
                    assert idle_keys(made) == {}, (net, arm, i)
                    assert made.method.name == arm
                    assert made.eval.split == ("test" if test else "validation")


@pytest.mark.parametrize("source", cifar.CLIENTS)
def test_the_preset_is_the_recipe_that_was_measured(source: str) -> None:
    """On the network that its points were tried on, with those that were chosen."""
    made = json.loads((ROOT / "results" / "cifar" / "table1.json").read_text())
    longer = json.loads((ROOT / "results" / "cifar" / "table1-long.json").read_text())
    preset = Suite.load([f"fedaws/table1-{source}"], None)
    assert set(preset.variants) == set(ARMS)
    net = f"{source} {NETS[f'{source} resnet32'][1]}"
    runs = [*made["runs"], *longer["runs"]]  # of an arm that both have the later one
    measured = {run["arm"]: run for run in runs if run["test"] and run["net"] == net}
    for arm, found in preset.variants.items():
        run = measured[arm]
        meant = experiment_of(Job(net, arm, run["point"], True, run["epochs"], 0), made["norm"])
        apart = {"name", "data", "chosen"}  # the benchmark hands its data over
        said, recipe = (
            one.model_dump(mode="json", exclude=apart, exclude_unset=True) for one in (found, meant)
        )
        assert {"seed": 0, **said} == recipe
        assert found.data.source.name == source
        assert (found.data.partition.name, found.data.validation_fraction) == ("by_label", 0)


def test_the_papers_figures_are_those_of_the_published_tables() -> None:
    assert cifar.paper("cifar-10 resnet8", "fedaws") == 86.3
    assert cifar.paper("cifar-100 resnet56", "centralized") == 70.0
    assert all(cifar.paper(net, arm) for net in NETS for arm in ARMS)


def test_all_arms_share_one_recipe() -> None:
    for net in NETS:
        made = {arm: experiment_of(Job(net, arm, 0, True, 5, 0), "batch") for arm in ARMS}
        shared = {
            (e.rounds, e.server.momentum, e.server.lr_decay, e.clients.lr_decay) for e in made.values()
        }
        assert len(shared) == 1
        for points in ARMS.values():  # those that are tried together differ
            assert len({repr(p["server"]) for p in points[:6]}) == 6
            assert len({repr(p) for p in points[6:]}) == len(LONG_STEPS)
        seen = {arm: e.clients.batch for arm, e in made.items()}
        images = {seen[arm] * cifar.CLIENTS[NETS[net][0]][0] for arm in ARMS if arm != "centralized"}
        assert images == {seen["centralized"]}


def test_arms_beyond_the_papers_are_the_method_that_they_name() -> None:
    longer = json.loads((ROOT / "results" / "cifar" / "table1-longer.json").read_text())
    for arm, points in OWN.items():
        tried = {run["point"]: run for run in longer["runs"] if run["arm"] == arm and not run["test"]}
        assert len(tried) == len(points) == 6
        for i, point in enumerate(points):
            made = experiment_of(Job("cifar-100 resnet32", arm, i, False, 5, 0), "batch")
            assert idle_keys(made) == {}
            assert (made.method.name, made.method.prior) == ("fedaws", 0.0)
            assert tried[i]["settings"] == point
        assert all(cifar.paper(net, arm) == cifar.paper(net, "fedaws") for net in NETS)


def test_the_best_point_on_held_out_images_is_the_one_that_is_tested(tmp_path: Path) -> None:
    results = Results(tmp_path / "found.json", {"norm": "batch"})
    nets = ["cifar-10 resnet8", "cifar-10 resnet32"]
    tuning = tuning_jobs(nets, ["fedaws", "centralized"], range(3), Epochs(2, {}))
    assert {job.net for job in tuning} == {"cifar-10 resnet8"}
    assert not list(final_jobs(results, nets, ["fedaws"], tuning, Epochs(5, {}), 1))
    for job in tuning:
        results.add(run_of(job, 50.0 + (job.point == 1)))
    final = list(final_jobs(results, nets, ["fedaws", "centralized"], tuning, Epochs(5, {}), 2))
    assert len(final) == 2 * 2 * 2
    assert all(job.point == 1 and job.test and job.epochs == 5 for job in final)
    results.add(run_of(final[0], 80.0))
    again = Results(tmp_path / "found.json", {"norm": "batch"})
    assert again.has(final[0])
    assert not again.has(final[1])
    assert again.table()[0]["P@1"] == 80.0
    about = {"norm": "batch", "commit": "then", "runs": [run_of(final[0], 80.0)]}
    (tmp_path / "later.json").write_text(json.dumps(about))
    later = Results(tmp_path / "later.json", {"norm": "batch"})
    later.add(run_of(final[1], 81.0))  # a file that is gone on with keeps what made its earlier runs
    assert [run["commit"] for run in later.runs] == ["then", commit()]
    assert again.table()[0]["paper"] == 86.3
    with pytest.raises(UserError, match="has runs with norm = 'batch'"):
        Results(tmp_path / "found.json", {"norm": "group"})


def test_a_run_reads_the_published_binary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cifar-10"
    folder.mkdir()
    rng = np.random.default_rng(0)

    def batch(count: int) -> bytes:
        label = (np.arange(count) % 10).astype(np.uint8)[:, None]
        return np.concatenate([label, rng.integers(0, 256, (count, 3072), np.uint8)], 1).tobytes()

    for i in range(5):
        (folder / f"data_batch_{i + 1}.bin").write_bytes(batch(20))
    (folder / "test_batch.bin").write_bytes(batch(10))
    monkeypatch.setenv("SPREADOUT_DATA", str(tmp_path))
    monkeypatch.setenv("SPREADOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cifar, "IMAGES", 100)
    monkeypatch.setattr(cifar, "CLIENTS", {"cifar-10": (10, 2)})
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    cifar.splits_of.cache_clear()
    for test in (False, True):
        found = cifar.train(Job("cifar-10 resnet8", "fedaws", 0, test, 1, 0), "batch", "cpu")
        assert 0 <= found["P@1"] <= 100
        assert found["rounds"] == (5 if test else 4)
    cifar.splits_of.cache_clear()


def test_epochs_may_differ_by_arm_and_network() -> None:
    epochs = Epochs.read(["100", "resnet8=200", "baseline-1=40"])
    assert epochs.of("cifar-10 resnet8", "fedaws") == 200
    assert epochs.of("cifar-10 resnet8", "baseline-1") == 40
    assert epochs.of("cifar-100 resnet56", "centralized") == 100
    by_set = Epochs.read(["100", "cifar-100=80", "cifar-10-resnet32=120", "resnet8=200"])
    assert by_set.of("cifar-10 resnet32", "fedaws") == 120
    assert by_set.of("cifar-100 resnet32", "fedaws") == 80
    assert by_set.of("cifar-10 resnet8", "fedaws") == 200
    with pytest.raises(UserError, match="resnet9"):
        Epochs.read(["resnet9=3"])
    with pytest.raises(UserError, match="'ten': must be a whole number above 0"):
        Epochs.read(["ten"])


def test_a_point_that_diverged_is_never_the_chosen_one(tmp_path: Path) -> None:
    results = Results(tmp_path / "found.json", {"norm": "batch"})
    tuning = tuning_jobs(["cifar-10 resnet8"], ["fedaws"], range(2), Epochs(2, {}))
    results.add(cifar.failed(tuning[0]))
    results.add(run_of(tuning[1], 11.0))
    assert results.chosen("cifar-10 resnet8", "fedaws", tuning) == 1
    assert results.seconds(tuning[0]) > cifar.START  # by runs that ended


def test_what_is_named_first_is_begun_first(tmp_path: Path) -> None:
    nets, arms = ["cifar-100 resnet32", "cifar-100 resnet56"], ["centralized", "fedaws"]
    tuning = tuning_jobs(nets, arms, range(2, 4), Epochs(2, {}))
    assert [(job.arm, job.point) for job in tuning] == [
        *(("centralized", 2), ("centralized", 3)),
        *(("fedaws", 2), ("fedaws", 3)),
    ]
    results = Results(tmp_path / "found.json", {"norm": "batch"})
    for job in tuning:
        results.add(run_of(job, 50.0))
    final = list(final_jobs(results, nets, arms, tuning, Epochs(5, {}), 1))
    assert [(job.net, job.arm) for job in final] == [(net, arm) for net in nets for arm in arms]
    assert set(cifar.LONGEST_FIRST) == set(NETS)


def test_how_long_a_run_takes_is_told_by_how_many_ran_beside_the_last_one(tmp_path: Path) -> None:
    results = Results(tmp_path / "found.json", {"norm": "batch"})
    job = Job("cifar-100 resnet32", "fedaws", 2, True, 10, 0)
    results.add({**run_of(job, 50.0), "seconds": 0.06 * job.rounds, "at_once": 12.0})
    longer = Job("cifar-100 resnet32", "fedaws", 2, True, 100, 0)
    assert results.seconds(longer, 6) == pytest.approx(cifar.START + 0.03 * longer.rounds)
    assert results.seconds(longer, 1) == pytest.approx(cifar.START + 0.013 * longer.rounds)


def test_how_many_run_at_once_is_a_mean_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    load = Load()
    first, second = (Job("cifar-10 resnet8", "fedaws", i, False, 1, 0) for i in range(2))
    load.begin(first, 1)
    clock[0] = 10.0
    load.begin(second, 2)
    clock[0] = 40.0
    assert load.end(first, 1) == pytest.approx((10 * 1 + 30 * 2) / 40)
    clock[0] = 50.0
    assert load.end(second, 0) == pytest.approx((30 * 2 + 10 * 1) / 40)
