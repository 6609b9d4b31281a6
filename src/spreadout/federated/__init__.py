"""The round: rows, sub-models, local training, checks, merging, the server."""
