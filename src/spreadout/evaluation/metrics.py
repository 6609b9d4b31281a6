"""The metrics: plain functions of tensors, each with the name that configs know it by.

`P@k`, `R@k`, `nDCG@k` and `PSP@k` look at the first k classes; `MRR` and `mean rank` at where the
best-placed right class stands among all of them; `batch R@k` only at the right classes of a batch of
examples; `mAP` ranks the examples of every class; `MAP@k`, `MAP@R` and `retrieval R@k` rank examples
for each other, whatever was trained; in those of `class_scores.py` rare classes count as frequent ones
do. Nearly all are percentages, named as in the papers.

>>> import torch
>>> import spreadout as so
>>> ranked = torch.tensor([[2, 0], [1, 2]])  # two examples, their two best classes
>>> right = so.Ragged.from_lists([[0], [1]])
>>> so.metrics.precision_at(ranked, right, k=1), so.metrics.recall_at(ranked, right, k=2)
(50.0, 100.0)
"""

from __future__ import annotations

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.evaluation.class_scores import (
    area_under_curve,
    balanced_accuracy,
    class_counts_at,
    macro_auc,
    macro_f1,
    macro_f1_at,
    micro_f1_at,
)
from spreadout.evaluation.frequencies import PROPENSITY, Frequencies, inverse_propensity
from spreadout.evaluation.metric import (
    METRICS,
    Metric,
    MetricInputs,
    Neighbours,
    described,
    find_metric,
    register_metric,
)
from spreadout.evaluation.standings import RANKED_AT_ONCE, trained_labels

__all__ = [
    "METRICS",
    "PROPENSITY",
    "Frequencies",
    "Metric",
    "MetricInputs",
    "Neighbours",
    "area_under_curve",
    "average_precision",
    "balanced_accuracy",
    "batch_recall_at",
    "capped_precision_at",
    "class_counts_at",
    "compute",
    "described",
    "find_metric",
    "hits",
    "inverse_propensity",
    "macro_auc",
    "macro_f1",
    "macro_f1_at",
    "map_at",
    "mean_average_precision",
    "mean_rank",
    "mean_reciprocal_rank",
    "micro_f1_at",
    "ndcg_at",
    "precision_at",
    "recall_at",
    "register_metric",
    "retrieval_recall_at",
    "scored_precision_at",
    "share_at",
]


def hits(ranked: Tensor, labels: Ragged) -> Tensor:
    """Whether each ranked class is a right one: (n, k) ids → (n, k) bool, without an (n, C) table.

    >>> import torch
    >>> import spreadout as so
    >>> so.metrics.hits(torch.tensor([[2, 0], [1, 2]]), so.Ragged.from_lists([[0], [1]]))
    tensor([[False,  True],
            [ True, False]])
    """
    device = ranked.device
    owner = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    most = [int(part.max()) for part in (ranked, labels.values) if part.numel()]
    width = max(most, default=0) + 1
    right = (owner * width + labels.values).to(device).sort().values
    wanted = torch.arange(len(ranked), device=device)[:, None] * width + ranked
    if not len(right):
        return torch.zeros_like(wanted, dtype=torch.bool)
    return right[torch.searchsorted(right, wanted).clamp_max(len(right) - 1)] == wanted


def precision_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """P@k: the share of right classes among the first k, over the examples that have a label.

    >>> import torch
    >>> import spreadout as so
    >>> ranked, right = torch.tensor([[2, 0, 1, 3]]), so.Ragged.from_lists([[2]])
    >>> so.metrics.precision_at(ranked, right, k=1), so.metrics.precision_at(ranked, right, k=4)
    (100.0, 25.0)
    """
    labelled = (labels.lengths > 0).to(ranked.device)
    right = hits(ranked[:, :k], labels)[labelled].sum(1).double()
    return 100.0 * float((right / k).mean())


@register_metric("P@k", unit="%", needs=("ranking",))
def _precision(inputs: MetricInputs, k: int) -> float:
    return precision_at(inputs.ranking, inputs.labels, k)


def share_at(ranked: Tensor, labels: Ragged, k: int, counted: Tensor) -> float:
    """The part of P@k that some classes bring; such parts add up to P@k. counted: (C,) bool.

    >>> import torch
    >>> import spreadout as so
    >>> ranked, right = torch.tensor([[0, 1, 2, 3]]), so.Ragged.from_lists([[0, 1, 2]])
    >>> rare = torch.tensor([False, False, True, True])
    >>> [so.metrics.share_at(ranked, right, k=4, counted=some) for some in (~rare, rare)]
    [50.0, 25.0]
    """
    labelled = (labels.lengths > 0).to(ranked.device)
    first = ranked[:, :k]
    right = (hits(first, labels) & counted.to(ranked.device)[first])[labelled].sum(1).double()
    return 100.0 * float((right / k).mean())


