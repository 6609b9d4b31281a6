"""Data sets by the name a config gives them."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field

from spreadout.data.sources.arrays import Npz
from spreadout.data.sources.base import Source
from spreadout.data.sources.cifar import Cifar
from spreadout.data.sources.digits import Digits
from spreadout.data.sources.idx import Idx
from spreadout.data.sources.image_folder import ImageFolder
from spreadout.data.sources.interactions import Interactions
from spreadout.data.sources.libsvm import LibSVM
from spreadout.data.sources.movielens import MovieLens
from spreadout.data.sources.mulan_arff import MulanArff
from spreadout.data.sources.omniglot import Omniglot
from spreadout.data.sources.products import OnlineProducts
from spreadout.data.sources.synthetic import Synthetic
from spreadout.data.sources.xc_text import XCText

SOURCES: tuple[type[Source], ...] = (
    Digits,
    MovieLens,
    MulanArff,
    XCText,
    LibSVM,
    Cifar,
    Idx,
    Omniglot,
    OnlineProducts,
    ImageFolder,
    Interactions,
    Npz,
    Synthetic,
)


def names_of(source: type[Source]) -> tuple[str, ...]:
    """The names a config may call a source by."""
    return get_args(source.model_fields["name"].annotation)


def source_of(name: str) -> type[Source]:
    """The source of this name; of an unknown one, the plainest."""
    return next((source for source in SOURCES if name in names_of(source)), Digits)


def by_name(value: Any) -> Any:
    """A bare name stands for a section with nothing else in it."""
    return {"name": value} if isinstance(value, str) else value


AnySource = Annotated[
    Annotated[
        Digits
        | MovieLens
        | MulanArff
        | XCText
        | LibSVM
        | Cifar
        | Idx
        | Omniglot
        | OnlineProducts
        | ImageFolder
        | Interactions
        | Npz
        | Synthetic,
        Field(discriminator="name"),
    ],
    BeforeValidator(by_name),
]
