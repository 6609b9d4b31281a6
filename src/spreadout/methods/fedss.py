"""FedSS: federated sampled softmax (Waghmare et al. 2022), its ablations, and PosOnly with spreadout.

Algorithm 1                                           here
5   client k samples negatives N_k                    FedSS.request
6   it requests S_k = P_k ∪ N_k                       the same; the request does not say which are P_k
10  θ ← θ − η ∇L_sampled                              FedSS.loss (Eqs. 5, 7 and 8)
12  mean of the updates, n_k/n                        weighting, merge
13  θ ← θ + α·mean                                    [server]; the paper's minus is a slip
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.merging import RowMerge, Weighting
from spreadout.core.ragged import Ragged
from spreadout.core.rows import nbytes
from spreadout.core.state import MethodState, ServerState
from spreadout.core.traffic import Traffic
from spreadout.core.types import Batch, Params, RowInfo, Tensors
from spreadout.data.dataset import FederatedDataset
from spreadout.methods.base import Draws, Prior, RowAccess, reads_params_via_model, register_method
from spreadout.methods.by_frequency import AdjustedLogits
from spreadout.methods.class_counts import SetupMessage, is_row_list
from spreadout.methods.context import SetupContext
from spreadout.methods.fedaws import Spreadout
from spreadout.methods.negatives import (
    too_many_negatives,
    uniform_chance,
    with_negatives,
    with_popular_negatives,
)
from spreadout.methods.spreadout_state import SpreadoutState
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import losses
from spreadout.privacy.cover import blocks_of, covered

Draw = Literal["fresh", "fixed", "popular", "popular-fixed", "cover"]
"""How a client draws its negatives: anew every round, or once and for all; uniformly, or by how many
clients hold a class. Or not at all: with "cover" they are the other classes of the public blocks that
its own are in. `spreadout audit` shows what the server learns from it."""


NEGATIVES = 100  # the default


@dataclass
class PopularityState(MethodState):
    """How many clients hold each class, as shares."""

    popularity: Tensor | None = None  # (C,)


@dataclass
class PopularSpreadState(SpreadoutState, PopularityState):
    """Both."""


class SampledSoftmax(AdjustedLogits):
    """Softmax over a client's own classes and a sample of the others."""

    state_type: ClassVar[type[PopularityState]] = PopularityState
    read_if: ClassVar = {"correct": ({"loss_form": ("sampled", "negatives")},)}

    loss_form: Literal["sampled", "negatives", "positives"] = "sampled"  # Eq. 5, 7 or 8
    negatives: int | None = Field(None, ge=1)  # |N_k|; give this or sampled_rows; neither: 100
    sampled_rows: int | None = Field(None, ge=2)  # |S_k|
    matched: bool = False  # NegOnly: |P_k| − 1 more negatives, as many rivals as FedSS has (§4.4)
    draw: Draw = "fresh"
    cover: int | None = Field(None, ge=2)  # classes of a block, at least; with draw = "cover"
    correct: bool = True  # logits of negatives by −log(m q), Eq. 3
    merge: RowMerge = "weighted-mean"

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.negatives is not None and self.sampled_rows is not None:
            raise ValueError("give negatives or sampled_rows, not both")
        if self.loss_form == "positives" and (self.negatives or self.sampled_rows or self.matched):
            raise ValueError(
                'loss_form = "positives" has no negatives: leave negatives and sampled_rows out'
            )
        if self.draw == "cover" and self.cover is None:
            raise ValueError('draw = "cover": needs cover, the number of classes of a block')
        if self.draw == "cover" and (self.negatives or self.sampled_rows or self.matched):
            raise ValueError('draw = "cover": cover says what is requested: leave the other sizes out')
        if self.draw != "cover" and self.cover is not None:
            raise ValueError(f'cover = {self.cover}: is for draw = "cover"')
        if self.loss_form == "positives" and self.draw not in ("fresh", "cover"):
            raise ValueError(f'draw = {self.draw!r}: loss_form = "positives" draws nothing')
        if self.matched and self.loss_form != "negatives":
            raise ValueError('matched: is for loss_form = "negatives"')
        return self

    @property
    def needs_own(self) -> bool:
        return True

    @property
    def needs_popularity(self) -> bool:
        return self.draw.startswith("popular")

    @property
    def sends_at_setup(self) -> str | None:
        return "their classes" if self.needs_popularity else super().sends_at_setup

    @property
    def without_setup(self) -> str:
        return 'method.draw = "fresh" or "fixed"' if self.needs_popularity else super().without_setup

    @property
    def draws(self) -> Draws:
        fixed = self.draw.endswith("fixed") or self.cover is not None
        return Draws(by_popularity=self.needs_popularity, fixed=fixed, cover=self.cover)

    @property
    def row_access(self) -> RowAccess:
        return "own" if self.loss_form == "positives" and self.cover is None else "sample"

    @property
    def has_secret_draws(self) -> bool:
        return super().has_secret_draws and self.cover is None  # blocks are public

    @property
    def loss_is_of_each_example(self) -> bool:
        alone = self.loss_form == "sampled" and not self.correct  # all else reads `info.own`
        return alone and self.needs_counts is None

    def row_merge(self) -> dict[str, RowMerge]:
        return {"classes": self.merge}

    def request(
        self, data: FederatedDataset, clients: Tensor, *, seed: int, round: int
    ) -> dict[str, Ragged]:
        """S_k = P_k ∪ N_k, ascending, so that the order does not reveal P_k; or the blocks of P_k."""
        requests = data.rows_of(clients)
        own = requests["classes"]
        if self.cover is not None:
            blocks = blocks_of(data.first_class, data.classes, self.cover)
            return {**requests, "classes": covered(own, blocks)}
        if self.loss_form == "positives":
            return requests
        counts = np.full(len(clients), self.negatives or NEGATIVES)
        if self.sampled_rows is not None:
            counts = np.maximum(self.sampled_rows - own.lengths.numpy(), 0)
        if self.matched:
            counts = counts + np.maximum(own.lengths.numpy() - 1, 0)
        turn = () if self.draws.fixed else (round,)
        stream = randomness.key(seed, "negatives", *turn)
        bounds, numbers = (data.first_class, data.classes), data.number_of(clients)
        if self.needs_popularity:
            drawn = with_popular_negatives(own, counts, data.popularity, stream, numbers)
        else:
            drawn = with_negatives(own, counts, bounds, stream, numbers)
        return {**requests, "classes": drawn}

    @property
    def known_prior(self) -> float | None:
        """Of a corrected sample alone, which stands for the softmax over all classes (Eq. 3)."""
        whole = self.correct and self.loss_form == "sampled"
        return super().known_prior if whole else None

    def client_setup(self, data: FederatedDataset, *, key: bytes, seed: int) -> Iterator[SetupMessage]:
        """The classes each client holds, where negatives are drawn by popularity."""
        if self.collects_counts:
            yield from super().client_setup(data, key=key, seed=seed)
        elif self.needs_popularity:
            rows = data.rows_of(torch.arange(data.clients))["classes"]
            yield from ({"classes": rows[i].numpy()} for i in range(len(rows)))

    def server_setup(self, setup: SetupContext, state: ServerState, model: EmbeddingModel) -> Traffic:
        """The popularity of all classes, which is then sent to every client."""
        if not self.needs_popularity:
            return super().server_setup(setup, state, model)
        if not self.collects_counts:
            return self._popularity(setup, state, model)
        # Both from one message: who holds a class, and how often it occurs.
        messages = list(setup.messages)
        holders = ({"classes": message["classes"]} for message in messages if "classes" in message)
        sent = super().server_setup(replace(setup, messages=messages), state, model)
        down = self._popularity(replace(setup, messages=holders), state, model)
        return Traffic(once_up=sent.once_up, once_down=sent.once_down + down.once_down)

    def _popularity(self, setup: SetupContext, state: ServerState, model: EmbeddingModel) -> Traffic:
        """How many clients hold each class, by what they say."""
        counts, sent = torch.zeros(model.tables["classes"].count), 0
        for message in setup.messages:
            rows = message.get("classes")
            if rows is None or not is_row_list(rows, len(counts)):
                state.refused["class message: malformed"] += 1
                continue
            counts[torch.from_numpy(rows)] += 1
            sent += rows.nbytes
        state.recall(self.state_type).popularity = counts / counts.sum().clamp_min(1)
        return Traffic(once_up=sent, once_down=setup.clients * nbytes([counts]))

    def public_state(self, state: ServerState) -> Tensors:
        popularity = state.recall(self.state_type).popularity if self.needs_popularity else None
        known = super().public_state(state)
        return known if popularity is None else {**known, "popularity": popularity}

    @reads_params_via_model
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        """Eq. 5; without the client's other classes Eq. 7; without negatives Eq. 8."""
        scores = model.embed(params, batch) @ model.class_vectors(params).T  # (B, m)
        real, mine = info.present["classes"], info.own["classes"]  # (m,)
        rivals = real.expand_as(scores)
        if self.loss_form == "negatives":
            target = torch.arange(scores.shape[1], device=scores.device) == batch["y"][:, None]
            rivals = rivals & (~mine | target)
        if self.loss_form == "positives":  # a cover set has others too
            rivals = rivals & mine
        expected = losses.log_expected(real, mine, self._chance(info)) if self.correct else None
        each = self.cross_entropy(scores, batch["y"], rivals, info, expected)
        return losses.masked_mean(each, batch["mask"])

    def _chance(self, info: RowInfo) -> Tensor:
        """q: how likely a draw is to be each class that is not the client's own."""
        if self.needs_popularity:
            return info.share["classes"]
        return uniform_chance(info)

    def validate_data(self, data: FederatedDataset) -> str | None:
        most = data.classes - data.first_class
        if most == 1 and self.row_access == "sample":
            return f"method.name = {self.name!r}: there is one class only, and no other to draw"
        if self.cover is not None and self.cover > most:
            return f"method.cover = {self.cover}: there are only {most} classes"
        if self.sampled_rows is not None and self.sampled_rows > most:
            return f"method.sampled_rows = {self.sampled_rows}: there are only {most} classes"
        return too_many_negatives(self.negatives or 0, data) or super().validate_data(data)

    def warnings(self, data: FederatedDataset) -> str | None:
        own = data.rows_of(torch.arange(data.clients))["classes"].lengths
        if self.loss_form == "positives" and (said := _alone(own, self.name)):
            return said
        if self.sampled_rows is not None and int(own.max()) >= self.sampled_rows:
            full = int((own >= self.sampled_rows).sum())
            return (
                f"method.sampled_rows = {self.sampled_rows}: {full} clients have as many classes of "
                "their own and request no negatives: one request shows the server which they are"
            )
        most, every = int(own.max()), data.classes - data.first_class
        drawn = self.loss_form != "positives" and self.cover is None
        if drawn and most >= every:
            left = "nothing to learn from" if self.loss_form == "negatives" else "it needs none"
            return f"a client holds every class: there are no negatives left for it, and {left}"
        if drawn and self.sampled_rows is None and most + (self.negatives or NEGATIVES) >= every:
            return (
                f"method.negatives = {self.negatives or NEGATIVES}: with their own classes some clients "
                "request all there are: that is the full softmax"
            )
        return super().warnings(data)


