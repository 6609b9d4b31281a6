"""Metrics in which every class counts alike, however rare it is: a model with one answer has little.

>>> import torch
>>> import spreadout as so
>>> ranked = torch.zeros(100, 1, dtype=torch.int64)  # one answer to everything
>>> right = so.Ragged.from_lists([[0]] * 98 + [[1]] * 2)
>>> so.metrics.precision_at(ranked, right, k=1), so.metrics.balanced_accuracy(ranked, right)
(98.0, 50.0)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.evaluation.standings import RANKED_AT_ONCE, trained_labels

ONE_LABEL = ("balanced_accuracy", "macro_f1")  # of examples that have one class each


class ClassCounts(NamedTuple):
    """Of classes that some example has or is taken for; no others are looked at."""

    tested: Tensor  # (c,) how many examples have it
    taken: Tensor  # (c,) how many are taken for it
    found: Tensor  # (c,) how many have it and are taken for it


def class_counts_at(ranked: Tensor, labels: Ragged, k: int) -> ClassCounts:
    """Every labelled example is taken for the first k classes of its ranking.

    >>> import torch
    >>> import spreadout as so
    >>> ranked, right = torch.tensor([[2, 0], [2, 1]]), so.Ragged.from_lists([[2], [1]])
    >>> [found.tolist() for found in so.metrics.class_counts_at(ranked, right, k=1)]  # classes 1 and 2
    [[1, 1], [0, 2], [0, 1]]
    """
    first = ranked[:, :k].cpu()
    owner = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    hit = (first[owner] == labels.values[:, None]).any(1)
    every = torch.cat([labels.values, first[labels.lengths > 0].flatten()])
    there, place = torch.unique(every, return_inverse=True)
    right, guessed = place[: len(hit)], place[len(hit) :]
    return ClassCounts(
        *(torch.bincount(at, minlength=len(there)) for at in (right, guessed, right[hit]))
    )


def balanced_accuracy(ranked: Tensor, labels: Ragged) -> float:
    """The share of a class's examples that are ranked first as it, averaged over the classes they have.

    >>> import torch
    >>> import spreadout as so
    >>> ranked, right = torch.tensor([[0], [0], [0], [0]]), so.Ragged.from_lists([[0], [0], [0], [1]])
    >>> so.metrics.balanced_accuracy(ranked, right)  # of 3 / 3 and 0 / 1
    50.0
    """
    _refuse_sets("balanced_accuracy", labels)
    tested, _, found = class_counts_at(ranked, labels, 1)
    return 100.0 * float((found[tested > 0] / tested[tested > 0].double()).mean())


def macro_f1_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """F1 of each class, averaged over those that some example has or is taken for.

    An example is taken for the first k classes of its ranking: a model of label sets has no threshold.

    >>> import torch
    >>> import spreadout as so
    >>> ranked, right = torch.tensor([[0], [0], [1]]), so.Ragged.from_lists([[0], [1], [1]])
    >>> round(so.metrics.macro_f1_at(ranked, right, k=1), 2)  # of 2 / 3 and 2 / 3
    66.67
    """
    tested, taken, found = class_counts_at(ranked, labels, k)
    return 100.0 * float((2 * found / (tested + taken).double()).mean())


def macro_f1(ranked: Tensor, labels: Ragged) -> float:
    """The same of examples with one class each, each being taken for the class that is ranked first.

    >>> import torch
    >>> import spreadout as so
    >>> so.metrics.macro_f1(torch.tensor([[0], [0]]), so.Ragged.from_lists([[0], [1]]))  # 2 / 3 and 0
    33.33333333333333
    """
    _refuse_sets("macro_f1", labels)
    return macro_f1_at(ranked, labels, 1)


def micro_f1_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """F1 of all labels together, each example being taken for the first k classes of its ranking.

    >>> import torch
    >>> import spreadout as so
    >>> ranked, right = torch.tensor([[0, 1], [2, 1]]), so.Ragged.from_lists([[0], [1, 2]])
    >>> round(so.metrics.micro_f1_at(ranked, right, k=2), 2)  # 3 of 4 that are named, 3 of 3 there are
    85.71
    """
    tested, taken, found = class_counts_at(ranked, labels, k)
    return 100.0 * float(2 * found.sum() / (tested.sum() + taken.sum()).double())


def area_under_curve(scores: Tensor, right: Tensor) -> Tensor:
    """AUC of each class: how often an example of it has a higher score than one that is not.

    scores, right: (n, classes), right is bool. Equal scores count half. NaN for a class that no example
    or every example has. → (classes,) double

    >>> import torch
    >>> import spreadout as so
    >>> scores = torch.tensor([[0.9], [0.8], [0.7], [0.6]])
    >>> so.metrics.area_under_curve(scores, torch.tensor([[True], [False], [True], [False]]))  # 3 of 4
    tensor([0.7500], dtype=torch.float64)
    """
    n = len(scores)
    order = torch.argsort(scores, 0)
    ordered, found = scores.gather(0, order), right.gather(0, order).double()
    place = torch.arange(n, device=scores.device)[:, None]
    new = ordered[1:] != ordered[:-1]  # where a run of equal scores begins
    edge = torch.ones_like(right[:1])
    first = torch.where(torch.cat([edge, new]), place, 0).cummax(0).values
    last = torch.where(torch.cat([new, edge]), place, n).flip(0).cummin(0).values.flip(0)
    own = found.sum(0)
    # Each right example stands above `first` others and level with some, itself among them. Right ones
    # among each other come to own² / 2.
    above = ((first + last + 1) / 2 * found).sum(0)
    return (above - own**2 / 2) / (own * (n - own))


def macro_auc(embedded: Tensor, classes: Tensor, labels: Ragged, first: int = 0) -> float:
    """AUC of every class against the rest, averaged over classes that some examples have and others not.

    Where examples have one label each, a class's score is what it has above the best other class: of two
    classes that is the usual curve. Of label sets it is the class's own. Examples without a label are
    left out. first: the first row that is a class. A block of classes at a time.

    >>> import torch
    >>> import spreadout as so
    >>> embedded, right = torch.eye(2), so.Ragged.from_lists([[1], [0]])
    >>> so.metrics.macro_auc(embedded, torch.eye(2), right)  # always the wrong way round
    0.0
    """
    labelled = (labels.lengths > 0).nonzero()[:, 0]
    embedded, labels = embedded[labelled.to(embedded.device)], labels.select(labelled)
    owner, label = trained_labels(labels, len(classes), classes.device, first=first)
    there, place = torch.unique(label, return_inverse=True)  # others have no curve
    rival = _two_best(embedded, classes[first:]) if bool((labels.lengths == 1).all()) else None
    at_once = max(1, RANKED_AT_ONCE // (8 * max(len(embedded), 1)))
    found = []
    for start in range(0, len(there), at_once):
        ids = there[start : start + at_once]
        scores = embedded @ classes[ids].T  # (n, block)
        if rival is not None:
            scores = scores - rival.beside(ids - first)
        here = (place >= start) & (place < start + len(ids))
        right = torch.zeros_like(scores, dtype=torch.bool)
        right[owner[here], place[here] - start] = True
        found.append(area_under_curve(scores, right))
    each = torch.cat(found) if found else torch.empty(0)
    return 100.0 * float(each[~each.isnan()].mean())


class TwoBest(NamedTuple):
    """Of every example the two highest scores, and which class has the highest."""

    values: Tensor  # (n, 2)
    best: Tensor  # (n,)

    def beside(self, ids: Tensor) -> Tensor:
        """(n, len(ids)) the highest score of any class but each of these."""
        return torch.where(self.best[:, None] == ids, self.values[:, 1:], self.values[:, :1])


def _two_best(embedded: Tensor, classes: Tensor) -> TwoBest | None:
    """None where there are no two classes."""
    if len(classes) < 2:
        return None
    found = []
    for some in torch.split(embedded, max(1, RANKED_AT_ONCE // (8 * len(classes)))):
        values, ids = (some @ classes.T).topk(2, 1)
        found.append((values, ids[:, 0]))
    if not found:
        return None
    return TwoBest(*(torch.cat(part) for part in zip(*found, strict=True)))


def _refuse_sets(name: str, labels: Ragged) -> None:
    if len(labels) and int(labels.lengths.max()) > 1:
        raise UserError(of_sets(name))


def of_sets(name: str) -> str:
    """Why examples with several labels have no such metric."""
    return f"{name}: is for examples of one class each; of label sets take macro_f1@k or micro_f1@k"
