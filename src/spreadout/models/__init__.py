"""Encoders and the row tables beside them."""

from spreadout.models import encoders

__all__ = ["encoders"]  # read first: a config may name them wherever models are known
