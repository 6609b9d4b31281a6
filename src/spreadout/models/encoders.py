"""The encoders that a config may name. Importing this module registers them."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from spreadout.core.errors import UserError
from spreadout.models.build import (
    DataShape,
    ModelConfig,
    features_of,
    register_encoder,
    register_model,
    with_scaling,
)
from spreadout.models.embedding import EmbeddingModel, TableShape
from spreadout.models.lookup import LookupModel
from spreadout.models.nn.encoders import mlp, seeded
from spreadout.models.nn.images import NORMS, ConvNet, ResNet, mobilenet_v3_large, mobilenet_v3_small
from spreadout.models.two_tower import Lookup, MaskedMean, SelfAttention, Towers, TwoTower


@register_encoder("mlp", uses=["hidden", "input_scaling"])
def _mlp(shape: DataShape, config: ModelConfig) -> nn.Module:
    hidden = [128] if config.hidden is None else config.hidden
    return with_scaling(mlp(features_of(shape, config), hidden, config.dim), shape, config)


@register_model("lookup", uses=["hidden", "width", "pooling", "init"], features_are_rows=True)
def _lookup(shape: DataShape, config: ModelConfig, seed: int) -> EmbeddingModel:
    """Rows of features, pooled: a second table besides that of the classes."""
    hidden = [1024, 1024] if config.hidden is None else config.hidden
    width = config.width or 512
    inputs = TableShape(features_of(shape, config), width, sphere=False, scale=config.init)
    tables = {"classes": TableShape(shape.classes, config.dim), "inputs": inputs}
    encoder = seeded(seed, lambda: mlp(width, hidden, config.dim))
    return LookupModel(encoder, tables, pooling=config.pooling)


@register_model("mean", uses=["hidden", "output", "item", "similarity", "init"])
def _mean(shape: DataShape, config: ModelConfig, seed: int) -> EmbeddingModel:
    def context(window: int) -> nn.Module:
        return MaskedMean(config.dim, config.hidden or [], relu=config.output == "relu")

    return _two_tower(shape, config, seed, context)


@register_model("attention", uses=["hidden", "layers", "item", "similarity", "init"])
def _attention(shape: DataShape, config: ModelConfig, seed: int) -> EmbeddingModel:
    def context(window: int) -> nn.Module:
        return SelfAttention(config.dim, window, config.layers)

    return _two_tower(shape, config, seed, context)


@register_encoder("convnet", uses=["width", "norm"])
def _convnet(shape: DataShape, config: ModelConfig) -> nn.Module:
    channels, _ = _square(shape, config)
    return ConvNet(channels, config.width or 64, config.dim, NORMS[config.norm])


@register_encoder("resnet56", uses=["norm"])
@register_encoder("resnet32", uses=["norm"])
@register_encoder("resnet20", uses=["norm"])
@register_encoder("resnet8", uses=["norm"])
def _resnet(shape: DataShape, config: ModelConfig) -> nn.Module:
    channels, _ = _square(shape, config)
    depth = int(config.encoder.removeprefix("resnet"))
    return ResNet(depth, channels, config.dim, NORMS[config.norm])


@register_encoder("mobilenet_v3_small", uses=["norm"])
def _mobilenet(shape: DataShape, config: ModelConfig) -> nn.Module:
    return mobilenet_v3_small(*_square(shape, config), config.dim, NORMS[config.norm])


@register_encoder("mobilenet_v3_large", uses=["norm"])
def _mobilenet_large(shape: DataShape, config: ModelConfig) -> nn.Module:
    return mobilenet_v3_large(*_square(shape, config), config.dim, NORMS[config.norm])


def _square(shape: DataShape, config: ModelConfig) -> tuple[int, int]:
    """Channels and side of square images; an error where the data has none."""
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
    return channels, high


def _two_tower(
    shape: DataShape, config: ModelConfig, seed: int, context: Callable[[int], nn.Module]
) -> EmbeddingModel:
    """A tower of contexts, one of items, and the table of items they share."""
    if shape.window is None:
        raise UserError(
            f"model.encoder = {config.encoder!r}: takes histories of items, and the data has none; "
            'movielens and interactions have them, or take encoder = "mlp"'
        )
    dim, window = config.dim, shape.window

    def towers() -> nn.Module:
        before = context(window)  # first, so that it draws its weights first
        item = Lookup() if config.item == "lookup" else mlp(dim, config.hidden or [], dim)
        return Towers(before, item)

    table = TableShape(shape.classes, dim, sphere=False, scale=config.init)
    return TwoTower(
        seeded(seed, towers),
        {"classes": table},
        similarity=config.similarity,
        first_class=shape.first_class,
    )
