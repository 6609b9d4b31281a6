"""Local steps on sparse features whose first layer is never copied, nor its gradient made.

All clients start from the same weights W₀. A plain gradient step on a batch X_r (B, F) moves them by
−η D_rᵀ X_r, where D_r (B, H) is the loss's gradient at the layer's output: the weights stay in the
linear span of the client's own inputs. So the layer's output for a later batch is

    X_t Wᵀ = X_t W₀ᵀ − η Σ_{r<t} (X_t X_rᵀ) D_r

X W₀ᵀ is one sparse product for the whole cohort, and X Xᵀ is worked out once for each client's examples.
What the server sums, Σ ω_i ΔW_i, is one more sparse product. Nothing of it grows with the number of
features; with stacked copies everything does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional as F

from spreadout.core.ragged import offsets_from_lengths
from spreadout.data.columns import Sparse
from spreadout.data.dataset import FederatedDataset
from spreadout.federated.batches import StepByStep
from spreadout.federated.federation import Federation
from spreadout.models.embedding import EmbeddingModel
from spreadout.models.nn.linear import Linear


@dataclass(frozen=True)
class FirstLayer:
    """The linear layer an encoder begins with."""

    weight: str  # its parameter's name
    after: EmbeddingModel  # the same model from what the layer puts out, before its bias


@dataclass(frozen=True)
class InnerProducts:
    """x·x′ for every two examples of one client, all clients one after another."""

    values: Tensor  # (Σ n_i²,) row by row
    start: Tensor  # (clients,) where a client's begin
    size: Tensor  # (clients,) n_i

    @classmethod
    def of(cls, column: Sparse, data: FederatedDataset) -> InnerProducts:
        size = data.offsets.diff()
        owner = torch.repeat_interleave(torch.arange(data.clients), size)
        features = column.compact()
        # Client after client along the diagonal: only examples of one client have features in common.
        length = features.offsets.diff()
        ids = features.ids.long() + torch.repeat_interleave(owner, length) * column.width
        shape = len(owner), data.clients * column.width
        parts = features.weights.double().numpy(), ids.numpy(), features.offsets.numpy()
        own = sparse.csr_array(parts, shape=shape)
        found = (own @ own.T).tocoo()
        start = offsets_from_lengths(size * size)
        one, other = torch.from_numpy(found.row).long(), torch.from_numpy(found.col).long()
        first = data.offsets[:-1][owner[one]]
        place = start[owner[one]] + (one - first) * size[owner[one]] + (other - first)
        values = torch.zeros(int(start[-1]))
        values[place] = torch.from_numpy(found.data).float()
        return cls(values, start[:-1], size)

    def between(self, clients: Tensor, these: Tensor, those: Tensor) -> Tensor:
        """clients (k,), these (k, a), those (k, b): places among a client's own examples → (k, a, b)"""
        row = self.start[clients][:, None] + these * self.size[clients][:, None]
        return self.values[row[:, :, None] + those[:, None, :]]


@dataclass
class ImplicitOutputs:
    """Stands for the column x: what the first layer puts out for each step's batch, of every client.

    As `local_update` goes through the steps it hands back the gradient at each, and the next ones follow
    from those.
    """

    fresh: Tensor  # (n, H) X W₀ᵀ of the n distinct examples of the chunk
    place: Tensor  # (k, S, B) which of them
    within: Tensor  # (k, S, B) the same among the client's own examples
    features: Sparse  # the n examples
    products: InnerProducts
    clients: Tensor  # (k,)
    rate: float  # η
    followed: Tensor  # (k, S · B, H) room for all gradients, one step after another
    gradients: list[Tensor] = field(default_factory=list)  # D_r (k_r, B, H), each its part of that

    def __getitem__(self, key: tuple[slice, int]) -> Tensor:
        now, step = key
        found = self.fresh[self.place[now, step]]  # (k, B, H)
        if not step:
            return found
        seen = self.within[now, :step].flatten(1)  # (k, step · B)
        products = self.products.between(self.clients[now], self.within[now, step], seen)
        return found.baddbmm_(products, self.followed[now, : seen.shape[1]], alpha=-self.rate)

    def receive_gradient(self, gradient: Tensor) -> None:
        k, batch, _ = gradient.shape
        start = len(self.gradients) * batch
        self.gradients.append(self.followed[:k, start : start + batch].copy_(gradient))

    def weighted_sum(self, weight: Tensor) -> Tensor:
        """Σ_i ω_i ΔW_i (H, F); weight: (k,), 0 for a client that does not count."""
        at_example = torch.zeros_like(self.fresh)  # Σ over the slots that hold an example
        everyone = bool((weight != 0).all())
        for step, gradient in enumerate(self.gradients):
            k = len(gradient)
            counted = weight[:k, None, None] * gradient
            if not everyone:  # a gradient that does not count may be no number
                counted = torch.where(weight[:k, None, None] != 0, counted, 0.0)
            at_example.index_add_(0, self.place[:k, step].flatten(), counted.flatten(0, 1))
        features, shape = self.features, (len(self.fresh), self.features.width)
        # Whoever has a value that is no number does not count, and 0 times it is 0.
        weights = features.weights.float().nan_to_num(0.0, 0.0, 0.0)
        parts = weights.numpy(), features.ids.numpy(), features.offsets.numpy()
        by_feature = sparse.csr_array(parts, shape=shape).T.tocsr()
        summed = F.embedding_bag(
            torch.from_numpy(by_feature.indices).long(),
            at_example,
            torch.from_numpy(by_feature.indptr[:-1]).long(),
            mode="sum",
            per_sample_weights=torch.from_numpy(by_feature.data),
        )  # (F, H)
        return -self.rate * summed.T


