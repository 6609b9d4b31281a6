"""What a finished model finds, class by class: frequent and rare ones, and what is taken for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.data.held_out import Examples
from spreadout.evaluation.embed import ranked
from spreadout.models.embedding import EmbeddingModel

MOST_EXAMPLES = 20_000  # held-out examples that are looked at
WORK_LIMIT = 4e11  # multiply-adds of scoring them; at least `FEWEST` are scored all the same
FEWEST = 200
MOST_CLASSES = 100_000  # of which every one is written down
MOST_PAIRS = 50_000  # of classes that are taken for each other


@dataclass(frozen=True)
class ByClass:
    """Of held-out examples: how many have each class, and for how many it was found."""

    examples: int  # that were looked at
    depth: int  # a class counts as found among so many that are ranked first
    tested: Tensor  # (C,) int64
    found: Tensor  # (C,) int64
    pairs: Tensor | None  # (p, 3) true class, class it is taken for, examples; None of label sets

    @property
    def share(self) -> Tensor:
        """(C,) of each class's examples, those for which it was found; NaN where there are none."""
        return self.found / torch.where(self.tested > 0, self.tested.double(), torch.nan)


def by_class(model: EmbeddingModel, state: ServerState, held_out: Examples, classes: int) -> ByClass:
    """Score some held-out examples, evenly spread, against all classes.

    Of examples with one label each the class that is ranked first counts, of label sets the first five.
    """
    some = looked_at(model, held_out, classes)
    labels = held_out.labels.select(some)
    single = bool((labels.lengths == 1).all())
    depth = min(1 if single else 5, classes)
    first = [ranked(model, state, held_out, at, depth).ids.cpu() for at in torch.split(some, 1024)]
    guesses = torch.cat(first) if first else torch.empty(0, depth, dtype=torch.int64)
    owner = torch.repeat_interleave(torch.arange(len(some)), labels.lengths.cpu())
    label = labels.values.cpu()
    hit = (guesses[owner] == label[:, None]).any(1)
    return ByClass(
        examples=len(some),
        depth=depth,
        tested=torch.bincount(label, minlength=classes),
        found=torch.bincount(label[hit], minlength=classes),
        pairs=_pairs(label, guesses[:, 0], classes) if single and len(some) else None,
    )


def looked_at(model: EmbeddingModel, held_out: Examples, classes: int) -> Tensor:
    """Which held-out examples are scored class by class: evenly spread, no more than can be afforded."""
    labelled = _labelled(held_out, classes)
    most = min(MOST_EXAMPLES, max(FEWEST, int(WORK_LIMIT / max(classes * model.outputs, 1))))
    return labelled[:: max(1, -(-len(labelled) // most))]


def _labelled(held_out: Examples, classes: int) -> Tensor:
    """Examples that have labels, all of them of trained classes: others have no row to be found by."""
    lengths, label = held_out.labels.lengths.cpu(), held_out.labels.values.cpu()
    owner = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    usable = lengths > 0
    usable[owner[label >= classes]] = False
    return usable.nonzero()[:, 0]


def _pairs(label: Tensor, guess: Tensor, classes: int) -> Tensor:
    both, count = torch.unique(label * classes + guess, return_counts=True)
    order = torch.argsort(count, descending=True, stable=True)[:MOST_PAIRS].sort().values
    return torch.stack([both[order] // classes, both[order] % classes, count[order]], 1)


def by_frequency(trained: Tensor, of: ByClass, first: int = 0) -> list[dict[str, Any]]:
    """Classes by how many training instances they have, each bin twice as wide as the one before.

    >>> of = ByClass(3, 1, torch.tensor([2, 1, 0]), torch.tensor([1, 1, 0]), None)
    >>> bins = by_frequency(torch.tensor([5, 1, 6]), of)
    >>> [(b["low"], b["high"], b["tested"], b["found"]) for b in bins]
    [(1, 1, 1, 1), (4, 7, 2, 1)]
    """
    bin_of = torch.where(trained > 0, torch.log2(trained.clamp_min(1).double()).floor().long() + 1, 0)
    bin_of[:first] = -1
    bins = []
    for k in torch.unique(bin_of[first:]).tolist():
        inside = bin_of == k
        low, high = (0, 0) if k == 0 else (2 ** (k - 1), 2**k - 1)
        counts = {"tested": int(of.tested[inside].sum()), "found": int(of.found[inside].sum())}
        bins.append({"low": low, "high": high, "classes": int(inside.sum()), **counts})
    return bins


def as_written(trained: Tensor, of: ByClass, first: int = 0) -> dict[str, Any]:
    """For `details.json`; classes below the first are padding, which is no rare class."""
    few = len(trained) <= MOST_CLASSES
    every = {"trained": trained, "tested": of.tested, "found": of.found}
    return {
        "examples": of.examples,
        "depth": of.depth,
        "by_frequency": by_frequency(trained, of, first),
        "classes": {name: counts.tolist() for name, counts in every.items()} if few else None,
        "confused": None if of.pairs is None else of.pairs.tolist(),
    }
