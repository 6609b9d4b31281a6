"""The base of rules that take the odd one out for hostile: averaging before they look, and of what."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.types import Tensors
from spreadout.federated.robust.base import RobustRule
from spreadout.federated.robust.groups import Groups
from spreadout.federated.robust.updates import Updates, bucketed


class OddOneOut(RobustRule):
    """With `bucket` above 1, the dense parts of so many clients, drawn at random, count as one.

    Clients that hold a row need not want the same of it: for some it is the right class, for others a
    negative. With `rows = false` rows are averaged, within their limit.
    """

    bucket: int = Field(1, ge=1)
    rows: bool = True

    def row_centre(self, groups: Groups) -> Tensor:
        return self.centre(groups) if self.rows else groups.mean(groups.weight)

    def dense_change(self, updates: Updates, memory: Tensors, seed: int) -> Tensor:
        order = randomness.generator(seed, "buckets").permutation(len(updates.clients))
        drawn = torch.from_numpy(order).to(updates.clients.device)
        return self.centre(bucketed(updates, self.bucket, drawn).dense_groups())[0]
