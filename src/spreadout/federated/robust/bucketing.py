"""Rules that may average some clients before they look: the base of those that drop the odd one out."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.types import Tensors
from spreadout.federated.robust.base import RobustRule
from spreadout.federated.robust.updates import Updates, bucketed


class BucketingRule(RobustRule):
    """With `bucket` above 1, the dense parts of so many clients, drawn at random, count as one."""

    bucket: int = Field(1, ge=1)

    def dense_change(self, updates: Updates, memory: Tensors, seed: int) -> Tensor:
        order = randomness.generator(seed, "buckets").permutation(len(updates.clients))
        drawn = torch.from_numpy(order).to(updates.clients.device)
        return self.centre(bucketed(updates, self.bucket, drawn).dense_groups())[0]
