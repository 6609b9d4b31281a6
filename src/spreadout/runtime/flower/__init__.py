"""Rounds on real clients: a Flower app whose server is the usual training loop and whose nodes train
their clients with the usual engine. Nothing outside this folder imports Flower."""
