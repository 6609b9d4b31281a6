"""Rows of a table from two servers over HTTP, of which neither learns which (`privacy/retrieval.py`)."""
