"""Noise in every local step, on the sum of its examples' clipped gradients (Abadi et al. 2016).

    g̃ = (Σ_b clip(∇ℓ_b) + N(0, (σC)² I)) / B,   each example in a step with probability B / n

over the dense part and the client's rows together. Every example is treated as a client of its own with
a batch of one: the gradient of the summed losses in a stack of copies is the stack of their gradients.
What optimiser and sphere make of g̃ needs no data. Noise follows from (seed, round, client, step): it
simulates, and promises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.types import Batch, Params, RowInfo
from spreadout.privacy.mechanism import GaussianMechanism

if TYPE_CHECKING:
    from spreadout.federated.federation import Federation
    from spreadout.federated.local import Objective


@dataclass(frozen=True)
class ExampleNoise:
    """How the clients of a stack make their gradients."""

    objective: Objective  # of a stack
    mechanism: GaussianMechanism
    expected: float  # B: examples in a step, in the mean
    seed: int
    round: int
    clients: Tensor  # (k,) numbers in the whole federation

    def gradients(
        self,
        live: Params,
        tables: Sequence[str],
        batch: Batch,
        info: RowInfo,
        step: int,
        now: slice | EllipsisType,
    ) -> tuple[Tensor, list[Tensor]]:
        """The loss (k,), and the gradients of the dense part and of these tables' rows, (k, …) each.

        now: which clients of the stack they are; …: one client, without a leading k.
        """
        if now is ...:
            live = Params(*({n: v[None] for n, v in part.items()} for part in live))
            batch = {name: column[None] for name, column in batch.items()}
            info = RowInfo(*({n: v[None] for n, v in part.items()} for part in info))
            loss, found = self.gradients(live, tables, batch, info, step, slice(0, 1))
            return loss[0], [gradient[0] for gradient in found]
        mask = batch["mask"]  # (k, B)
        k, width = mask.shape
        each = Params(*({n: v.repeat_interleave(width, 0) for n, v in part.items()} for part in live))
        leaves = {**each.dense, **{name: each.rows[name] for name in tables}}
        for value in leaves.values():
            value.requires_grad_()
        one = {name: column.reshape(k * width, 1, *column.shape[2:]) for name, column in batch.items()}
        one["mask"] = torch.ones_like(one["mask"])
        about = RowInfo(*({n: v.repeat_interleave(width, 0) for n, v in part.items()} for part in info))
        losses = self.objective(each, one, about)  # (k · B,)
        made = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
        with torch.no_grad():
            of_each = {
                name: torch.zeros_like(leaf) if gradient is None else gradient
                for (name, leaf), gradient in zip(leaves.items(), made, strict=True)
            }
            noisy = list(self.noised_sums(of_each, mask, step, now, info.present).values())
            told = (losses.view(k, width) * mask).sum(1) / mask.sum(1).clamp_min(1)
        return told, noisy

    def noised_sums(
        self,
        made: Mapping[str, Tensor],
        mask: Tensor,
        step: int,
        now: slice | EllipsisType = slice(None),
        present: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """(Σ_b clip(g_b) + noise) / B over the examples of each client: (k · B, …) → (k, …).

        mask: (k, B); present: of tables, which rows of each client are real.
        """
        summed = self._clipped_sums(made, mask)
        return {
            name: self._noised(name, value, (present or {}).get(name), step, now)
            for name, value in summed.items()
        }

    def _clipped_sums(self, made: Mapping[str, Tensor], mask: Tensor) -> dict[str, Tensor]:
        """Σ_b clip(∇ℓ_b) over the examples of each client, every one clipped as a whole: (k, …)."""
        k, width = mask.shape
        finite = {name: torch.where(g.isfinite(), g, 0.0) for name, g in made.items()}
        squares = [g.flatten(1).double().square().sum(1) for g in finite.values()]
        length = torch.stack(squares).sum(0).sqrt()  # (k · B,) in doubles, as updates are
        bound = torch.full_like(length, self.mechanism.clip)
        factor = (bound / torch.maximum(length, bound)).float() * mask.flatten()
        return {
            name: torch.einsum("kb,kb...->k...", factor.view(k, width), g.view(k, width, *g.shape[1:]))
            for name, g in finite.items()
        }

    def _noised(
        self, name: str, summed: Tensor, real: Tensor | None, step: int, now: slice | EllipsisType
    ) -> Tensor:
        if self.mechanism.noise:
            stream = randomness.key(self.seed, "example noise", name, self.round)
            slots = randomness.bits(stream, self.clients[now].numpy(), step).view("int64")
            drawn = randomness.normal_on(torch.from_numpy(slots).to(summed.device), summed[0].numel())
            noise = drawn.view(summed.shape).to(summed.dtype)
            if real is not None:
                noise = noise * real[..., None]  # padding is nobody's row
            summed = summed + self.mechanism.noise * self.mechanism.clip * noise
        return summed / self.expected


def example_noise(federation: Federation, clients: Tensor, round: int) -> ExampleNoise | None:
    """How these clients make their gradients in a round; None: as usual."""
    f, mechanism = federation, federation.clients.privacy
    if mechanism is None or mechanism.model != "example":
        return None
    batch = f.clients.schedule.batch
    assert batch is not None
    objective = torch.vmap(f.objective())
    return ExampleNoise(objective, mechanism, float(batch), f.seed, round, clients)
