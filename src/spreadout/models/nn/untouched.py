"""An encoder's output for given weights, with nothing left in the encoder of what it was given."""

from __future__ import annotations

from itertools import chain

from torch import Tensor, nn
from torch.func import functional_call

from spreadout.core.errors import UserError
from spreadout.core.types import Tensors


def output_of(encoder: nn.Module, dense: Tensors, inputs: tuple[Tensor | None, ...]) -> Tensor:
    """What the encoder makes of inputs with these weights.

    Buffers and frozen parameters do not travel, and no noise is added to them. So the encoder gets
    copies: if it writes to them, whatever for, that is gone with the call. A copy costs no more than to
    read these numbers once more, and encoders without any cost nothing.
    """
    own = chain(encoder.named_parameters(), encoder.named_buffers())
    copies = {name: value.detach().clone() for name, value in own if name not in dense}
    try:
        found: Tensor = functional_call(encoder, {**dense, **copies}, inputs)
    except RuntimeError as error:
        if "vmap: inplace" not in str(error):
            raise
        raise UserError(
            "encoder: writes what it made of its inputs into a tensor of its own, where clients that "
            "train at once would mix; keep nothing of the inputs in the encoder"
        ) from None
    return found
