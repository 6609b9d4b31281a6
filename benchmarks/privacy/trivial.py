"""What needs no model: a guess at random, and the most frequent labels by one noised count.

    python -m benchmarks.privacy.trivial

A client counts its labels and scales the counts to length one. Their sum over clients is released once,
with noise for the whole ε, by the server or by each client; what it ranks first is predicted for every
example. A method of `utility.py` that is not above this is not worth its rounds. Without noise it is the
package's own reference, with its others beside it.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import record
from benchmarks.common.command import command, names, refuse_unknown, whole_numbers
from benchmarks.privacy import COUNT, GUESS, utility
from spreadout.config.sound import prepared
from spreadout.core import randomness
from spreadout.core.ragged import Ragged
from spreadout.data.columns import Lists
from spreadout.data.dataset import FederatedDataset
from spreadout.data.splits import Splits
from spreadout.evaluation.metrics import find_metric
from spreadout.evaluation.pooled import Pool, pool_of
from spreadout.evaluation.references import references_of
from spreadout.evaluation.references.scoring import Clock, metrics_of
from spreadout.privacy.accounting import least_noise

NAMES = {"popularity": COUNT, "most frequent": COUNT, "successor": "successor table"}


def unit_counts(data: FederatedDataset) -> Tensor:
    """Each client's counts of its labels, scaled to length one, summed over clients: (C,) double."""
    labels, every = data.columns["y"], torch.arange(data.examples)
    client = torch.repeat_interleave(torch.arange(data.clients), data.offsets.diff())
    if isinstance(labels, Lists):
        sets = labels.ragged()
        client, label = torch.repeat_interleave(client, sets.lengths), sets.values.long()
    else:
        label = labels.take(every).long()
    pair, count = torch.unique(client * data.classes + label, return_counts=True)
    owner, label = pair // data.classes, pair % data.classes
    square = torch.zeros(data.clients, dtype=torch.float64).index_add_(0, owner, count.double() ** 2)
    total = torch.zeros(data.classes, dtype=torch.float64)
    return total.index_add_(0, label, count / square.sqrt()[owner])


def noise_of(model: str, epsilon: float, clients: int) -> float:
    """Deviation of one release's sum; the noises of all clients add up to √clients of one."""
    if model == "local":
        return least_noise(epsilon, 1, utility.DELTA) * math.sqrt(clients)
    return least_noise(epsilon, 1, utility.DELTA, 1.0)


def noised(counts: Tensor, first: int, deviation: float, seed: int, *where: str) -> Tensor:
    """The released counts; rows below the first class are nobody's and come last."""
    draw = randomness.generator(seed, "counts", *where).standard_normal(len(counts))
    found = counts + deviation * torch.from_numpy(draw)
    found[:first] = -torch.inf
    return found


def score(scores: Tensor, labels: Ragged, pool: Pool, metric: str) -> float:
    """Of one ranking for every example."""
    found = metrics_of(lambda at: scores[None], labels, pool, [find_metric(metric)], None, Clock(1e9))
    return found[metric]


def guess(labels: Ragged, classes: int, metric: str) -> float:
    """What a ranking at random is expected to score: of P@1 the labels an example has, R@k has k."""
    kind, _, depth = metric.partition("@")
    labelled = labels.lengths[labels.lengths > 0]
    tries = int(depth) if kind == "R" else float(labelled.double().mean())
    return 100 * tries / classes


def runs_of(name: str, splits: Splits, seed: int) -> Iterator[dict[str, Any]]:
    """Every line of a table that has no model, as results of one seed."""
    metric, labels, train = utility.METRIC[name], splits.test.labels, splits.train
    said: dict[str, Any] = {"set": name, "seed": seed, "split": "test", "point": []}
    plain = {**said, "model": "none", "epsilon": None}
    classes = train.classes - train.first_class
    yield {**plain, "arm": GUESS, "score": guess(labels, classes, metric)}
    for reference in references_of(splits, [metric]).values():
        shown = NAMES.get(reference.name, reference.name)
        yield {**plain, "arm": shown, "score": reference.metrics.get(metric)}
    counts, pool = unit_counts(train), pool_of(train)
    for model in utility.MODELS:
        for epsilon in utility.EPSILONS:
            deviation = noise_of(model, epsilon, train.clients)
            ranked = noised(counts, train.first_class, deviation, seed, model, f"{epsilon:g}")
            found = {"arm": COUNT, "model": model, "epsilon": epsilon}
            yield {**said, **found, "score": score(ranked, labels, pool, metric)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=names, default=",".join(utility.ARMS))
    parser.add_argument("--seeds", type=whole_numbers, default="0,1,2")
    parser.add_argument("--out", type=Path, default=utility.OUT)
    given = parser.parse_args(arguments)
    commit = record.commit()
    known = {utility.key_of(run) for run in utility.runs_in(given.out)}
    refuse_unknown("--sets", given.sets, list(utility.ARMS))
    for name in given.sets:
        arm = next(iter(utility.ARMS[name]))
        for seed in given.seeds:
            job = utility.job_of((name, arm, "none", None), (), seed, "test")
            _, splits = prepared(job.experiment())
            for run in runs_of(name, splits, seed):
                if utility.key_of(run) not in known:
                    utility.add(given.out, {**run, "commit": commit})


if __name__ == "__main__":
    command(main)
