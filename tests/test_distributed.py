"""Two processes give the model of one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from hypothesis import given
from hypothesis import strategies as st

import spreadout as so
from spreadout.assembly import build_federation
from spreadout.data.federated import Splits
from spreadout.federated.round import run_round
from spreadout.federated.server import ServerState
from spreadout.runtime.distributed import part_of

ARMS = {
    "fedaws": ["clients.local_steps=3"],
    "fused": ["clients.local_steps=1"],
    "all rows": ["method.name=fedavg", "method.scale=5", "server.momentum=0.9"],
    "fewer clients than ranks": ["clients.per_round=1"],
    "some refused": ["clients.max_update_norm=0.9"],
}


def train(data: Splits, arm: list[str]) -> ServerState:
    base = {
        "model": {"hidden": [5], "dim": 4},
        "clients": {"per_round": "all", "batch": 3, "lr": 0.3},
        "method": {"name": "fedaws", "strength": 0.1},
    }
    f = build_federation(so.Experiment.of(base, overrides=arm), data, torch.device("cpu"))
    state = ServerState(0, *f.model.initial(f.seed, f.device))
    for _ in range(4):
        run_round(f, state)
    return state


def one_rank(rank: int, meet: str, data: Splits, out: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
    torch.save({name: train(data, arm) for name, arm in ARMS.items()}, f"{out}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_ranks_equal_one_and_each_other(toy: Splits, tmp_path: Path) -> None:
    meet = f"file://{tmp_path / 'meet'}"
    mp.spawn(one_rank, args=(meet, toy, str(tmp_path)), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2))
    for name, arm in ARMS.items():
        alone = train(toy, arm)
        torch.testing.assert_close(first[name].dense, alone.dense, rtol=1e-4, atol=2e-6)
        torch.testing.assert_close(first[name].tables, alone.tables, rtol=1e-4, atol=2e-6)
        assert first[name].traffic == alone.traffic
        assert first[name].refused == alone.refused
        for part in ("dense", "tables"):
            ours, theirs = getattr(first[name], part), getattr(second[name], part)
            assert all(torch.equal(ours[key], theirs[key]) for key in ours), name


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 5))
def test_every_client_is_some_ranks_and_no_rank_has_much_more(work: list[int], ranks: int) -> None:
    steps = np.array(work, dtype=np.int64)
    parts = [part_of(steps, rank, ranks) for rank in range(ranks)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(work)))
    shares = [int(steps[part].sum()) for part in parts]
    assert max(shares) - min(shares) <= 2 * max(work, default=0)


@pytest.mark.parametrize("ranks", [1, 3])
def test_parts_keep_the_order_of_the_cohort(ranks: int) -> None:
    for rank in range(ranks):
        part = part_of(np.array([3, 9, 1, 4, 4, 7]), rank, ranks)
        assert part.tolist() == sorted(part.tolist())


def test_torchrun_trains_writes_one_folder_and_resumes(tmp_path: Path) -> None:
    settings = ["rounds=4", "eval.every=2", "clients.per_round=6"]
    alone = so.run(so.Experiment.load("digits-fedaws", settings), device="cpu")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    cut = str(tmp_path / "run")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    start = [*command, port, "-m", "spreadout", "run", "digits-fedaws", *settings, "--out", cut]
    done = subprocess.run(
        start, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("folder") == 1  # one of them talks
    made = json.loads((tmp_path / "run" / "summary.json").read_bytes())
    assert made["metrics"] == pytest.approx(alone.metrics, abs=0.6)
    assert made["bytes"] == alone.summary["bytes"]
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 3
    (tmp_path / "run" / "summary.json").unlink()  # as if it had died at its very end
    again = [*command, port, "-m", "spreadout", "resume", cut]
    done = subprocess.run(
        again, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ended = json.loads((tmp_path / "run" / "summary.json").read_bytes())
    assert ended["metrics"] == made["metrics"]