class ImplicitLayers:
    """Whether a federation's clients can train this way, and what that needs, worked out once."""

    def __init__(self, most: int) -> None:
        self.most = most  # bytes of inner products to keep
        self._known: Federation | None = None
        self._layer: FirstLayer | None = None
        self._data: FederatedDataset | None = None
        self._products: InnerProducts | None = None

    def layer_of(self, federation: Federation) -> FirstLayer | None:
        """The layer that clients may train this way: by several plain steps, with products that fit.

        Looked at once: it costs a look at every client, and only the rates change from round to round.
        """
        f, known = federation, self._known
        if known is None or known.data is not f.data or _facts(known) != _facts(f):
            self._known, self._layer = f, first_layer(f)
            if self._layer is not None:
                several = int(f.clients.schedule.steps_per_client(f.data.sizes).max(initial=0)) > 1
                room = 4 * int((f.data.offsets.diff() ** 2).sum()) <= self.most
                self._layer = self._layer if several and room else None
        return self._layer

    def of(
        self, federation: Federation, clients: Tensor, x: object, start: Tensor, rate: float
    ) -> ImplicitOutputs | None:
        """The first layer's outputs for a chunk; None where stacked copies are the way.

        x: the chunk's batches of the column; start: W₀ (H, F); rate: η.
        """
        data = federation.data
        if not isinstance(x, StepByStep) or x.at[0].numel() > x.column.width:
            return None  # with as many slots as features this is no shortcut
        if self._data is not data:
            self._products, self._data = InnerProducts.of(x.column, data), data
        assert self._products is not None
        stored = x.at if x.column.index is None else x.column.index[x.at]
        distinct, place = torch.unique(stored, return_inverse=True)
        features = replace(x.column, index=distinct).compact()
        fresh = F.embedding_bag(
            features.ids.long(),
            start.T.contiguous(),
            features.offsets[:-1],
            mode="sum",
            per_sample_weights=features.weights.float(),
        )
        within = x.at - data.offsets[clients][:, None, None]
        followed = fresh.new_empty(len(clients), within[0].numel(), fresh.shape[1])
        return ImplicitOutputs(fresh, place, within, features, self._products, clients, rate, followed)


def _facts(f: Federation) -> tuple[object, ...]:
    """What decides, apart from the data, whether a layer may stay implicit."""
    c, reads = f.clients, f.method.loss_reads_params
    kind = reads, f.looks_at_each_update, c.drift, bool(c.augment), f.bf16, f.device.type
    return id(f.model), f.clients.training.dense, f.clients.schedule, *kind


def first_layer(federation: Federation) -> FirstLayer | None:
    """The layer that may stay implicit; None where there is none."""
    f, model = federation, federation.model
    c = f.clients
    if f.looks_at_each_update or c.drift is not None or c.augment or not c.training.dense.is_plain:
        return None
    if f.bf16 or f.device.type != "cpu":
        return None
    if f.method.loss_reads_params:  # it would miss the layer among its parameters
        return None
    # Exact types: a subclass, in the model or in its layers, may do what we do not know of.
    if type(model) is not EmbeddingModel or type(model.encoder) is not nn.Sequential:
        return None
    layers = list(model.encoder)
    at = next((i for i, layer in enumerate(layers) if type(layer) is not nn.Flatten), -1)
    linear = layers[at] if layers else None
    if type(linear) not in (nn.Linear, Linear) or "x" in f.data.row_columns:
        return None
    assert isinstance(linear, nn.Linear)
    if not isinstance(f.data.columns.get("x"), Sparse) or not _is_plain(model.encoder, linear):
        return None
    rest = nn.Sequential(*layers[:at], _Bias(linear.bias), *layers[at + 1 :])
    return FirstLayer(f"{at}.weight", replace(model, encoder=rest))


def _is_plain(encoder: nn.Sequential, linear: nn.Linear) -> bool:
    """Whether the layer is trained as it stands: no hooks, not frozen, its weight nobody else's."""
    hooked = (
        hooks
        for module in (encoder, linear)
        for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    )
    named = list(encoder.named_parameters(remove_duplicate=False))
    shared = sum(value is linear.weight for _, value in named) != 1
    return not any(hooked) and linear.weight.requires_grad and not shared


class _Bias(nn.Module):
    """What is left of a linear layer."""

    def __init__(self, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return x if self.bias is None else x + self.bias
