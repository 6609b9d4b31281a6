"""Data sets by the name a config gives them. Importing a source's module registers it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

# In the order in which they are listed to people.
# isort: off
from spreadout.data.sources import (
    digits,
    arrays,
    table,
    texts,
    image_folder,
    interactions,
    movielens,
    mulan_arff,
    xc_text,
    libsvm,
    cifar,
    idx,
    omniglot,
    products,
    synthetic,
    python,
)

# isort: on
from spreadout.data.sources.base import SOURCES, Source, register_source

AnySource = Annotated[SerializeAsAny[Source], BeforeValidator(Source.choose)]
"""`data.source` of a config: whichever registered source it names."""

__all__ = [
    "SOURCES",
    "AnySource",
    "Source",
    "arrays",
    "cifar",
    "digits",
    "idx",
    "image_folder",
    "interactions",
    "libsvm",
    "movielens",
    "mulan_arff",
    "omniglot",
    "products",
    "python",
    "register_source",
    "synthetic",
    "table",
    "texts",
    "xc_text",
]
