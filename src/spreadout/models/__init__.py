"""Encoders and the row tables beside them."""