@register_method
class FedSS(SampledSoftmax):
    """It is all there is: the server adds nothing."""

    name: Literal["fedss"] = "fedss"


@register_method
class FedAwSSoftmax(SampledSoftmax, Spreadout):
    """FedSS on the clients, spreadout on the server.

    Without negatives it is the paper's FedAwS reference: PosOnly on the clients (Eq. 8). With some it is
    FedAwS whose clients get rows of other classes beside their own.
    """

    state_type: ClassVar[type[PopularSpreadState]] = PopularSpreadState
    has_softmax: ClassVar[bool] = True
    # Neither the other loss of positives nor its margin.
    read_if: ClassVar = {"margin_by_frequency": ({},), "margin": ({"loss_form": ()},)}

    name: Literal["fedaws-softmax"] = "fedaws-softmax"
    loss_form: Literal["sampled", "negatives", "positives"] = "positives"  # type: ignore[assignment]
    weighting: Weighting = "examples"
    prior: Prior = "auto"

    @model_validator(mode="before")
    @classmethod
    def _negatives_are_sampled(cls, values: Any) -> Any:
        """Whoever says how many negatives there are need not say that there are some.

        Clients that hide their classes among others do not tell them for the sake of a prior.
        """
        if not isinstance(values, Mapping):
            return values
        sizes = ("negatives", "sampled_rows", "cover")
        given = any(values.get(size) is not None for size in sizes)
        form = values.get("loss_form", "sampled" if given else "positives")
        return values if form == "positives" else {"loss_form": form, "prior": 0.0, **values}


def _alone(own: Tensor, method: str) -> str | None:
    """Clients with one class each, whose softmax over their own is 1 whatever the model does."""
    held = own[own > 0]
    if not len(held) or int((held == 1).sum()) < 0.5 * len(held):
        return None
    return (
        f"method.name = {method!r}: {int((held == 1).sum())} of {len(held)} clients hold one class, and "
        "a softmax over one learns nothing; "
        'take data.partition = "few_classes", method.name = "fedaws", or some negatives (fedss, or '
        "method.negatives of fedaws-softmax)"
    )
