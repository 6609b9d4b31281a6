"""Losses that know how frequent classes are: larger margins for rare ones, or adjusted logits.

Each is an option of the methods that train class rows. A client counts its own examples, which nobody
has to tell it. Where a softmax has rows of other clients' classes, adjusted logits need their counts
too: then clients send theirs once, and the server sends the sums to all.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from spreadout.core.types import Counted, RowInfo
from spreadout.methods.base import Method
from spreadout.objectives import losses


class FrequencyMargins(Method):
    """Margins that grow as classes get rarer (LDAM, Cao et al. 2019)."""

    margin_by_frequency: float = Field(0.0, ge=0, le=1)  # Δ of a class with one example; ∝ n_c^(−1/4)

    @property
    def needs_counts(self) -> Counted | None:
        return "own" if self.margin_by_frequency else None

    def margins(self, info: RowInfo) -> Tensor | None:
        """Δ of each row's class: (m,); None where all have the same."""
        if not self.margin_by_frequency:
            return None
        return losses.margin_by_frequency(info.examples["classes"], self.margin_by_frequency)


class AdjustedLogits(FrequencyMargins):
    """A softmax over cosines; its logits may be adjusted (Menon et al. 2021)."""

    scale: float = Field(20.0, gt=0)  # logits are scale · cosine
    logit_adjustment: float = Field(0.0, ge=0)  # weight of log n_c in the logits while training

    @property
    def counts_of_rows(self) -> Counted:
        """Of whose examples the counts of all rows that a client holds are."""
        return "own" if self.is_centralized or self.row_access == "own" else "all"

    @property
    def needs_counts(self) -> Counted | None:
        return self.counts_of_rows if self.logit_adjustment else super().needs_counts

    @property
    def known_prior(self) -> float | None:
        """p(c | x) ∝ exp(scale · cosine + weight · log n_c) is what it learns: τ = weight / scale."""
        return self.logit_adjustment / self.scale if self.logit_adjustment else None

    def cross_entropy(
        self,
        scores: Tensor,
        label: Tensor,
        rivals: Tensor,
        info: RowInfo,
        expected: Tensor | None = None,
    ) -> Tensor:
        """Of each example: (B,). expected: (m,) the correction of a sample (FedSS, Eq. 3)."""
        correction = expected
        if self.logit_adjustment:
            known = losses.logit_adjustment(info.examples["classes"], self.logit_adjustment)
            correction = -known if expected is None else expected - known
        return losses.softmax(
            scores, label, rivals, scale=self.scale, correction=correction, margin=self.margins(info)
        )