@register_metric("P@k frequent", unit="%", needs=("ranking", "frequencies"))
def _frequent(inputs: MetricInputs, k: int) -> float:
    return share_at(inputs.ranking, inputs.labels, k, inputs.frequencies.is_frequent)


@register_metric("P@k infrequent", unit="%", needs=("ranking", "frequencies"))
def _infrequent(inputs: MetricInputs, k: int) -> float:
    return share_at(inputs.ranking, inputs.labels, k, ~inputs.frequencies.is_frequent)


def capped_precision_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """The share of right classes among the first min(|y|, k): 1 can be reached with few labels.

    >>> import torch
    >>> import spreadout as so
    >>> ranked, right = torch.tensor([[2, 0, 1, 3]]), so.Ragged.from_lists([[1, 2]])
    >>> [so.metrics.capped_precision_at(ranked, right, k) for k in (2, 4)]  # 1 of 2, and 2 of 2
    [50.0, 100.0]
    """
    labelled = labels.lengths > 0
    right = hits(ranked[:, :k], labels).cpu()[labelled].sum(1).double()
    return 100.0 * float((right / labels.lengths[labelled].clamp_max(k)).mean())


@register_metric("capped P@k", unit="%", needs=("ranking",))
def _capped(inputs: MetricInputs, k: int) -> float:
    return capped_precision_at(inputs.ranking, inputs.labels, k)


def recall_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """R@k: the share of an example's right classes found among the first k, averaged.

    >>> import torch
    >>> import spreadout as so
    >>> ranked, right = torch.tensor([[2, 0, 1, 3]]), so.Ragged.from_lists([[1, 2]])
    >>> so.metrics.recall_at(ranked, right, k=1), so.metrics.recall_at(ranked, right, k=3)
    (50.0, 100.0)
    """
    labelled = labels.lengths > 0
    right = hits(ranked[:, :k], labels).cpu()[labelled].sum(1).double()
    return 100.0 * float((right / labels.lengths[labelled]).mean())


@register_metric("R@k", unit="%", needs=("ranking",))
def _recall(inputs: MetricInputs, k: int) -> float:
    return recall_at(inputs.ranking, inputs.labels, k)


def ndcg_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """nDCG@k with gain 1 for a right class: Σ 1/log2(1 + place), over the most there could be.

    >>> import torch
    >>> import spreadout as so
    >>> ranked, right = torch.tensor([[2, 0, 1, 3]]), so.Ragged.from_lists([[1]])
    >>> so.metrics.ndcg_at(ranked, right, k=2), so.metrics.ndcg_at(ranked, right, k=3)  # 1 / log2(1 + 3)
    (0.0, 50.0)
    """
    labelled = labels.lengths > 0
    place = torch.arange(1, ranked[:, :k].shape[1] + 1, dtype=torch.float64)
    discount = 1 / torch.log2(1 + place)
    gained = (hits(ranked[:, :k], labels).cpu()[labelled] * discount).sum(1)
    most = discount.cumsum(0)[labels.lengths[labelled].clamp_max(len(place)) - 1]
    return 100.0 * float((gained / most).mean())


@register_metric("nDCG@k", unit="%", needs=("ranking",))
def _ndcg(inputs: MetricInputs, k: int) -> float:
    return ndcg_at(inputs.ranking, inputs.labels, k)


def scored_precision_at(ranked: Tensor, labels: Ragged, k: int, inverse: Tensor) -> float:
    """PSP@k: what the right classes among the first k count, over the most there could be.

    inverse: (C,) 1/p; both sums are taken over all examples before one is divided by the other, as the
    extreme classification repository does.

    >>> import torch
    >>> import spreadout as so
    >>> right, inverse = so.Ragged.from_lists([[0, 1]]), torch.tensor([1.0, 4.0])
    >>> so.metrics.scored_precision_at(torch.tensor([[0]]), right, k=1, inverse=inverse)  # 1 of 4
    25.0
    """
    weight = inverse.cpu()
    untrained = max(int(labels.values.max()) + 1 - len(weight), 0) if len(labels.values) else 0
    weight = torch.cat([weight, weight.max().expand(untrained)])  # labels nobody trained: the rarest
    first = ranked[:, :k].cpu()
    gained = (hits(first, labels) * weight[first]).sum()
    owner = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    counts = weight[labels.values]
    order = torch.argsort(counts, descending=True, stable=True)
    order = order[torch.argsort(owner[order], stable=True)]  # within an example, the rarest first
    place = torch.arange(len(order)) - labels.offsets[:-1][owner[order]]
    most = counts[order][place < k].sum()
    return 100.0 * float(gained / most) if float(most) else float("nan")


