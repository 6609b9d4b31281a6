"""Encoders and their row tables."""

from spreadout.models import encoders

__all__ = ["encoders"]  # imported first, so that a config may name them
