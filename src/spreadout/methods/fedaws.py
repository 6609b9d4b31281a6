"""FedAwS: Federated Averaging with Spreadout (Yu et al., ICML 2020).

Algorithm 1                                           here
4   send θ, w_i to client i                           Method.request: its own rows
7   (θ, w_i) ← (θ, w_i) − η ∇R_pos                    PositiveOnly.loss (Eq. 23)
12  θ ← mean of θ_i                                   weighting
13  W̃ ← [w_1 … w_C]                                   row_merge: "replace"
14  W ← W̃ − λη ∇reg_sp(W̃)                             Spreadout.server_step (Eq. 7 or 8)

Line 14 needs a λη that fits the number of classes: too large a one makes the table swing. By default
the server finds the length of its step itself (`objectives/line_search.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.merging import RowSum
from spreadout.core.optimizers import Optimizer
from spreadout.core.state import ServerState, descend_table_
from spreadout.core.tables import local_of
from spreadout.data.dataset import FederatedDataset
from spreadout.methods.base import ClassSpread, ServerContext, collapse_of, register_method
from spreadout.methods.class_counts import one_client_per_class, shares
from spreadout.methods.class_features import FromFeatures
from spreadout.methods.ridge_start import RidgeStart
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import approximate_neighbours as approximate
from spreadout.objectives import line_search, regularizers
from spreadout.objectives.cooccurrence import PairWeights
from spreadout.objectives.neighbours import Nearest
from spreadout.objectives.regularizers import FarPenalty, HingePenalty, TableLoss

CLOSE = 0.5  # a margin from which on nothing is pushed that is closer than collapsed classes are
HALF_WAY = 0.01  # the λ with which a safe step goes half of the way
WATCH_EVERY = 5  # rounds after which a plain step is looked at
MINING = ("topk", "both")  # forms of spreadout that look for near pairs
FEWER = 4  # times fewer neighbours, where there were too many of them
BOUNDED = 'method.spreadout_form = "hinge"'  # whose push ends at its margin
MANY_CLASSES = 50_000  # where a sum over all pairs begins to cost seconds


class Spreadout(FromFeatures):
    """Positive loss on the clients, spreadout on the server after every round."""

    read_if: ClassVar = {
        "k": ({"spreadout_form": MINING},),
        "mined_form": ({"spreadout_form": MINING},),
        "candidates": ({"spreadout_form": MINING},),
        "mined_share": ({"spreadout_form": ("both",)},),
        "index_every": ({"index": ("ivf",)},),
        "index_probes": ({"index": ("ivf",)},),
        "spreadout_margin": (
            {"spreadout_form": ("hinge", "both")},
            {"spreadout_form": ("topk",), "mined_form": ("hinge",)},
        ),
    }

    # Eq. 7, −d² over all pairs, Eq. 8 over mined pairs, or Eqs. 7 and 8 together.
    spreadout_form: Literal["hinge", "far", "topk", "both"] = "hinge"
    mined_share: float = Field(0.5, gt=0, lt=1)  # μ of both: (1 − μ) of Eq. 7 and μ of Eq. 8
    distance: regularizers.Distance = "cosine"
    spreadout_margin: float = Field(1.1, gt=0)  # ν of Eq. 7
    mined_form: Literal["far", "hinge"] = "far"  # φ of mined pairs: −d² of Eq. 8, or that of Eq. 7
    k: int = Field(100, ge=1)  # neighbours of Eq. 8
    candidates: int | None = Field(None, ge=1)  # |C′| of Eq. 8: a fresh random subset each step
    index: Literal["none", "ivf"] = "none"  # neighbours of Eq. 8 from an approximate index
    index_every: int = Field(10, ge=1)  # rounds after which it is made anew
    index_probes: int = Field(16, ge=1)  # of its lists are searched
    spreadout_step: Literal["safe", "plain"] = "safe"  # found by line search, or λη as line 14 has it
    spreadout_steps: int = Field(1, ge=1)
    # λ. Safe: the step goes λ / (λ + 0.01) of the way, None is 1. Plain: None is one of each row's mean
    # over its pairs: 1/C of the sum of Eq. 7 (Prop. 2), 1/k of that of Eq. 8.
    strength: float | None = Field(None, gt=0)
    spreadout_lr: float | None = Field(None, gt=0)  # plain: η of line 14; None: the clients' row rate
    spreadout_optimizer: Literal["sgd", "adam", "adagrad", "yogi"] = "sgd"  # plain
    reduction: regularizers.Reduction = "sum"  # over pairs; both: "row"
    weighted: bool = False  # Remark 2: weigh each class's term by its share of examples

    @model_validator(mode="before")
    @classmethod
    def _on_one_scale(cls, values: Any) -> Any:
        """A sum over all pairs and one over a few can only be mixed by row."""
        both = isinstance(values, Mapping) and values.get("spreadout_form") == "both"
        return {"reduction": "row", **values} if both else values

    @model_validator(mode="after")
    def _mixes_means(self) -> Self:
        if self.spreadout_form == "both" and self.reduction != "row":
            raise ValueError(f'reduction = "{self.reduction}": spreadout_form = "both" needs "row"')
        return self

    @model_validator(mode="after")
    def _of_a_plain_step(self) -> Self:
        if self.spreadout_step == "safe":
            for key in ("spreadout_lr", "spreadout_optimizer"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(f'{key}: is for spreadout_step = "plain"; a safe one finds its own')
        return self

    @property
    def can_shard(self) -> bool:
        mined = self.spreadout_form == "topk" and self.index == "none"  # anything else needs all rows
        return mined and self.class_features is None

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
        touched, memory = context.touched["classes"], state.recall(self.state_type)
        loss = self.regularizer(state, touched, context, step)
        strength = 1.0 if self.strength is None else self.strength
        length = line_search.descend_(
            state.tables["classes"],
            loss,
            lambda: self._value(state, touched, context, step, loss.neighbours),
            share=strength / (strength + HALF_WAY) * context.rate_factor,
            length=None if memory.length is None else float(memory.length),
            sphere=model.tables["classes"].sphere,
        )
        memory.length = torch.tensor(length, dtype=torch.float64)

    def _plain_step(
        self, state: ServerState, model: EmbeddingModel, context: ServerContext, step: int
    ) -> None:
        """W ← W̃ − λη ∇reg_sp(W̃), as it is written."""
        touched = context.touched["classes"]
        regularizer = self.regularizer(state, touched, context, step)
        rate = self._lambda(state, touched) * (self.spreadout_lr or context.client_lr["classes"])  # λη
        descend_table_(
            state,
            "spreadout/classes",
            "classes",
            regularizer.gradient,
            Optimizer(optimizer=self.spreadout_optimizer, lr=rate),
            sphere=model.tables["classes"].sphere,
        )
        if context.round % WATCH_EVERY == 0:
            after = self._value(state, touched, context, step, regularizer.neighbours)
            memory = state.recall(self.state_type)
            seen = torch.zeros(2) if memory.watched is None else memory.watched.cpu()
            memory.watched = seen + torch.tensor([1.0, float(after > regularizer.value)])

    def signs(self, state: ServerState) -> dict[str, float]:
        seen = state.recall(self.state_type).watched
        return {} if seen is None else {"spreadout_rises": float(seen[1] / seen[0])}

    def _lambda(self, state: ServerState, touched: RowSum) -> float:
        """λ of line 14: of Eq. 7 1/C (Prop. 2), each row's mean over its pairs; likewise of Eq. 8."""
        if self.strength is not None:
            return self.strength
        if self.reduction == "row":
            return 1.0
        mined = self.spreadout_form == "topk"
        classes = len(state.tables["classes"])
        if self.reduction == "mean":  # as many rows as its pairs belong to
            return float(len(touched.ids) if mined else classes)
        return 1 / (self.k if mined else classes)

    def regularizer(
        self,
        state: ServerState,
        touched: RowSum,
        context: ServerContext,
        step: int,
        neighbours: Tensor | None = None,
    ) -> TableLoss:
        """reg_sp of Eq. 7 or reg_sp^top of Eq. 8 at the present table, with its gradient.

        neighbours: those of Eq. 8, if they were found before.
        """
        return self._spread(state, touched, context, step, neighbours)

    def _value(
        self,
        state: ServerState,
        touched: RowSum,
        context: ServerContext,
        step: int,
        neighbours: Tensor | None,
    ) -> Tensor:
        """The regulariser alone, as a line search asks for it several times a step."""
        return self._spread(state, touched, context, step, neighbours, gradient=False).value

    def _spread(
        self,
        state: ServerState,
        touched: RowSum,
        context: ServerContext,
        step: int,
        neighbours: Tensor | None = None,
        *,
        gradient: bool = True,
    ) -> TableLoss:
        mined, weight = None, self._term_weights(state, touched)
        if self.spreadout_form in MINING:
            mined = self._mined(state, touched, context, step, weight, neighbours, gradient)
            if self.spreadout_form == "topk":
                return mined
        hinge, far = HingePenalty(self.spreadout_margin, self.distance), FarPenalty(self.distance)
        every = regularizers.all_pairs(
            local_of(state.tables["classes"]),
            far if self.spreadout_form == "far" else hinge,
            weight=weight,
            clip=self.pair_clip,
            reduction=self.reduction,
            gradient=gradient,
        )
        return every if mined is None else regularizers.together(every, mined, self.mined_share)

    @property
    def pair_clip(self) -> float | None:
        """The most that one pair may add to the gradient's norm."""
        return None

    def _term_weights(self, state: ServerState, touched: RowSum) -> Tensor | PairWeights | None:
        """One for each class (Remark 2), or for each pair; None weighs all alike."""
        return self._class_weight(state, touched) if self.weighted else None

    def _mined(
        self,
        state: ServerState,
        touched: RowSum,
        context: ServerContext,
        step: int,
        weight: Tensor | PairWeights | None,
        neighbours: Tensor | None,
        gradient: bool,
    ) -> TableLoss:
        """Eq. 8: each class that took part and its nearest others."""
        table, search = state.tables["classes"], None
        if neighbours is not None:
            search = regularizers.among(table, neighbours)
        elif self.index == "ivf":
            search = self._by_index(state, context, step)
        subset = None
        if self.candidates is not None and self.candidates < len(table):
            draw = randomness.generator(context.seed, "candidates", context.round, step)
            chosen = draw.choice(len(table), size=self.candidates, replace=False, shuffle=False)
            subset = torch.from_numpy(chosen).sort().values.to(table.device)
        return regularizers.mined_pairs(
            table,
            touched.ids,
            self.k,
            FarPenalty(self.distance)
            if self.mined_form == "far"
            else HingePenalty(self.spreadout_margin, self.distance),
            candidates=subset,
            weight=weight[touched.ids] if isinstance(weight, Tensor) else weight,
            clip=self.pair_clip,
            reduction=self.reduction,
            low_precision=context.low_precision,
            search=search,
            gradient=gradient,
        )

    def _by_index(self, state: ServerState, context: ServerContext, step: int) -> regularizers.Search:
        """Neighbours by an index of the table as it was when that was last made."""
        table, memory = local_of(state.tables["classes"]), state.recall(self.state_type)
        due = context.round % self.index_every == 0 and step == 0
        if due or memory.index_rows is None:
            memory.index_rows = approximate.snapshot(table)
        copy = memory.index_rows = memory.index_rows.cpu()

        def search(rows: Tensor, ids: Tensor) -> Nearest:
            return approximate.approximately_nearest(
                rows, table, self.k, copy, probes=self.index_probes, exclude=ids
            )

        return search

    def _class_weight(self, state: ServerState, touched: RowSum) -> Tensor:
        """a_c = C·n_c/n of the classes that have examples, 1 of others; n_c as clients counted it before
        the first round (`prior`), or as they have reported it so far."""
        if (counts := state.scoring.get("counts")) is not None:
            return shares(counts)
        table = state.tables["classes"]
        memory = state.recall(self.state_type)
        if memory.class_examples is None:
            memory.class_examples = torch.zeros(len(table), device=table.device)
        seen = memory.class_examples
        seen[touched.ids] = touched.examples  # one client per class: its n_i is the class's n_c
        return shares(seen)

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

    def validate_data(self, data: FederatedDataset) -> str | None:
        mines = self.spreadout_form in MINING
        if mines and self.k >= data.classes:
            return f"method.k = {self.k}: must be below the number of classes, {data.classes}"
        if mines and self.candidates is not None and self.candidates <= self.k:
            return f"method.candidates = {self.candidates}: must be above method.k = {self.k}"
        if self.index == "ivf" and (not mines or self.candidates is not None):
            return "method.index = 'ivf': is for spreadout_form = \"topk\" without candidates"
        if self.index == "ivf" and not approximate.available():
            return f"method.index = 'ivf': {approximate.MISSING}"
        if self.weighted and not self.collects_counts and not one_client_per_class(data):
            return (
                "method.weighted = true: needs one class per client and one client per class; "
                "elsewhere the server learns how many examples a class has from method.prior alone"
            )
        return None

    def warnings(self, data: FederatedDataset) -> str | None:
        pool = min(self.candidates or data.classes, data.classes)
        if self.spreadout_form == "far" and self.distance == "cosine":
            return (
                'method.spreadout_form = "far": with the cosine distance, −d² over all pairs drives '
                'classes into two antipodal clusters; take distance = "euclidean", or '
                'spreadout_form = "hinge"'
            )
        mined_far = self.spreadout_form == "topk" and self.mined_form == "far"
        if mined_far and self.distance == "cosine" and 3 * self.k > pool:
            return (
                f"method.k = {self.k} is large for {pool} candidates: with the cosine distance, "
                "Eq. 8 over nearly all pairs drives classes into two antipodal clusters; "
                'take k well below C, distance = "euclidean", or spreadout_form = "hinge"'
            )
        every_pair = HingePenalty(self.spreadout_margin, self.distance).polynomial() is None
        if self.spreadout_form in ("hinge", "both") and every_pair and data.classes > MANY_CLASSES:
            return (
                f"Eq. 7 over all pairs of {data.classes} classes costs C² d every round; "
                'spreadout_form = "topk" mines near pairs only, and a cosine margin of 2 or more '
                "has an exact O(C d²) form"
            )
        return None


@register_method
class FedAwS(RidgeStart, Spreadout):
    """Every class is kept off every other."""

    name: Literal["fedaws"] = "fedaws"
