"""An encoder's output for given weights, with nothing left in the encoder of what it was given."""

from __future__ import annotations

from itertools import chain

from torch import Tensor, nn
from torch.func import functional_call

from spreadout.core.errors import UserError
from spreadout.core.types import Tensors

REMEDY = "keep nothing of the inputs in the encoder"


def output_of(encoder: nn.Module, dense: Tensors, inputs: tuple[Tensor | None, ...]) -> Tensor:
    """What the encoder makes of inputs with these weights.

    Buffers and frozen parameters do not travel, and no noise is added to them. So the encoder gets
    copies: if it writes to them, whatever for, that is gone with the call. A copy costs no more than to
    read these numbers once more, and encoders without any cost nothing.
    """
    held, given = _tensors_in(encoder), dense
    if held != (len(dense), 0):
        own = chain(encoder.named_parameters(), encoder.named_buffers())
        given = {**{name: value.detach().clone() for name, value in own if name not in dense}, **dense}
    try:
        found: Tensor = functional_call(encoder, given, inputs)
    except RuntimeError as error:
        if "vmap: inplace" not in str(error):
            raise
        raise UserError(
            "encoder: writes what it made of its inputs into a tensor of its own, where clients that "
            f"train at once would mix; {REMEDY}"
        ) from None
    if _tensors_in(encoder) != held:
        raise UserError(f"encoder: gets another buffer or parameter while it computes; {REMEDY}")
    return found


def _tensors_in(encoder: nn.Module) -> tuple[int, int]:
    """How many parameters and buffers it has; those that are shared count wherever they are used."""
    parameters = buffers = 0
    for module in encoder.modules():
        parameters += len(module._parameters)
        buffers += len(module._buffers)
    return parameters, buffers
