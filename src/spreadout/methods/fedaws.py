"""FedAwS: Federated Averaging with Spreadout (Yu et al., ICML 2020).

Algorithm 1                                           here
4   send θ, w_i to client i                           Method.request: its own rows
7   (θ, w_i) ← (θ, w_i) − η ∇R_pos                    PositiveOnly.loss (Eq. 23)
12  θ ← mean of θ_i                                   weighting
13  W̃ ← [w_1 … w_C]                                   row_merge: "replace"
14  W ← W̃ − λη ∇reg_sp(W̃)                             Spreadout.server_step (`spreadout_objective.py`)

Line 14 needs a λη that fits the number of classes: too large a one makes the table swing. By default
the server finds the length of its step itself (`objectives/line_search.py`).
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from spreadout.core.optimizers import Optimizer
from spreadout.core.state import ServerState, descend_table_
from spreadout.methods.base import register_method
from spreadout.methods.collapse import ClassSpread, collapse_of
from spreadout.methods.context import ServerContext
from spreadout.methods.ridge_start import RidgeStart
from spreadout.methods.seen_rows import SeenRows
from spreadout.methods.spreadout_objective import MINING, SpreadoutObjective
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import line_search

CLOSE = 0.5  # a margin from which on nothing is pushed that is closer than collapsed classes are
HALF_WAY = 0.01  # the λ with which a safe step goes half of the way
WATCH_EVERY = 5  # rounds after which a plain step is looked at
FEWER = 4  # times fewer neighbours, where there were too many of them
BOUNDED = 'method.spreadout_form = "hinge"'  # whose push ends at its margin


class Spreadout(SpreadoutObjective):
    """Positive loss on the clients, spreadout on the server after every round."""

    spreadout_step: Literal["safe", "plain"] = "safe"  # found by line search, or λη as line 14 has it
    spreadout_steps: int = Field(1, ge=1)
    # λ. Safe: the step goes λ / (λ + 0.01) of the way, None is 1. Plain: None is one of each row's mean
    # over its pairs: 1/C of the sum of Eq. 7 (Prop. 2), 1/k of that of Eq. 8.
    strength: float | None = Field(None, gt=0)
    spreadout_lr: float | None = Field(None, gt=0)  # plain: η of line 14; None: the clients' row rate
    spreadout_optimizer: Literal["sgd", "adam", "adagrad", "yogi"] = "sgd"  # plain

    @model_validator(mode="after")
    def _of_a_plain_step(self) -> Self:
        if self.spreadout_step == "safe":
            for key in ("spreadout_lr", "spreadout_optimizer"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(f'{key}: is for spreadout_step = "plain"; a safe one finds its own')
        return self

    def server_step(self, state: ServerState, model: EmbeddingModel, context: ServerContext) -> None:
        """Line 14, `spreadout_steps` times; then rows keep to what features of their classes say."""
        for step in range(self.spreadout_steps):
            if self.spreadout_step == "safe":
                self._safe_step(state, model, context, step)
            else:
                self._plain_step(state, model, context, step)
        if self.class_features is not None:
            self.realise_(state, context)

    def _safe_step(
        self, state: ServerState, model: EmbeddingModel, context: ServerContext, step: int
    ) -> None:
        """A share of the step that would be best; the objective never rises."""
        memory = state.recall(self.state_type)
        loss = self.regularizer(state, context, step)
        strength = 1.0 if self.strength is None else self.strength
        length = line_search.descend_(
            state.tables["classes"],
            loss,
            lambda: self._value(state, context, step, loss.neighbours),
            share=strength / (strength + HALF_WAY) * context.rate_factor,
            length=None if memory.length is None else float(memory.length),
            sphere=model.tables["classes"].sphere,
        )
        memory.length = torch.tensor(length, dtype=torch.float64)

    def _plain_step(
        self, state: ServerState, model: EmbeddingModel, context: ServerContext, step: int
    ) -> None:
        """W ← W̃ − λη ∇reg_sp(W̃), as it is written."""
        regularizer = self.regularizer(state, context, step)
        rate = self._lambda(state, context) * (self.spreadout_lr or context.client_lr["classes"])  # λη
        descend_table_(
            state,
            "spreadout/classes",
            "classes",
            regularizer.gradient,
            Optimizer(optimizer=self.spreadout_optimizer, lr=rate),
            sphere=model.tables["classes"].sphere,
        )
        if context.round % WATCH_EVERY == 0:
            after = self._value(state, context, step, regularizer.neighbours)
            memory = state.recall(self.state_type)
            seen = torch.zeros(2) if memory.watched is None else memory.watched.cpu()
            memory.watched = seen + torch.tensor([1.0, float(after > regularizer.value)])

    def signs(self, state: ServerState) -> dict[str, float]:
        seen = state.recall(self.state_type).watched
        return {} if seen is None else {"spreadout_rises": float(seen[1] / seen[0])}

    def _lambda(self, state: ServerState, context: ServerContext) -> float:
        """λ of line 14: of Eq. 7 1/C (Prop. 2), each row's mean over its pairs; likewise of Eq. 8."""
        if self.strength is not None:
            return self.strength
        if self.reduction == "row":
            return 1.0
        mined = self.spreadout_form == "topk"
        classes = len(state.tables["classes"])
        if self.reduction == "mean":  # as many rows as its pairs belong to
            return float(len(context.touched["classes"].ids) if mined else classes)
        return 1 / (self.k if mined else classes)

    def _value(
        self, state: ServerState, context: ServerContext, step: int, neighbours: Tensor | None
    ) -> Tensor:
        return self.regularizer(state, context, step, neighbours, gradient=False).value

    def collapse_advice(self, spread: ClassSpread) -> str:
        if spread.mean_cosine <= 0:  # pushed, and too hard
            sign = f"classes are driven into few directions (effective rank {spread.effective_rank:.1f})"
            return f"{sign}; {self._gentler()}"
        whole = self.spreadout_step == "safe" and (self.strength or 1.0) >= 10 * HALF_WAY
        if self.spreadout_form in ("hinge", "both") and self.spreadout_margin <= CLOSE:
            remedy = "raise method.spreadout_margin"
        elif whole:  # as good as all of the step is taken: clients pull further than it pushes
            remedy = "lower clients.row_lr tenfold, or raise method.spreadout_steps"
        else:
            remedy = "raise method.strength"
        return f"{collapse_of(spread)}; {remedy}"

    def _gentler(self) -> str:
        """What to try where classes were pushed too hard.

        −d² has no minimum where nearly all pairs count: classes fly to two opposite points, at any
        strength.
        """
        remedy = BOUNDED
        if self.spreadout_form in MINING and self.k > 1:
            remedy = f"method.k = {max(1, self.k // FEWER)}"
        if self.spreadout_step == "plain" and self.strength is not None:  # which may be of any size
            own = "" if self.spreadout_form == "hinge" else f" and {remedy}"
            return f'set method.spreadout_step = "safe"{own}'
        return "lower method.strength" if self.spreadout_form == "hinge" else f"set {remedy}"


@register_method
class FedAwS(RidgeStart, SeenRows, Spreadout):
    """Every class is kept off every other; with `negatives` the encoder sees rows of others."""

    name: Literal["fedaws"] = "fedaws"
