"""Two processes give the model of one."""

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from hypothesis import given
from hypothesis import strategies as st

import spreadout as so
from spreadout.core.state import ServerState
from spreadout.core.tables import Sharded, Table
from spreadout.data.splits import Splits
from spreadout.evaluation.evaluate import Evaluation, evaluate
from spreadout.federated.round import run_round
from spreadout.models.embedding import TableShape
from spreadout.objectives.neighbours import Nearest, nearest
from spreadout.runs import checkpoint
from spreadout.runs.build import build_federation
from spreadout.runtime.distributed import part_of
from spreadout.runtime.distributed import sharded as parts_of

ARMS = {
    "fedaws": ["clients.local_steps=3"],
    "fused": ["clients.local_steps=1"],
    "sees rows": ["method.negatives=2", "clients.local_steps=3"],
    "all rows": ["method.name=fedavg", "method.scale=5", "server.momentum=0.9"],
    "fewer clients than ranks": ["clients.per_round=1"],
    "some refused": ["clients.max_update_norm=0.9"],
    "fedprox": ["clients.local_steps=3", "clients.drift=fedprox", "clients.drift.mu=0.5"],
    "scaffold": ["clients.local_steps=3", "clients.drift=scaffold", "clients.per_round=3"],
    "feddyn": ["clients.local_steps=3", "clients.drift=feddyn", "clients.per_round=3"],
    "norms clipped": ["server.robust=norm_clipping", "clients.per_round=3"],
    "median": ["server.robust=median", "method.name=fedavg", "method.scale=5"],
    "centred clipping": [
        "server.robust=centred_clipping",
        "server.robust.momentum=0.8",
        "clients.per_round=3",
    ],
}
MINED = ["method.spreadout_form=topk", "method.k=2"]
PLAIN = "method.spreadout_step=plain"
SHARDED = {
    "sampled": ["method.name=fedss", "method.negatives=2", "server.tables.classes.optimizer=adam"],
    "seen and mined": [*MINED, "method.negatives=2", "clients.local_steps=1"],
    "mined": [*MINED, "method.spreadout_steps=2"],
    "mined plainly": [*MINED, PLAIN, "method.spreadout_optimizer=adam", "method.spreadout_steps=2"],
    "mined among some": [*MINED, "method.candidates=3", PLAIN, "method.spreadout_optimizer=adam"],
    "correlated": [*MINED, "method.name=fedalc"],
    "positives counted": ["method.name=flag"],
    "one after another": [*MINED, "run.executor=sequential"],
    "fewer clients": [*MINED, "clients.per_round=1"],
    "geometric median": [*MINED, "server.robust=geometric_median"],
    "spectral filter": [*MINED, "server.robust=spectral", "server.robust.trim=0.4"],
    "norms clipped": [*MINED, "server.robust=norm_clipping", "clients.per_round=1"],
}


def train(data: Splits, arm: list[str], *, sharded: bool = False) -> ServerState:
    base = {
        "model": {"hidden": [5], "dim": 4},
        "clients": {"per_round": "all", "batch": 3, "lr": 0.3},
        "method": {"name": "fedaws", "strength": 0.1},
    }
    f = build_federation(so.Experiment.of(base, overrides=arm), data, torch.device("cpu"))
    state = ServerState(
        0, *f.model.initial(f.seed, f.device, parts_of(f, 0.0) if sharded else frozenset())
    )
    assert isinstance(state.tables["classes"], Sharded) == sharded
    for _ in range(4):
        run_round(f, state)
    return state


def told_of(data: Splits, state: ServerState) -> Evaluation:
    f = build_federation(
        so.Experiment.of({"model": {"hidden": [5], "dim": 4}}), data, torch.device("cpu")
    )
    return evaluate(f.model, state, data.test, ["P@1", "R@2", "MRR", "mAP"])


