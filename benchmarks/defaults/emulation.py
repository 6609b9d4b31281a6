"""Rounds of one local step with Adam on the server, written out in a page of plain PyTorch.

A search needs thousands of short runs. Here a round is one gradient for all clients: each holds one
class, takes one step on one batch, and the server's Adam takes the mean. FedAwS, FedALC and FedSS with a
prior over classes; `tests/benchmarks/test_emulation.py` holds it against the simulator.

With `exact_steps` FedAwS and FedALC take the package's steps. Without, all take those of the search
whose results are committed: `differences.py` lists what differs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.defaults.server import (
    Adam,
    along_sphere,
    descend_,
    pair_weights,
    rate_factor,
    spreadout,
)

TAUS = (0.0, 0.003, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5)  # weights of the prior


@dataclass(frozen=True)
class Config:
    """What a run is given; the names are those of the package's keys where it has such keys."""

    method: Literal["fedaws", "fedalc", "fedss"] = "fedaws"
    rounds: int = 200
    hidden: tuple[int, ...] = (256,)
    dim: int = 128
    server_lr: float = 0.003  # Adam's, for the encoder
    row_lr: float = 1.0  # of class rows: the clients' own (fedaws, fedalc), or Adam's (fedss)
    batch: int | None = 32  # None: all examples of a client
    per_round: int = 200
    selection: Literal["uniform", "weighted"] = "uniform"
    weighting: Literal["examples", "uniform"] = "uniform"
    input_dropout: float = 0.2
    inputs: Literal["raw", "unit", "layer_norm"] = "raw"
    margin: float = 0.9  # fedaws, fedalc
    spreadout_margin: float = 1.1
    spreadout_steps: int = 1
    share: float = 1.0  # of the way to the spreadout's minimum along its gradient
    scale: float = 20.0  # fedss
    negatives: int = 100
    correct: bool = True
    exact_steps: bool = False


@dataclass(frozen=True)
class Held:
    """A data set with one client per class, and what is validated on."""

    x: Tensor  # (n, features) training instances
    instance: Tensor  # (m,) of every example, by class
    counts: Tensor  # (C,) examples of every class, float
    together: Tensor  # (C, C) instances with both classes
    valid_x: Tensor  # (v, features)
    valid_y: Tensor  # (v, C) float, 1 where a class is right

    @classmethod
    def of(cls, x: Tensor, y: Tensor, valid: Tensor) -> Held:
        """x: (n, features); y: (n, C) of 0 and 1; valid: (n,) bool."""
        train = ~valid
        labels = y[train]
        _, instance = labels.T.nonzero().T
        each = labels.float()
        return cls(x[train], instance, each.sum(0), each.T @ each, x[valid], y[valid].float())

    @property
    def classes(self) -> int:
        return len(self.counts)


@dataclass
class Model:
    """Weights and biases of the encoder, the class table, and what the server remembers."""

    layers: list[Tensor]
    table: Tensor  # (C, dim) of unit rows
    draw: torch.Generator
    adam: Adam = field(default_factory=Adam)
    length: Tensor | None = None  # of the last spreadout step

    @classmethod
    def fresh(cls, config: Config, held: Held, seed: int = 0) -> Model:
        """Layers as torch starts them, rows at random."""
        device = held.x.device
        draw = torch.Generator(device=device).manual_seed(seed)
        widths = [held.x.shape[1], *config.hidden, config.dim]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = [torch.nn.Linear(narrow, wide) for narrow, wide in pairwise(widths)]
        layers = [part.detach().to(device) for one in made for part in (one.weight, one.bias)]
        rows = torch.randn(held.classes, config.dim, device=device, generator=draw)
        return cls(layers, F.normalize(rows), draw)


def embed(layers: list[Tensor], x: Tensor) -> Tensor:
    """Dense layers with ReLU between them, then unit length."""
    for i in range(0, len(layers), 2):
        x = F.linear(x, layers[i], layers[i + 1])
        x = F.relu(x) if i + 2 < len(layers) else x
    return F.normalize(x, dim=-1)


def scaled(x: Tensor, inputs: str) -> Tensor:
    if inputs == "unit":
        return F.normalize(x)
    return F.layer_norm(x, x.shape[1:]) if inputs == "layer_norm" else x


@dataclass(frozen=True)
class Batch:
    """One step's examples of a round's clients."""

    clients: Tensor  # (k,) classes, ascending
    weight: Tensor  # (k,) of each client in the mean
    owner: Tensor  # (b,) whose each example is: a place in `clients`
    x: Tensor  # (b, features)
    share: Tensor  # (b,) of each example in the loss


def drawn_batch(config: Config, held: Held, draw: torch.Generator) -> Batch:
    """Who takes part, and on which examples."""
    device, counts = held.x.device, held.counts.long()
    first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    clients = (counts > 0).nonzero()[:, 0]
    few = config.per_round < len(clients)
    by_size = few and config.selection == "weighted"
    if few:
        chance = counts[clients].float() if by_size else torch.ones(len(clients), device=device)
        clients = clients[torch.multinomial(chance, config.per_round, generator=draw)].sort().values
    own = counts[clients]
    sizes = own if config.batch is None else own.clamp_max(config.batch)
    owner = torch.repeat_interleave(torch.arange(len(clients), device=device), sizes)
    if config.batch is None:
        place = torch.arange(len(owner), device=device) - (sizes.cumsum(0) - sizes)[owner]
    else:
        place = (torch.rand(len(owner), generator=draw, device=device) * own[owner]).long()
    x = scaled(held.x[held.instance[first[clients][owner] + place]], config.inputs)
    if config.input_dropout:
        kept = torch.rand(x.shape, generator=draw, device=device) > config.input_dropout
        x = x * kept / (1 - config.input_dropout)
    # Drawn by size, clients weigh alike: else size would count twice.
    by_examples = config.weighting == "examples" and not by_size
    weight = own.float() if by_examples else torch.ones(len(clients), device=device)
    weight = weight / weight.sum()
    return Batch(clients, weight, owner, x, (weight / sizes)[owner])


