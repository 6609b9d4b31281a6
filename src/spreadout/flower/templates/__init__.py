"""The files of a fresh Flower project."""
