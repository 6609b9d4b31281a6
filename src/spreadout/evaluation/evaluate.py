"""Scoring a model on held-out examples, against every class, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.rows import project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.tables import Table, each_row, local_of, whole_of
from spreadout.core.types import Params
from spreadout.data.columns import Lists, Sparse
from spreadout.data.dataset import Examples, FederatedDataset
from spreadout.evaluation import metrics
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.geometry import Geometry, class_geometry
from spreadout.evaluation.metrics import Frequencies
from spreadout.federated.batches import over_rows
from spreadout.models.buckets import BucketModel
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives.neighbours import Nearest, nearest

INPUT_BYTES = 1 << 28  # of gathered inputs held at once
RANKED_AT_ONCE = 1 << 26  # scores held at once when ranks are counted


@dataclass(frozen=True)
class Evaluation:
    """Metrics in percent, and the geometry of collapse."""

    metrics: dict[str, float]
    geometry: Geometry | None  # None where there is no table of classes


@torch.no_grad()
def evaluate(
    model: EmbeddingModel,
    state: ServerState,
    examples: Examples,
    names: Sequence[str],
    *,
    seen: Frequencies | None = None,
    block: int | None = None,
) -> Evaluation:
    """Rank all classes for every example and score the ranking.

    seen: how often training has each label, for metrics that ask (`frequencies`).
    """
    kinds = [metrics.parse(name) for name in names]
    deepest = max([1, *(k for kind, k in kinds if kind not in ("batch R", *metrics.RETRIEVAL))])
    if isinstance(model, BucketModel):
        return _evaluate_buckets(model, state, examples, names, min(deepest, model.classes), seen)
    classes = class_vectors(model, state)  # (C, dim)
    # A sharded table has no rows that are nobody's class.
    ranked_ones = classes[model.first_class :] if isinstance(classes, Tensor) else classes
    deepest = min(deepest, len(ranked_ones))
    wants_map = any(kind in ("mAP", *metrics.RETRIEVAL) for kind, _ in kinds)
    embeddings = []
    wants_rank = any(kind in ("MRR", "mean rank") for kind, _ in kinds)
    every_one = whole_of(ranked_ones) if wants_rank else None
    ranked, ranks, away = [], [], []
    for some in _blocks(examples, block):
        embedded = embed(model, state, examples, some)
        if wants_map:
            embeddings.append(embedded)
        ranked.append(nearest(embedded, ranked_ones, deepest).ids + model.first_class)
        if every_one is not None:
            ranks.append(rank_of_right(embedded, every_one, examples, some, model.first_class))
        away.append(_distance_to_own(embedded, classes, examples, some))
    ranking = torch.cat(ranked)
    rank = torch.cat(ranks) if ranks else None
    in_batch = any(kind == "batch R" for kind, _ in kinds)
    rivals = batch_rivals(model, state, examples, whole_of(classes)) if in_batch else None
    scores = {}
    neighbours: tuple[Tensor, Tensor] | None = None
    for name, (kind, k) in zip(names, kinds, strict=True):
        if kind == "batch R":
            assert rivals is not None
            scores[name] = metrics.batch_recall_at(rivals, k)
        elif kind in metrics.RETRIEVAL:
            right, sizes = neighbours or _neighbours(torch.cat(embeddings), examples, kinds)
            neighbours = right, sizes
            if kind == "retrieval R":
                scores[name] = metrics.retrieval_recall_at(right, sizes, k)
            else:
                scores[name] = metrics.map_at(right, sizes, k or None)
        elif kind == "mAP":
            scores[name] = _mean_average_precision(torch.cat(embeddings), whole_of(classes), examples)
        else:
            scores[name] = metrics.compute(name, ranking, examples.labels, rank, seen)
    own = torch.cat(away)
    epsilon = float(own.mean()) if own.numel() else float("nan")
    unit = ranked_ones if model.tables["classes"].sphere else each_row(ranked_ones, project_to_sphere)
    return Evaluation(scores, class_geometry(unit, epsilon))


def _evaluate_buckets(
    model: BucketModel,
    state: ServerState,
    examples: Examples,
    names: Sequence[str],
    deepest: int,
    seen: Frequencies | None,
) -> Evaluation:
    most = max(1, RANKED_AT_ONCE // model.outputs)
    blocks = [
        ranked(model, state, examples, some, deepest).ids for some in _blocks(examples, None, most)
    ]
    found = torch.cat(blocks)
    return Evaluation(
        {name: metrics.compute(name, found, examples.labels, None, seen) for name in names}, None
    )


@torch.no_grad()
def ranked(model: EmbeddingModel, state: ServerState, examples: Examples, at: Tensor, k: int) -> Nearest:
    """The k best classes of some examples, with their scores."""
    if isinstance(model, BucketModel):
        device = next(iter(state.dense.values())).device
        batch = {name: examples.inputs[name].take(at).to(device) for name in model.inputs}
        return model.rank(model.logits(Params(state.dense, {}), batch), k)
    classes = whole_of(class_vectors(model, state))[model.first_class :]
    found = nearest(embed(model, state, examples, at), classes, k)
    return Nearest(found.scores, found.ids + model.first_class)


def _blocks(examples: Examples, block: int | None, most: int = 4096) -> Iterator[Tensor]:
    """Examples in runs whose inputs stay within a budget."""
    widest = max((column.example_bytes for column in examples.inputs.values()), default=1)
    size = block or max(1, min(4096, most, INPUT_BYTES // widest))
    for start in range(0, len(examples), size):
        yield torch.arange(start, min(start + size, len(examples)))


def needed_frequencies(train: FederatedDataset, config: EvalConfig) -> Frequencies | None:
    """How many training instances have each class, where a metric asks."""
    kinds = {metrics.parse(name)[0] for name in config.metrics}
    if kinds.isdisjoint(metrics.NEED_FREQUENCIES):
        return None
    return frequencies(train, config.frequent, config.propensity)


def frequencies(
    train: FederatedDataset, frequent: int, propensity: tuple[float, float] = metrics.PROPENSITY
) -> Frequencies:
    """How many training instances have each class."""
    y = train.columns["y"]
    stored = next(column for name, column in train.columns.items() if name != "y")
    every = torch.arange(train.examples)
    # An instance that lives on several clients is one instance, with all labels it has anywhere.
    number = every if stored.index is None else torch.unique(stored.index.cpu(), return_inverse=True)[1]
    if isinstance(y, Lists):
        sets = y.ragged()
        owner, label = torch.repeat_interleave(number, sets.lengths.cpu()), sets.values.cpu()
    else:
        owner, label = number, y.take(every).cpu()
    pairs = torch.unique(owner * train.classes + label)
    counts = torch.bincount(pairs % train.classes, minlength=train.classes)
    instances = int(number.max()) + 1 if len(number) else 0
    return Frequencies(counts, instances, frequent, propensity)


def _neighbours(
    embedded: Tensor, examples: Examples, kinds: Sequence[tuple[str, int]]
) -> tuple[Tensor, Tensor]:
    """Of every example with a label: which of its nearest others share its first one, and how many do.

    As many neighbours as the metrics look at: the k of some, the size of the largest class for MAP@R.
    """
    labelled = (examples.labels.lengths > 0).nonzero()[:, 0]
    label = examples.labels.values[examples.labels.offsets[labelled]]
    _, place, count = torch.unique(label, return_inverse=True, return_counts=True)
    sizes = count[place] - 1
    asked = [
        int(sizes.max()) if kind == "MAP@R" else k for kind, k in kinds if kind in metrics.RETRIEVAL
    ]
    rows = project_to_sphere(embedded[labelled.to(embedded.device)])
    most = min(max(asked, default=1), len(rows) - 1)
    every = torch.arange(len(rows), device=rows.device)
    found = nearest(rows, rows, max(most, 1), exclude=every)
    mine = label.to(rows.device)
    right = (mine[found.ids] == mine[:, None]) & (found.scores > -torch.inf)
    return right, sizes.to(rows.device)


def _mean_average_precision(embedded: Tensor, classes: Tensor, examples: Examples) -> float:
    """mAP: the mean over classes that have a right example, a block of classes at a time."""
    owner, label = _trained_labels(examples, torch.arange(len(examples)), len(classes), classes.device)
    at_once = max(1, RANKED_AT_ONCE // (8 * max(len(embedded), 1)))
    found = []
    for start in range(0, len(classes), at_once):
        scores = embedded @ classes[start : start + at_once].T  # (n, block)
        here = (label >= start) & (label < start + scores.shape[1])
        right = torch.zeros_like(scores, dtype=torch.bool)
        right[owner[here], label[here] - start] = True
        found.append(metrics.average_precision(scores, right))
    each = torch.cat(found)
    return 100.0 * float(each[~each.isnan()].mean())


def class_vectors(model: EmbeddingModel, state: ServerState) -> Table:
    """Every class as embeddings are compared with it: (C, dim); the table itself where that is it."""

    def compared(rows: Tensor) -> Tensor:
        return model.class_vectors(Params(state.dense, {"classes": rows}))

    return each_row(state.tables["classes"], compared)


@torch.no_grad()
def embed(model: EmbeddingModel, state: ServerState, examples: Examples, at: Tensor) -> Tensor:
    """Embeddings of some held-out examples: (len(at), dim)."""
    device = next(iter(state.dense.values()), local_of(state.tables["classes"])).device
    batch, tables = {}, {name: local_of(table) for name, table in state.tables.items()}
    for name in model.inputs:
        column = examples.inputs[name]
        if isinstance(column, Sparse) and name in model.row_columns:
            rows = torch.unique(column.ragged(at).values).to(device)  # no others are looked up
            values = over_rows(column, at[None, None], torch.ones(1, 1, len(at)), rows[None])
            batch[name] = values[0, 0]
            tables[model.row_columns[name]] = tables[model.row_columns[name]][rows]
            continue
        values = column.take(at).to(device)
        # Ids stand for themselves here; padding has no place among the rows.
        if isinstance(column, Lists):
            values = torch.where(column.present(at).to(device), values, -1)
        batch[name] = values
    return model.embed(Params(state.dense, tables), batch)


def rank_of_right(
    embedded: Tensor, classes: Tensor, examples: Examples, at: Tensor, first: int
) -> Tensor:
    """Where each labelled example's best-placed right class stands among all, from 1.

    Classes with the very same score count half: a collapsed table is ranked in the middle, not first. An
    example whose classes are all untrained stands at infinity.
    """
    owner, label = _trained_labels(examples, at, first + len(classes), embedded.device)
    label = label - first
    # Two passes over the same blocks, so that a score is the same number wherever it is compared.
    starts = range(0, len(classes), max(1, RANKED_AT_ONCE // max(len(at), 1)))
    blocks = [classes[start : start + starts.step] for start in starts]
    best = torch.full((len(at),), -torch.inf, device=embedded.device)
    for start, block in zip(starts, blocks, strict=True):
        here = (label >= start) & (label < start + len(block))
        right = (embedded @ block.T)[owner[here], label[here] - start]
        best = best.scatter_reduce(0, owner[here], right, "amax")
    above, level = torch.zeros_like(best), torch.zeros_like(best)
    for block in blocks:
        scores = embedded @ block.T  # (n, block)
        above += (scores > best[:, None]).sum(1)
        level += (scores == best[:, None]).sum(1)
    rank = torch.where(best > -torch.inf, 1 + above + (level - 1) / 2, torch.inf)
    labelled = examples.labels.offsets[at + 1] > examples.labels.offsets[at]
    return rank[labelled.to(rank.device)]


def batch_rivals(
    model: EmbeddingModel, state: ServerState, examples: Examples, classes: Tensor, *, batch: int = 16
) -> Tensor:
    """How many items of its batch stand before each example's own (003, Fig. 3): what training sees.

    Batches are drawn once and for all from the examples in a shuffled order; each example's first label
    counts, and a rival with the very same score counts half.
    """
    first = examples.labels.offsets[:-1].clamp_max(max(len(examples.labels.values) - 1, 0))
    trained = (examples.labels.lengths > 0) & (examples.labels.values[first] < len(classes))
    usable = trained.nonzero()[:, 0].numpy()
    bits = randomness.bits(randomness.key(0, "batch recall"), usable)
    order = torch.from_numpy(usable[np.argsort(bits, kind="stable")])
    order = order[: len(order) // batch * batch]
    found = []
    for some in torch.split(order, batch * 256):
        embedded = embed(model, state, examples, some).view(-1, batch, classes.shape[1])
        label = examples.labels.values[first[some]].to(classes.device).view(-1, batch)
        scores = embedded @ classes[label].transpose(1, 2)  # (batches, 16, 16)
        own = torch.diagonal(scores, dim1=1, dim2=2)[..., None]
        other = label[:, :, None] != label[:, None, :]  # the same item again is no rival
        above = ((scores > own) & other).sum(-1) + ((scores == own) & other).sum(-1) / 2
        found.append(above.flatten())
    return torch.cat(found) if found else torch.empty(0)


def _distance_to_own(embedded: Tensor, classes: Table, examples: Examples, at: Tensor) -> Tensor:
    """Euclidean distance of each example to each of its own classes, on the sphere."""
    owner, label = _trained_labels(examples, at, len(classes), classes.device)
    s = (project_to_sphere(embedded)[owner] * project_to_sphere(classes[label])).sum(-1)
    return (2 - 2 * s).clamp_min(0).sqrt()


def _trained_labels(
    examples: Examples, at: Tensor, end: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Which of these examples has which label, of those below `end`: others have no row."""
    labels = examples.labels.select(at)
    owner = torch.repeat_interleave(torch.arange(len(at)), labels.lengths)
    trained = labels.values < end
    return owner[trained].to(device), labels.values[trained].to(device)