def losses(config: Config, batch: Batch, e: Tensor, table: Tensor, draw: torch.Generator) -> Tensor:
    """Of every example: Eq. 23 of FedAwS, or the sampled softmax of FedSS (Eq. 5). e: (b, dim)."""
    label = batch.clients[batch.owner]
    if config.method != "fedss":
        return F.relu(config.margin - (e * table[label]).sum(-1)).square()
    classes, k = len(table), len(batch.clients)
    sample = min(config.negatives, classes - 1)
    scores = config.scale * e @ table.T  # (b, C)
    order = torch.rand(k, classes, generator=draw, device=e.device)
    order[torch.arange(k, device=e.device), batch.clients] = -1  # its own class is no negative
    asked = torch.zeros(k, classes, dtype=torch.bool, device=e.device)
    asked.scatter_(1, order.topk(sample, 1).indices, True)
    correction = math.log(sample / (classes - 1)) if config.correct else 0.0
    logits = (scores - correction).masked_fill(~asked[batch.owner], -1e30)
    logits = logits.scatter(1, label[:, None], scores.gather(1, label[:, None]))
    return F.cross_entropy(logits, label, reduction="none")


def run_round_(config: Config, held: Held, model: Model, round: int, weights: Tensor | None) -> Tensor:
    """Advance the model by one round; the loss. weights: FedALC's, of all pairs."""
    factor = rate_factor(round, config.rounds)
    batch = drawn_batch(config, held, model.draw)
    layers = [layer.detach().requires_grad_() for layer in model.layers]
    table = model.table.detach().clone().requires_grad_()
    each = losses(config, batch, embed(layers, batch.x), table, model.draw)
    loss = (each * batch.share).sum()
    *dense, rows = torch.autograd.grad(loss, [*layers, table])
    with torch.no_grad():
        seen = factor if config.exact_steps else 1.0  # what the clients' rate leaves of a gradient
        for i, (layer, gradient) in enumerate(zip(model.layers, dense, strict=True)):
            model.adam.step_(f"layer {i}", layer, gradient * seen, config.server_lr * factor)
        if config.method == "fedss":
            _merged_rows_(config, model, rows, factor, seen)
        else:
            _own_rows_(config, model, batch, rows, factor)
            _spread_(config, model, weights, factor)
    return loss.detach()


def _own_rows_(config: Config, model: Model, batch: Batch, rows: Tensor, factor: float) -> None:
    """Every client's step on the row it alone holds."""
    before = model.table[batch.clients]
    gradient = rows[batch.clients]
    rate = config.row_lr * factor
    if config.exact_steps:
        gradient = along_sphere(gradient, before)
    model.table[batch.clients] = F.normalize(before - rate * gradient / batch.weight[:, None])


def _merged_rows_(config: Config, model: Model, rows: Tensor, factor: float, seen: float) -> None:
    """The server's step on the whole table."""
    if config.exact_steps:
        rows = along_sphere(rows, model.table) * seen
    model.adam.step_("table", model.table, rows, config.row_lr * factor)
    model.table.copy_(F.normalize(model.table))


def _spread_(config: Config, model: Model, weights: Tensor | None, factor: float) -> None:
    def objective(table: Tensor) -> tuple[Tensor, Tensor]:
        return spreadout(table, config.spreadout_margin, weights)

    for _ in range(config.spreadout_steps):
        model.length = descend_(model.table, objective, config.share * factor, model.length)


@dataclass(frozen=True)
class Scores:
    """P@1, P@3 and P@5 in percent on the validation part."""

    with_prior: list[float]  # with the best τ
    without: list[float]
    tau: float
    loss: float  # of the last round; not finite where training diverged


@torch.no_grad()
def score(config: Config, held: Held, model: Model, loss: float) -> Scores:
    """With the τ of `TAUS` that has the best P@1."""
    scores = embed(model.layers, scaled(held.valid_x, config.inputs)) @ model.table.T
    prior = torch.log(held.counts.clamp_min(0.5) / held.counts.max())

    def precisions(tau: float) -> list[float]:
        top = (scores + tau * prior).topk(min(5, held.classes), 1).indices
        right = held.valid_y.gather(1, top)
        return [round(100 * right[:, :k].mean().item(), 2) for k in (1, 3, 5) if k <= held.classes]

    found = {tau: precisions(tau) for tau in TAUS}
    best = max(found, key=lambda tau: found[tau][0])
    return Scores(found[best], found[0.0], best, loss)


def run(config: Config, held: Held, seed: int = 0) -> Scores:
    """Train from a seed and look at the validation part once, at the end."""
    model = Model.fresh(config, held, seed)
    weights = pair_weights(held.counts, held.together) if config.method == "fedalc" else None
    loss = held.x.new_zeros(())
    for number in range(config.rounds):
        loss = run_round_(config, held, model, number, weights)
    return score(config, held, model, float(loss))
