"""References of data that several runs share, computed once in a process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from spreadout.core.ragged import Ragged
from spreadout.data.columns import Column
from spreadout.data.splits import Splits
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.pooled import pool_of
from spreadout.evaluation.references.compute import references_of, why_none
from spreadout.evaluation.references.copies import Copies, copies_in
from spreadout.evaluation.references.reference import Reference

LOOKED_AT = 256  # instances whose inputs go into a fingerprint
MOST = 64  # sets of references that are remembered


@dataclass(frozen=True)
class ReferenceSet:
    """References, and what they were made from and scored on."""

    references: dict[str, Reference] = field(default_factory=dict)
    instances: int = 0  # that they learned from
    scored: str = ""  # a fingerprint of the examples that were scored
    copies: Copies = field(default_factory=Copies)  # of training rows among these


_known: dict[str, ReferenceSet] = {}


def remembered_references(splits: Splits, config: EvalConfig, device: torch.device) -> ReferenceSet:
    """The references of a run, or those of an earlier run with the same instances and `[eval]`.

    Who holds which instance does not matter to a reference, so variants that only partition the data
    differently share them.
    """
    if why_none(splits, config.metrics, config.split):
        return ReferenceSet()
    pool = pool_of(splits.train)
    held_out = splits.scored(config.split)
    assert held_out is not None
    scored = _fingerprint(held_out.inputs, held_out.labels)
    settings = (config.metrics, config.split, config.frequent, config.propensity, pool.classes)
    key = f"{_fingerprint(pool.inputs, pool.labels)} {scored} {settings!r}"
    if key not in _known:
        found = references_of(
            splits,
            config.metrics,
            config.split,
            frequent=config.frequent,
            propensity=config.propensity,
            device=device.type,
        )
        while len(_known) >= MOST:
            del _known[next(iter(_known))]
        _known[key] = ReferenceSet(found, len(pool), scored, copies_in(pool.inputs, held_out.inputs))
    return _known[key]


def _fingerprint(inputs: Mapping[str, Column], labels: Ragged) -> str:
    """Changes with the labels of any instance, and the inputs of some."""
    digest = hashlib.sha256()
    for tensor in (labels.offsets, labels.values):
        digest.update(tensor.numpy().tobytes())
    spread = torch.arange(min(LOOKED_AT, len(labels))) * max(len(labels) // LOOKED_AT, 1)
    for name, column in sorted(inputs.items()):
        digest.update(name.encode())
        digest.update(column.take(spread).cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
