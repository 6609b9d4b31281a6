"""Puts the numbers of result files into the documents that quote them."""
