"""What the server of FedAwS lowers (Yu et al. 2020): classes that are near each other.

Eq. 7    reg_sp(W)  = Σ_c Σ_c'≠c max(0, ν − d(w_c, w_c'))²     all pairs
Eq. 8    reg_top(W) = Σ_c∈C' Σ_y∈N_k(c) −d(w_c, w_y)²          classes that took part, their nearest
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.data.dataset import FederatedDataset
from spreadout.methods.class_counts import one_client_per_class, shares
from spreadout.methods.class_features import FromFeatures
from spreadout.methods.context import ServerContext
from spreadout.objectives import approximate_neighbours as approximate
from spreadout.objectives import regularizers
from spreadout.objectives.cooccurrence import PairWeights
from spreadout.objectives.neighbours import Nearest
from spreadout.objectives.regularizers import FarPenalty, HingePenalty, Penalty, TableLoss

MINING = ("topk", "both")  # forms that look for near pairs
MANY_CLASSES = 50_000  # where a sum over all pairs begins to cost seconds


class SpreadoutObjective(FromFeatures):
    """Which pairs of classes are pushed apart, and how hard each of them."""

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

    @property
    def can_shard(self) -> bool:
        mined = self.spreadout_form == "topk" and self.index == "none"  # anything else needs all rows
        return mined and self.class_features is None

    def regularizer(
        self,
        state: ServerState,
        context: ServerContext,
        step: int,
        neighbours: Tensor | None = None,
        *,
        gradient: bool = True,
    ) -> TableLoss:
        """Eq. 7, Eq. 8 or both at the present table, with its gradient.

        neighbours: those of Eq. 8, if they were found before. gradient: False computes the value alone,
        as a line search asks for it several times a step.
        """
        mined, weight = None, self._term_weights(state, context)
        if self.spreadout_form in MINING:
            mined = self._mined(state, context, step, weight, neighbours, gradient)
            if self.spreadout_form == "topk":
                return mined
        every = regularizers.all_pairs(
            local_of(state.tables["classes"]),
            self._penalty(far=self.spreadout_form == "far"),
            weight=weight,
            clip=self.pair_clip,
            reduction=self.reduction,
            gradient=gradient,
        )
        return every if mined is None else regularizers.together(every, mined, self.mined_share)

    def _penalty(self, *, far: bool) -> Penalty:
        return FarPenalty(self.distance) if far else HingePenalty(self.spreadout_margin, self.distance)

    @property
    def pair_clip(self) -> float | None:
        """The most that one pair may add to the gradient's norm."""
        return None

    def _term_weights(self, state: ServerState, context: ServerContext) -> Tensor | PairWeights | None:
        """One for each class (Remark 2), or for each pair; None weighs all alike."""
        return self._class_weight(state, context) if self.weighted else None

    def _mined(
        self,
        state: ServerState,
        context: ServerContext,
        step: int,
        weight: Tensor | PairWeights | None,
        neighbours: Tensor | None,
        gradient: bool,
    ) -> TableLoss:
        """Eq. 8: each class that took part and its nearest others."""
        table, anchors = state.tables["classes"], context.touched["classes"].ids
        search, subset = None, None
        if neighbours is not None:
            search = regularizers.among(table, neighbours)
        elif self.index == "ivf":
            search = self._by_index(state, context, step)
        elif self.candidates is not None and self.candidates < len(table):
            draw = randomness.generator(context.seed, "candidates", context.round, step)
            chosen = draw.choice(len(table), size=self.candidates, replace=False, shuffle=False)
            subset = torch.from_numpy(chosen).sort().values.to(table.device)
        return regularizers.mined_pairs(
            table,
            anchors,
            self.k,
            self._penalty(far=self.mined_form == "far"),
            candidates=subset,
            weight=weight[anchors] if isinstance(weight, Tensor) else weight,
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

    def _class_weight(self, state: ServerState, context: ServerContext) -> Tensor:
        """a_c = C·n_c/n of the classes that have examples, 1 of others; n_c as clients counted it before
        the first round (`prior`), or as they have reported it so far."""
        if (counts := state.scoring.get("counts")) is not None:
            return shares(counts)
        table, touched = state.tables["classes"], context.touched["classes"]
        memory = state.recall(self.state_type)
        if memory.class_examples is None:
            memory.class_examples = torch.zeros(len(table), device=table.device)
        seen = memory.class_examples
        seen[touched.ids] = touched.examples  # one client per class: its n_i is the class's n_c
        return shares(seen)

    def validate_data(self, data: FederatedDataset) -> str | None:
        mines = self.spreadout_form in MINING
        if mines and self.k >= data.class_count:
            return f"method.k = {self.k}: must be below the number of classes, {data.class_count}"
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
                f"Eq. 7 over all pairs of {data.class_count} classes costs C² d every round; "
                'spreadout_form = "topk" mines near pairs only, and a cosine margin of 2 or more '
                "has an exact O(C d²) form"
            )
        return None
