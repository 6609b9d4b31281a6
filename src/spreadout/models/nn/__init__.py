"""Layers: dense, convolutional, unit vectors, and gathers with gradients by hand."""
