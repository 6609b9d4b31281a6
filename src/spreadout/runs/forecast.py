"""What a run will cost, before it is started: a few rounds are timed, and multiplied."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from spreadout.config.experiment import Experiment
from spreadout.config.sound import prepared
from spreadout.core.kept_memory import keep_memory
from spreadout.core.rows import nbytes
from spreadout.core.state import ClientRecords, ServerState
from spreadout.core.tables import table_bytes
from spreadout.core.traffic import Traffic
from spreadout.evaluation.cautious_prior import counted
from spreadout.evaluation.evaluate import evaluate, needed_frequencies
from spreadout.evaluation.scoring import log_prior
from spreadout.federated.cohort import draw_cohort
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round, run_setup
from spreadout.runs import checkpoint
from spreadout.runs.build import build_federation, pick_device
from spreadout.runs.disk_use import disk_use
from spreadout.runs.summary import peak_memory, record_of
from spreadout.runtime.simulator.chunk_sums import traffic_of

REHEARSED = {"cpu": (1, 3), "cuda": (4, 4)}  # rounds to warm up (graphs are made); to time, at least
LOOKS = 32  # cohorts whose bytes are counted
STEPS = (10, 60)  # of those before the first round, where there are more


@dataclass(frozen=True)
class Forecast:
    """All that a run of these rounds is expected to take on this machine."""

    clients: int
    classes: int
    cohort: int
    rounds: int
    model_bytes: int
    down_per_client: float  # bytes of one client's part in one round
    up_per_client: float
    once_bytes: int  # before the first round, of all clients
    seconds_per_round: float
    seconds_per_evaluation: float
    seconds_per_checkpoint: float
    seconds_before: float  # what comes before the first round
    seconds: float  # of all that
    peak_memory_bytes: int
    disk_bytes: int  # of the run folder at the end
    peak_disk_bytes: int  # while a checkpoint is replaced


def forecast(experiment: Experiment, device: str = "auto") -> Forecast:
    """Rehearse on the run's own data; nothing is left behind."""
    where = pick_device(device)
    if where.type == "cpu":
        keep_memory()  # as the run will: it takes less time, and more memory
    e, splits = prepared(experiment)
    f = build_federation(e, splits, where)
    before, state = _begun(f)
    if "counts" in state.scoring and f.method.prior:  # as every evaluation does
        state.scoring["prior"] = log_prior(state.scoring["counts"])
    elif f.method.prior == "validation" and splits.validation is not None:
        state.scoring["prior"] = log_prior(counted(splits.validation, splits.train.classes))
    once = state.traffic.once_down + state.traffic.once_up
    examples = splits.scored(e.eval.split)
    assert examples is not None
    seen = needed_frequencies(f.data, e.eval)
    score = partial(evaluate, f.model, state, examples, e.eval.metrics, seen=seen)
    _seconds(where, score)  # the first time is slower
    scored = _seconds(where, score)
    moved = expected_traffic(f, state)
    each = _round_of(f, state)
    evaluations = 1 + -(-e.rounds // e.eval.every)
    saved = _seconds_to_save(where, state)
    checkpoints = 1 + -(-e.rounds // (e.run.checkpoint_every or e.eval.every))
    visits = max(moved.participations, 1)
    tau = 0.5 if "prior" in state.scoring else None
    record = record_of(f.model, state, score(), tau, 1 / 3, each * e.rounds)
    room = disk_use(e, splits, f, state.whole(), record)
    return Forecast(
        clients=f.data.clients,
        classes=splits.train.class_count,
        cohort=f.server.per_round,
        rounds=e.rounds,
        model_bytes=nbytes(state.dense.values()) + sum(map(table_bytes, state.tables.values())),
        down_per_client=moved.down / visits,
        up_per_client=moved.up / visits,
        once_bytes=once,
        seconds_per_round=each,
        seconds_per_evaluation=scored,
        seconds_per_checkpoint=saved,
        seconds_before=before,
        seconds=before + each * e.rounds + scored * evaluations + saved * checkpoints,
        peak_memory_bytes=peak_memory(where),
        disk_bytes=room.at_end,
        peak_disk_bytes=room.peak,
    )


def _begun(f: Federation) -> tuple[float, ServerState]:
    """The setup before the first round: its seconds, and the state it leaves.

    Where it takes many steps, some are timed and the rest is extrapolated.
    """
    took: dict[int, float] = {}
    for steps in (f.method.setup_steps,) if f.method.setup_steps <= STEPS[1] else STEPS:
        short = replace(f, method=f.method.with_setup_steps(steps))
        state = ServerState(0, *f.model.initial(f.seed, f.device))
        took[steps] = _seconds(f.device, lambda short=short, state=state: run_setup(short, state))  # type: ignore[misc]
    (first, least), (last, most) = min(took.items()), max(took.items())
    more = (f.method.setup_steps - first) * (most - least) / (last - first) if last > first else 0.0
    return least + max(more, 0.0), state


def _seconds_to_save(device: torch.device, state: ServerState) -> float:
    """Seconds to write a checkpoint to a temporary folder; 0 where that is not possible."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _seconds(device, lambda: checkpoint.save(Path(folder), state.whole(), {}))
    except OSError:
        return 0.0


def _round_of(f: Federation, state: ServerState) -> float:
    """Seconds of a round: the median of several, of more where rounds are short."""
    warm, least = REHEARSED[f.device.type]
    took: list[float] = []
    while len(took) < f.rounds and (len(took) < warm + least or (sum(took) < 1.5 and len(took) < 300)):
        took.append(_seconds(f.device, lambda: run_round(f, state)))
    return statistics.median(took[warm:] or took)


def expected_traffic(federation: Federation, state: ServerState) -> Traffic:
    """The bytes of the run's first cohorts, which are drawn but do not train."""
    total = Traffic()
    if federation.method.is_centralized:  # data in one place crosses no network
        return total
    records = ClientRecords()  # of who has its fixed rows already
    watched = replace(state, records=records)
    for round in range(min(LOOKS, federation.rounds)):
        cohort = draw_cohort(federation, round)
        total += traffic_of(watched, cohort, federation)
        if federation.clients.training.fixed:
            records.sent_fixed_(cohort.clients, federation.data.clients)
    return total


def _seconds(device: torch.device, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
