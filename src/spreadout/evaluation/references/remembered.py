"""References of data that several runs share, computed once in a process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch

from spreadout.core.ragged import Ragged
from spreadout.data.columns import Column
from spreadout.data.dataset import Splits
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.pooled import pool_of
from spreadout.evaluation.references.compute import references_of, why_none
from spreadout.evaluation.references.reference import Reference

LOOKED_AT = 256  # instances whose inputs go into a fingerprint
MOST = 64  # sets of references that are remembered

_known: dict[str, dict[str, Reference]] = {}


def remembered_references(
    splits: Splits, config: EvalConfig, device: torch.device
) -> dict[str, Reference]:
    """The references of a run, or those of an earlier run with the same instances and `[eval]`.

    Who holds which instance does not matter to a reference, so variants that only partition the data
    differently share them.
    """
    if why_none(splits, config.metrics, config.split):
        return {}
    key = _fingerprint(splits, config)
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
        _known[key] = found
    return _known[key]


def _fingerprint(splits: Splits, config: EvalConfig) -> str:
    """Changes with the labels of any instance, the inputs of some, and what is measured."""
    settings = (config.metrics, config.split, config.frequent, config.propensity)
    digest = hashlib.sha256(repr((settings, splits.train.classes)).encode())
    pool = pool_of(splits.train)
    scored = splits.test if config.split == "test" else splits.validation
    assert scored is not None
    for part in (*_parts(pool.inputs, pool.labels), *_parts(scored.inputs, scored.labels)):
        digest.update(part)
    return digest.hexdigest()


def _parts(inputs: Mapping[str, Column], labels: Ragged) -> Iterable[bytes]:
    for tensor in (labels.offsets, labels.values):
        yield tensor.numpy().tobytes()
    spread = torch.arange(min(LOOKED_AT, len(labels))) * max(len(labels) // LOOKED_AT, 1)
    for name, column in sorted(inputs.items()):
        yield name.encode()
        yield column.take(spread).cpu().contiguous().numpy().tobytes()