@register_metric("PSP@k", unit="%", needs=("ranking", "frequencies"))
def _scored(inputs: MetricInputs, k: int) -> float:
    return scored_precision_at(inputs.ranking, inputs.labels, k, inputs.frequencies.inverse)


def average_precision(scores: Tensor, right: Tensor) -> Tensor:
    """AP of each class: the mean, over its right examples, of the precision down to them.

    scores, right: (n, classes), right is bool. Examples with the very same score are taken together. NaN
    for a class without a right example. → (classes,)

    >>> import torch
    >>> import spreadout as so
    >>> scores = torch.tensor([[0.9], [0.8], [0.7], [0.6]])
    >>> right = torch.tensor([[True], [False], [False], [True]])
    >>> so.metrics.average_precision(scores, right)  # of 1 / 1 and 2 / 4
    tensor([0.7500], dtype=torch.float64)
    """
    order = torch.argsort(scores, 0, descending=True)
    ordered, found = scores.gather(0, order), right.gather(0, order).double()
    seen = found.cumsum(0)
    place = torch.arange(1, len(scores) + 1, dtype=torch.float64, device=scores.device)[:, None]
    precision = seen / place
    # Where scores are level, the precision is that at the last of them.
    level = torch.cat([ordered[1:] == ordered[:-1], torch.zeros_like(right[:1])])
    last = torch.where(level, len(scores), torch.arange(len(scores), device=scores.device)[:, None])
    last = last.flip(0).cummin(0).values.flip(0)
    return (precision.gather(0, last) * found).sum(0) / found.sum(0)


