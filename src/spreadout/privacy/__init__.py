"""Clipping, noise, and what they add up to."""
