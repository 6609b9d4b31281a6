"""How many buckets and tables label hashing needs (FedMLH, Lemmas 1 and 2), and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spreadout.models.buckets import side_by_side_bytes


@dataclass(frozen=True)
class HashPlan:
    """R tables of B buckets for some number of classes, and what follows from that."""

    tables: int
    buckets: int
    collisions: float  # pairs of classes expected to share their bucket in every table
    per_bucket: float  # classes in a bucket, in the mean
    bytes: int  # of the R networks
    plain_bytes: int  # of one network with an output for every class


def least_buckets(classes: int, tables: int, delta: float) -> int:
    """Lemma 2: with so many buckets no two classes share all of them, with probability 1 − δ.

    As many as there are classes where fewer do not suffice.
    """
    pairs = classes * (classes - 1) / 2
    low, high = 1, classes  # B = C is enough for any δ ≥ pairs / C^R, and nobody takes more
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if pairs <= delta * float(middle) ** tables else (middle + 1, high)
    return low


def bucket_positives(own: float, all_positives: float, buckets: int, instances: float) -> float:
    """The least a bucket is expected to have, given that a class with `own` positives is in it.

    An instance is in the bucket of class j unless it lacks j and every other class c there, which is so
    with probability (1 − n_j/N) ∏ (1 − n_c/(N B)) where labels are independent, as Lemma 1 assumes. By
    1 − x ≤ e^−x that gives

        N − (N − n_j) exp(−(N_lab − n_j) / (N B)).

    The bound of Lemma 1, `printed_bound`, lets an instance with several labels in a bucket count too
    often: from about two labels an instance on it may exceed what is expected.
    """
    return instances - (instances - own) * math.exp(-(all_positives - own) / (instances * buckets))


def printed_bound(own: float, all_positives: float, buckets: int) -> float:
    """Lemma 1 as it is printed."""
    return own + (all_positives - own) / buckets - all_positives / buckets**2


def plans(
    classes: int, delta: float, *, features: int, hidden: int, layers: int = 2, most_tables: int = 8
) -> list[HashPlan]:
    """One plan for each number of tables that makes the whole smaller than an output for every class."""
    body = [features, *[hidden] * layers]
    found = []
    for tables in range(1, most_tables + 1):
        buckets = least_buckets(classes, tables, delta)
        pairs = classes * (classes - 1) / 2
        plan = HashPlan(
            tables,
            buckets,
            pairs / buckets**tables,
            classes / buckets,
            side_by_side_bytes(tables, [*body, buckets]),
            side_by_side_bytes(1, [*body, classes]),
        )
        if 1 < buckets < classes and plan.bytes < plan.plain_bytes:
            found.append(plan)
    return found