def mean_average_precision(embedded: Tensor, classes: Tensor, labels: Ragged) -> float:
    """mAP: the mean over classes that have a right example, a block of classes at a time.

    >>> import torch
    >>> import spreadout as so
    >>> embedded, right = torch.eye(2), so.Ragged.from_lists([[1], [0]])
    >>> so.metrics.mean_average_precision(embedded, torch.eye(2), right)  # always in second place
    50.0
    """
    owner, label = trained_labels(labels, len(classes), classes.device)
    at_once = max(1, RANKED_AT_ONCE // (8 * max(len(embedded), 1)))
    found = []
    for start in range(0, len(classes), at_once):
        scores = embedded @ classes[start : start + at_once].T  # (n, block)
        here = (label >= start) & (label < start + scores.shape[1])
        right = torch.zeros_like(scores, dtype=torch.bool)
        right[owner[here], label[here] - start] = True
        found.append(average_precision(scores, right))
    each = torch.cat(found)
    return 100.0 * float(each[~each.isnan()].mean())


@register_metric("mAP", unit="%", needs=("scores",))
def _mean_average_precision(inputs: MetricInputs) -> float:
    return mean_average_precision(inputs.embeddings, inputs.class_vectors, inputs.labels)


def map_at(right: Tensor, sizes: Tensor, k: int | None) -> float:
    """MAP@R of each example's neighbours (FedSS, Eq. 9; Musgrave et al. 2020).

    right: (n, most) bool, whether each neighbour, nearest first, is of the example's class; sizes: (n,)
    how many others its class has. R is k, or the class's size where k is None. Examples alone in their
    class are left out.

    >>> import torch
    >>> import spreadout as so
    >>> right = torch.tensor([[True, False, False, True]])
    >>> so.metrics.map_at(right, sizes=torch.tensor([2]), k=4)  # (1 / 1 + 2 / 4) / 4
    37.5
    >>> so.metrics.map_at(right, sizes=torch.tensor([2]), k=None)  # (1 / 1) / 2
    50.0
    """
    wanted = sizes if k is None else torch.full_like(sizes, k)
    place = torch.arange(1, right.shape[1] + 1, device=right.device)
    found = right.double()
    precision = found.cumsum(1) / place * found * (place <= wanted[:, None])
    each = precision.sum(1) / wanted.clamp_min(1)
    return 100.0 * float(each[sizes > 0].mean())


@register_metric("MAP@k", unit="%", needs=("neighbours",))
def _map_at_k(inputs: MetricInputs, k: int) -> float:
    return map_at(*inputs.neighbours, k)


@register_metric("MAP@R", unit="%", needs=("neighbours",))
def _map_at_r(inputs: MetricInputs) -> float:
    return map_at(*inputs.neighbours, None)


def retrieval_recall_at(right: Tensor, sizes: Tensor, k: int) -> float:
    """The share of examples with one of their class among the k nearest others.

    >>> import torch
    >>> import spreadout as so
    >>> right = torch.tensor([[False, True], [True, False]])
    >>> so.metrics.retrieval_recall_at(right, sizes=torch.tensor([1, 1]), k=1)
    50.0
    """
    return 100.0 * float(right[sizes > 0, :k].any(1).double().mean())


@register_metric("retrieval R@k", unit="%", needs=("neighbours",))
def _retrieval_recall(inputs: MetricInputs, k: int) -> float:
    return retrieval_recall_at(*inputs.neighbours, k)


def mean_reciprocal_rank(rank: Tensor) -> float:
    """MRR over all classes, from the rank of each example's best-placed right class (from 1).

    >>> import torch
    >>> import spreadout as so
    >>> so.metrics.mean_reciprocal_rank(torch.tensor([1, 2]))  # of 1 and 1 / 2
    75.0
    """
    return 100.0 * float((1 / rank.double()).mean())


@register_metric("MRR", unit="%", needs=("rank",))
def _mean_reciprocal_rank(inputs: MetricInputs) -> float:
    return mean_reciprocal_rank(inputs.rank)


def mean_rank(rank: Tensor) -> float:
    """The mean rank itself, over examples with a trained class: the lower the better.

    >>> import torch
    >>> import spreadout as so
    >>> so.metrics.mean_rank(torch.tensor([1.0, 4.0, float("inf")]))
    2.5
    """
    return float(rank[rank.isfinite()].double().mean())


@register_metric("mean rank", unit="rank", better="lower", range=(1, None), needs=("rank",))
def _mean_rank(inputs: MetricInputs) -> float:
    return mean_rank(inputs.rank)


def batch_recall_at(rivals: Tensor, k: int) -> float:
    """The share of examples with fewer than k rivals in their batch; NaN without a whole batch.

    >>> import torch
    >>> import spreadout as so
    >>> so.metrics.batch_recall_at(torch.tensor([0, 1, 2, 7]), k=2)
    50.0
    """
    return 100.0 * float((rivals < k).double().mean())


@register_metric("batch R@k", unit="%", needs=("batch rivals",))
def _batch_recall(inputs: MetricInputs, k: int) -> float:
    return batch_recall_at(inputs.batch_rivals, k)


@register_metric("balanced_accuracy", unit="%", needs=("ranking",))
def _balanced_accuracy(inputs: MetricInputs) -> float:
    return balanced_accuracy(inputs.ranking, inputs.labels)


@register_metric("macro_f1", unit="%", needs=("ranking",))
def _macro_f1(inputs: MetricInputs) -> float:
    return macro_f1(inputs.ranking, inputs.labels)


@register_metric("macro_f1@k", unit="%", needs=("ranking",))
def _macro_f1_at(inputs: MetricInputs, k: int) -> float:
    return macro_f1_at(inputs.ranking, inputs.labels, k)


@register_metric("micro_f1@k", unit="%", needs=("ranking",))
def _micro_f1_at(inputs: MetricInputs, k: int) -> float:
    return micro_f1_at(inputs.ranking, inputs.labels, k)


@register_metric("auc", unit="%", needs=("scores",))
def _macro_auc(inputs: MetricInputs) -> float:
    return macro_auc(inputs.embeddings, inputs.class_vectors, inputs.labels, inputs.first_class)


def compute(
    name: str,
    ranked: Tensor,
    labels: Ragged,
    rank: Tensor | None = None,
    seen: Frequencies | None = None,
) -> float:
    """The metric with this name, from the first classes ranked and the ranks of the right ones.

    >>> import torch
    >>> import spreadout as so
    >>> so.metrics.compute("P@1", torch.tensor([[2], [1]]), so.Ragged.from_lists([[0], [1]]))
    50.0
    """
    return find_metric(name).value(MetricInputs.of(labels, ranking=ranked, rank=rank, frequencies=seen))
