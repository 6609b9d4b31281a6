"""Two processes give the model of one."""

import os
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
