"""A model from its description and the shape of the data it is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from torch import nn

from spreadout.core.errors import UserError
from spreadout.core.hashing import HashFamily
from spreadout.data.columns import Dense, Lists
from spreadout.data.dataset import FederatedDataset
from spreadout.models.buckets import BucketModel, Decoding, SideBySide
from spreadout.models.embedding import EmbeddingModel, TableShape
from spreadout.models.lookup import LookupModel, Pooling
from spreadout.models.nn import encoders, images
from spreadout.models.nn.images import ImageEncoder
from spreadout.models.two_tower import Lookup, MaskedMean, SelfAttention, Towers, TwoTower

_TOWERS = ("output", "item", "similarity")
_IDLE: dict[str, tuple[str, ...]] = {
    "mlp": (*_TOWERS, "layers", "init", "width", "pooling"),
    "lookup": (*_TOWERS, "layers"),
    "mean": ("layers", "width", "pooling"),
    "attention": ("output", "width", "pooling"),
    "convnet": (*_TOWERS, "hidden", "layers", "init", "pooling"),
}


def idle_keys(encoder: str) -> tuple[str, ...]:
    """Keys of `[model]` that an encoder has no use for."""
    return _IDLE.get(encoder, (*_TOWERS, "hidden", "layers", "init", "width", "pooling"))


class ModelConfig(BaseModel):
    """`[model]`: the encoder, or the two towers. Class rows have its output's width, `dim`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    encoder: Literal["mlp", "lookup", "mean", "attention"] | ImageEncoder = "mlp"
    hidden: list[int] | None = None  # None: [128] for mlp, [1024, 1024] for lookup, [] for a tower
    dim: int = Field(64, ge=1)
    output: Literal["linear", "relu"] = "linear"  # mean: what follows its last layer
    width: int | None = Field(None, ge=1)  # of the features' rows (lookup, 512), channels (convnet, 64)
    pooling: Pooling = "mean"  # lookup: mean, sqrtn or sum of the rows
    layers: int = Field(1, ge=1)  # attention
    item: Literal["lookup", "dense"] = "lookup"  # the item tower
    similarity: Literal["cosine", "dot"] = "cosine"
    init: float = Field(0.05, gt=0)  # deviation of fresh item rows (towers) or feature rows (lookup)

    @field_validator("hidden")
    @classmethod
    def _widths(cls, widths: list[int] | None) -> list[int] | None:
        if widths and any(width < 1 for width in widths):
            raise ValueError("every width must be at least 1")
        return widths

    @model_validator(mode="after")
    def _used(self) -> ModelConfig:
        """What an encoder does not look at must not be set: it would do nothing, silently."""
        idle = idle_keys(self.encoder)
        for name in idle:
            if getattr(self, name) != type(self).model_fields[name].default:
                set_to = f"model.{name} = {getattr(self, name)!r}"
                raise ValueError(f"{set_to}: encoder = {self.encoder!r} has no use for it")
        return self

    @property
    def is_two_tower(self) -> bool:
        return self.encoder in ("mean", "attention")


@dataclass(frozen=True)
class DataShape:
    """What a model must know of its data: how many classes there are, and what inputs look like."""

    classes: int
    first_class: int
    features: int | None  # numbers in an input x; None: there is none
    window: int | None  # items in a history; None: there is none
    image: tuple[int, int, int] | None = None  # channels, height, width; None: x is no image
    bytes_as: tuple[float, float] | None = None  # scale and shift of inputs that are stored as bytes

    @classmethod
    def of(cls, data: FederatedDataset) -> DataShape:
        x, history = data.columns.get("x"), data.columns.get("history")
        features = None if x is None else x.example_bytes // 4
        window = history.width or history.longest if isinstance(history, Lists) else None
        sides = tuple(x.values.shape[1:]) if isinstance(x, Dense) else ()
        image = (sides[0], sides[1], sides[2]) if len(sides) == 3 else None
        bytes_as = None
        if isinstance(x, Dense) and x.scale is not None:
            bytes_as = x.scale, x.shift
        return cls(data.classes, data.first_class, features, window, image, bytes_as)


