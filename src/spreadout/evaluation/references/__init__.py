"""What to compare a model with: trivial and cheap predictions from the training data in one place.

>>> import spreadout as so
>>> from spreadout.evaluation.references import references_of
>>> digits = so.load_data(so.DataConfig(source="digits"))
>>> found = references_of(digits, ["P@1"])
>>> list(found), found["most frequent"].is_trivial, found["ridge"].metrics["P@1"] > 90
(['most frequent', 'ridge', 'nearest neighbours'], True, True)
"""

from spreadout.evaluation.references.compute import references_of, why_none
from spreadout.evaluation.references.copies import Copies
from spreadout.evaluation.references.reference import POPULARITY, Reference, best_central
from spreadout.evaluation.references.remembered import ReferenceSet, remembered_references

__all__ = [
    "POPULARITY",
    "Copies",
    "Reference",
    "ReferenceSet",
    "best_central",
    "references_of",
    "remembered_references",
    "why_none",
]
