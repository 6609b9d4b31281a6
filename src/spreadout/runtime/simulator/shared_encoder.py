"""One step of clients whose inputs are images: the encoder is called once, on the images of all.

In a fused step all clients have the same weights, and the encoders of `models/nn/images.py` look at
every image alone, or at all of a cohort (`CohortNorm`). So what the encoder puts out for a cohort is one
call on one batch, as in a plain training loop; `torch.vmap` of convolutions and norms computes the same
with more kernels and copies. Slots that no example fills are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from spreadout.core.types import Batch, Params, Tensors
from spreadout.federated.federation import Federation
from spreadout.models.embedding import EmbeddingModel
from spreadout.models.nn.cohort_norm import over_cohort
from spreadout.models.nn.images import ImageEncoder
from spreadout.models.nn.unit import unit
from spreadout.models.nn.untouched import output_of


class Encoded(EmbeddingModel):
    """The same model where x has gone through the encoder already."""

    def embed(self, params: Params, batch: Batch) -> Tensor:
        """(B, dim)"""
        return unit(batch["x"])


class Shared(NamedTuple):
    """What one call of the encoder made of a cohort."""

    model: EmbeddingModel  # of encoded images
    outputs: Tensors  # x: (k, B, dim)
    statistics: Tensors  # running ones of its norms, moved by the cohort


def can_share(federation: Federation) -> bool:
    """Whether clients of one step can share one call of the encoder."""
    model = federation.model
    if type(model) is not EmbeddingModel or federation.method.loss_reads_params:
        return False
    return isinstance(model.encoder, ImageEncoder) and model.inputs == ("x",)


def shared_outputs(
    federation: Federation,
    dense: Tensors,
    x: Tensor,
    filled: Tensor,
) -> Shared:
    """The encoder called once, on the images of all clients.

    x: (k, B, channels, height, width); filled: (k, B) bool, slots that hold an example, on the host.
    """
    f, (k, width) = federation, x.shape[:2]
    images, slots = x.flatten(0, 1), None
    if not bool(filled.all()):
        slots = filled.flatten().nonzero()[:, 0].to(x.device)
        images = images[slots]
    if x.is_cuda:  # the form in which a GPU's fast convolutions take images
        images = images.contiguous(memory_format=torch.channels_last)
    # Each weight is used once: no need to keep those that were made bf16, least of all in a graph.
    low = torch.autocast(f.device.type, torch.bfloat16, enabled=f.bf16, cache_enabled=False)
    with low, over_cohort(f.model.encoder, dense) as (used, statistics):
        found = output_of(f.model.encoder, used, (images,)).float()
    if slots is not None:
        # Ones, not zeros: a vector without a direction has no gradient, and a loss masks both alike.
        found = found.new_ones(k * width, found.shape[-1]).index_put((slots,), found)
    encoded = Encoded(f.model.encoder, f.model.tables, f.model.inputs, f.model.first_class)
    return Shared(encoded, {"x": found.view(k, width, -1)}, statistics)