def build_model(config: ModelConfig, shape: DataShape, seed: int) -> EmbeddingModel:
    """Fresh, from the seed."""
    if not config.is_two_tower:
        if shape.features is None:
            raise UserError(
                f"model.encoder = {config.encoder!r}: takes the input x, and the data has histories; "
                'take encoder = "mean" or "attention"'
            )
        features, dim = shape.features, config.dim
        if config.encoder == "lookup":
            hidden = [1024, 1024] if config.hidden is None else config.hidden
            width = config.width or 512
            inputs = TableShape(features, width, sphere=False, scale=config.init)
            encoder = encoders.seeded(seed, lambda: encoders.mlp(width, hidden, dim))
            tables = {"classes": TableShape(shape.classes, dim), "inputs": inputs}
            return LookupModel(encoder, tables, pooling=config.pooling)
        if config.encoder != "mlp":
            return _image_model(config, shape, seed)
        hidden = [128] if config.hidden is None else config.hidden
        encoder = encoders.seeded(seed, lambda: encoders.mlp(features, hidden, dim))
        return EmbeddingModel(encoder, {"classes": TableShape(shape.classes, dim)})
    if shape.window is None:
        raise UserError(
            f"model.encoder = {config.encoder!r}: takes histories of items, and the data has none; "
            'movielens and interactions have them, or take encoder = "mlp"'
        )
    window = shape.window
    table = TableShape(shape.classes, config.dim, sphere=False, scale=config.init)
    return TwoTower(
        encoders.seeded(seed, lambda: _towers(config, window)),
        {"classes": table},
        similarity=config.similarity,
        first_class=shape.first_class,
    )


def _image_model(config: ModelConfig, shape: DataShape, seed: int) -> EmbeddingModel:
    if shape.image is None:
        raise UserError(
            f"model.encoder = {config.encoder!r}: takes images, and the data has "
            f'{shape.features} numbers an example; give (n, channels, height, width), or take "mlp"'
        )
    channels, high, wide = shape.image
    if high != wide:
        raise UserError(
            f"model.encoder = {config.encoder!r}: takes square images (n, channels, height, width), "
            f"not {high}x{wide} of {channels} channels"
        )
    name: ImageEncoder = config.encoder  # type: ignore[assignment]
    encoder = encoders.seeded(
        seed, lambda: images.build(name, channels, high, config.dim, config.width or 64)
    )
    return EmbeddingModel(encoder, {"classes": TableShape(shape.classes, config.dim)})


def build_bucket_model(
    config: ModelConfig, shape: DataShape, seed: int, hashes: HashFamily | None, decoding: Decoding
) -> BucketModel:
    """Networks over buckets of classes, fresh from the seed."""
    if config.encoder != "mlp" or shape.features is None:
        raise UserError(
            f"model.encoder = {config.encoder!r}: this method trains a network of its own on features; "
            'take encoder = "mlp"'
        )
    outputs = shape.classes if hashes is None else hashes.buckets
    networks = 1 if hashes is None else hashes.tables
    widths = [shape.features, *([128] if config.hidden is None else config.hidden), outputs]

    def fresh() -> SideBySide:
        return SideBySide(networks, widths)

    with torch.device("meta"):
        shapes = fresh()
    return BucketModel(
        shapes,
        {},
        fresh=lambda: encoders.seeded(seed, fresh),
        classes=shape.classes,
        hashes=hashes,
        decoding=decoding,
    )


def _towers(config: ModelConfig, window: int) -> nn.Module:
    hidden, dim = config.hidden or [], config.dim
    context: nn.Module
    if config.encoder == "mean":
        context = MaskedMean(dim, hidden, relu=config.output == "relu")
    else:
        context = SelfAttention(dim, window, config.layers)
    item: nn.Module = Lookup() if config.item == "lookup" else encoders.mlp(dim, hidden, dim)
    return Towers(context, item)
