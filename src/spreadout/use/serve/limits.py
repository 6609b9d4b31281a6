"""How much one request, and all of them together, may ask of a server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What is more is refused before anything is computed."""

    body: int = 8 << 20  # bytes of a request
    inputs: int = 256  # in a request
    top: int = 100  # classes for an input
    batch: int = 256  # inputs that the model is given at once
    waiting: int = 4096  # inputs that wait for the model, of all requests
    seconds: float = 10.0  # in which the body of a request must have come
    connections: int = 512  # at a time