def one_rank(rank: int, meet: str, data: Splits, out: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
    torch.save({name: train(data, arm) for name, arm in ARMS.items()}, f"{out}/{rank}.pt")
    apart = {name: train(data, arm, sharded=True) for name, arm in SHARDED.items()}
    told = {name: told_of(data, state) for name, state in apart.items()}
    torch.save(
        ({name: state.whole() for name, state in apart.items()}, told), f"{out}/sharded-{rank}.pt"
    )
    torch.save(search(), f"{out}/found-{rank}.pt")
    torch.distributed.destroy_process_group()


def search() -> list[Nearest]:
    """Some rows nearest to others, in a table that every process has, or a part of if there are several."""
    drawn = torch.Generator().manual_seed(0)
    table: Table = torch.randn(23, 4, generator=drawn)
    queries, own = table[torch.tensor([0, 7, 22])], torch.tensor([0, 7, 22])
    if torch.distributed.is_initialized():
        every = table
        table = Sharded.made(23, lambda start, stop: every[start:stop])
    low = torch.tensor([1, 3, 7])  # all of them with the first process
    return [
        nearest(queries, table, 5),
        nearest(queries, table, 5, exclude=own),
        nearest(queries, table, 2, exclude=own, candidates=low),
        nearest(queries, table, 30),
    ]


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
        torch.testing.assert_close(first[name].control, alone.control, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(first[name].robust, alone.robust, rtol=1e-4, atol=2e-6)
        assert {p: s.clients.tolist() for p, s in first[name].clients.items()} == {
            p: s.clients.tolist() for p, s in alone.clients.items()
        }
        for part in ("dense", "tables"):
            ours, theirs = getattr(first[name], part), getattr(second[name], part)
            assert all(torch.equal(ours[key], theirs[key]) for key in ours), name
    (states, told), (_, also) = (
        torch.load(tmp_path / f"sharded-{rank}.pt", weights_only=False) for rank in range(2)
    )
    for name, arm in SHARDED.items():
        alone = train(toy, arm)
        torch.testing.assert_close(states[name].dense, alone.dense, rtol=1e-4, atol=2e-6)
        torch.testing.assert_close(states[name].tables, alone.tables, rtol=1e-4, atol=2e-6)
        assert states[name].slots.keys() == alone.slots.keys()
        for part, slots in alone.slots.items():
            torch.testing.assert_close(states[name].slots[part], slots, rtol=1e-3, atol=1e-5)
        assert states[name].traffic == alone.traffic
        expected = told_of(toy, alone)
        assert told[name].metrics == also[name].metrics == pytest.approx(expected.metrics)
        assert asdict(told[name].geometry) == pytest.approx(
            asdict(expected.geometry), rel=1e-4, abs=1e-5
        )
    for rank in range(2):
        found = torch.load(tmp_path / f"found-{rank}.pt", weights_only=False)
        for several, one in zip(found, search(), strict=True):
            assert torch.equal(several.ids, one.ids)
            torch.testing.assert_close(several.scores, one.scores)


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


def test_torchrun_trains_writes_one_folder_and_goes_on_at_any_number(tmp_path: Path) -> None:
    settings = [
        "rounds=4",
        "eval.every=2",
        "clients.per_round=6",
        "method.spreadout_form=topk",
        "method.k=3",
    ]
    settings += [
        PLAIN,
        "method.spreadout_optimizer=adam",
        "run.shard_mb=0",
    ]  # each has five of the ten rows
    alone = so.run(so.Experiment.load("digits-fedaws", settings), device="cpu")
    half = tmp_path / "half"
    told = torchrun("run", "digits-fedaws", *settings, "rounds=2", "--out", str(half))
    assert told.count("folder") == 1  # one of them talks
    assert len((half / "metrics.jsonl").read_text().splitlines()) == 2
    (half / "summary.json").unlink()  # as if it had been cut off there
    config = half / "config.toml"
    config.write_text(config.read_text().replace("rounds = 2", "rounds = 4"))
    (half / "SHA256SUMS").unlink()  # the change is meant
    shutil.copytree(half, tmp_path / "by one")
    torchrun("resume", str(half))
    made = json.loads((half / "summary.json").read_bytes())
    assert made["metrics"] == pytest.approx(alone.metrics, abs=0.6)
    assert made["bytes"] == alone.summary["bytes"]
    by_two, _ = checkpoint.load(half / "checkpoint", torch.device("cpu"))
    by_one = so.resume(
        tmp_path / "by one", device="cpu"
    ).state  # what two have written, one goes on with
    for state in (by_two, by_one):
        torch.testing.assert_close(state.tables, alone.state.tables, rtol=1e-4, atol=2e-5)
        torch.testing.assert_close(state.slots, alone.state.slots, rtol=1e-3, atol=1e-4)


def torchrun(*words: str) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    start = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        port,
    ]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*start, "-m", "spreadout", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_folder_that_cannot_be_written_stops_all_processes(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").touch()
    with pytest.raises(AssertionError, match="taken: "):
        torchrun("run", "digits-fedaws", "rounds=1", "--out", str(tmp_path / "taken"))


@pytest.mark.parametrize(("count", "dim"), [(5, 2), (200_000, 3), (131_072, 1)])
def test_fresh_rows_are_the_same_whichever_are_drawn(count: int, dim: int) -> None:
    shape = TableShape(count, dim, sphere=False, scale=0.5)
    whole = 0.5 * torch.randn(count, dim, generator=torch.Generator().manual_seed(3))
    assert torch.equal(shape.drawn(3, 0, count), whole)
    for start, stop in ((0, count // 2), (count // 2, count), (count // 3, count // 3 + 1)):
        assert torch.equal(shape.drawn(3, start, stop), whole[start:stop])
