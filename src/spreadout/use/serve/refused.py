"""A request that is not answered."""

from __future__ import annotations


class Refused(Exception):
    """A status of HTTP, and a line for whoever sent the request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
