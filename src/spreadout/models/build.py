"""A model from its description and the shape of the data it is for, by the name of its encoder."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import nn

from spreadout.core.errors import UserError
from spreadout.core.hashing import HashFamily
from spreadout.core.registry import Registry, Section, unknown_name
from spreadout.data.columns import Dense, Lists
from spreadout.data.dataset import FederatedDataset
from spreadout.models.buckets import BucketModel, Decoding, SideBySide
from spreadout.models.embedding import EmbeddingModel, TableShape
from spreadout.models.lookup import Pooling
from spreadout.models.nn.encoders import seeded
from spreadout.models.nn.scaling import Standardized


class ModelConfig(Section):
    """`[model]`: the encoder, or the two towers. Class rows have its output's width, `dim`.

    >>> import spreadout as so
    >>> so.Experiment.of({"model": {"encoder": "mlp", "hidden": [32], "dim": 16}}).model.dim
    16
    """

    encoder: str = "mlp"
    hidden: list[int] | None = None  # None: [128] for mlp, [1024, 1024] for lookup, [] for a tower
    dim: int = Field(64, ge=1)
    output: Literal["linear", "relu"] = "linear"  # mean: what follows its last layer
    width: int | None = Field(None, ge=1)  # of the features' rows (lookup, 512), channels (convnet, 64)
    pooling: Pooling = "mean"  # lookup: mean, sqrtn or sum of the rows
    layers: int = Field(1, ge=1)  # attention
    norm: Literal["group", "batch"] = "group"  # of images; batch: over a whole cohort, in simulations
    item: Literal["lookup", "dense"] = "lookup"  # the item tower
    similarity: Literal["cosine", "dot"] = "cosine"
    # mlp: features centred, at deviation 1; roots: those with long tails after a root that shortens them
    input_scaling: Literal["none", "standard", "roots"] = "none"
    init: float = Field(0.05, gt=0)  # deviation of fresh item rows (towers) or feature rows (lookup)

    @field_validator("encoder")
    @classmethod
    def _is_registered(cls, name: str) -> str:
        if name not in ENCODERS:
            raise unknown_name(name, ENCODERS)
        return name

    @field_validator("hidden")
    @classmethod
    def _widths(cls, widths: list[int] | None) -> list[int] | None:
        if widths and any(width < 1 for width in widths):
            raise ValueError("every width must be at least 1")
        return widths

    @property
    def features_are_rows(self) -> bool:
        """Whether the encoder looks features up as rows of a table."""
        return ENCODERS[self.encoder].features_are_rows

    @model_validator(mode="after")
    def _used(self) -> ModelConfig:
        """Refuse keys that the encoder does not read: they would have no effect.

        Where none is named, one that reads them may still be chosen for the data.
        """
        named = "encoder" in self.model_fields_set
        if all(self.idle(encoder) for encoder in ([self.encoder] if named else ENCODERS)):
            raise ValueError(self.idle(self.encoder))
        return self

    def idle(self, encoder: str) -> str:
        """Which of its keys would have no effect with this encoder, as an error; empty: none."""
        for name in idle_keys(encoder):
            if getattr(self, name) != type(self).model_fields[name].default:
                set_to = f"model.{name} = {getattr(self, name)!r}"
                return f"{set_to}: encoder = {encoder!r} has no use for it"
        return ""


@dataclass(frozen=True)
class DataShape:
    """What a model must know of its data: how many classes there are, and what inputs look like.

    >>> import spreadout as so
    >>> train = so.FederatedDataset.from_arrays([[0.0, 1.0], [1.0, 0.0]], [0, 1], client=[0, 1])
    >>> shape = so.DataShape.of(train)
    >>> shape.classes, shape.features
    (2, 2)
    """

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


UNFIT_LAYERS = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)
Build = Callable[[DataShape, ModelConfig], nn.Module]
BuildModel = Callable[[DataShape, ModelConfig, int], EmbeddingModel]
OPTIONAL = frozenset(ModelConfig.model_fields) - {"encoder", "dim"}


class Encoder:
    """Builds the model with an encoder; `uses` are the keys of `[model]` it reads."""

    def __init__(self, build: BuildModel, uses: frozenset[str], *, features_are_rows: bool) -> None:
        self.uses, self.features_are_rows, self._build = uses, features_are_rows, build
        functools.update_wrapper(self, build)  # the registry compares the modules parts come from

    def __call__(self, shape: DataShape, config: ModelConfig, seed: int) -> EmbeddingModel:
        return self._build(shape, config, seed)


ENCODERS: Registry[Encoder] = Registry("encoder")


def register_encoder(name: str, *, uses: Iterable[str] = ()) -> Callable[[Build], Build]:
    """A decorator of a function that makes an encoder of the input x; configs then know it by name.

    The module maps (B, …) to (B, `config.dim`) and is built under the run's seed. `uses` are the keys
    of `[model]` it reads besides `dim`; the others may not be set with it.

    >>> import torch
    >>> import spreadout as so
    >>> @so.register_encoder("one-layer")
    ... def one_layer(shape, config):
    ...     return torch.nn.Linear(shape.features, config.dim)
    >>> result = so.run(so.Experiment.of({"rounds": 2, "model": {"encoder": "one-layer", "dim": 8}}))
    >>> sorted(result.state.dense)
    ['bias', 'weight']
    """
    add = register_model(name, uses=uses)

    def register(build: Build) -> Build:
        @functools.wraps(build)
        def model(shape: DataShape, config: ModelConfig, seed: int) -> EmbeddingModel:
            features_of(shape, config)
            encoder = seeded(seed, lambda: build(shape, config))
            _refuse_misfits(encoder, shape, config)
            return EmbeddingModel(encoder, {"classes": TableShape(shape.classes, config.dim)})

        add(model)
        return build

    return register


def register_model(
    name: str, *, uses: Iterable[str] = (), features_are_rows: bool = False
) -> Callable[[BuildModel], BuildModel]:
    """The same for encoders with tables or inputs of their own: the function builds the whole model.

    features_are_rows: whether sparse features name rows of the table `inputs`, as in a lookup.
    """
    keys = frozenset(uses)
    if keys - OPTIONAL:
        known = ", ".join(key for key in ModelConfig.model_fields if key in OPTIONAL)
        raise UserError(f"encoder {name!r}: uses {min(keys - OPTIONAL)!r}; keys of [model] are {known}")

    def register(build: BuildModel) -> BuildModel:
        ENCODERS.add(name, Encoder(build, keys, features_are_rows=features_are_rows))
        return build

    return register


def idle_keys(encoder: str) -> tuple[str, ...]:
    """Keys of `[model]` that an encoder has no use for."""
    if encoder not in ENCODERS:
        return ()
    used = ENCODERS[encoder].uses
    return tuple(key for key in ModelConfig.model_fields if key in OPTIONAL - used)


def features_of(shape: DataShape, config: ModelConfig) -> int:
    """How many numbers the input x has; an error where the data has no such input."""
    if shape.features is None:
        raise UserError(
            f"model.encoder = {config.encoder!r}: takes the input x, and the data has histories; "
            'take encoder = "mean" or "attention"'
        )
    return shape.features


def _refuse_misfits(encoder: nn.Module, shape: DataShape, config: ModelConfig) -> None:
    """Layers that do not average over clients, and an output that is no (B, dim)."""
    name = f"model.encoder = {config.encoder!r}"
    for layer in encoder.modules():
        if isinstance(layer, UNFIT_LAYERS):
            raise UserError(
                f"{name}: has a {type(layer).__name__}, whose batch statistics or random draws do not "
                "average over clients; use GroupNorm, and clients.input_dropout"
            )
    try:
        with torch.no_grad(), unmoved_buffers(name, encoder):
            one = torch.ones(1, *(shape.image or (features_of(shape, config),)))
            encoder(torch.cat([one, one]))  # statistics of a batch need two
            found = tuple(encoder(one).shape)
    except (RuntimeError, ValueError, TypeError):
        return  # inputs of another form, such as sequences: the data will show
    if found != (1, config.dim):
        raise UserError(f"{name}: gives shape {found} for one example; it must give (1, {config.dim})")


@contextmanager
def unmoved_buffers(name: str, encoder: nn.Module) -> Iterator[None]:
    """While an encoder is tried on an input: an error if it keeps something of that.

    What it keeps of other inputs only is thrown away in training (`models/nn/untouched.py`).
    """
    before = {buffer: value.clone() for buffer, value in encoder.named_buffers()}
    yield
    for buffer, value in encoder.named_buffers():
        if buffer not in before or not torch.equal(value, before[buffer]):
            raise UserError(
                f"{name}: its buffer {buffer} changes with the inputs, and what clients leave there is "
                "neither averaged nor noised; keep nothing of the inputs in the encoder"
            )


def with_scaling(encoder: nn.Module, shape: DataShape, config: ModelConfig) -> nn.Module:
    """The encoder, after its features were brought to one scale where the config says so."""
    if config.input_scaling == "none":
        return encoder
    roots = config.input_scaling == "roots"
    return nn.Sequential(Standardized(features_of(shape, config), roots=roots), encoder)


def build_model(config: ModelConfig, shape: DataShape, seed: int) -> EmbeddingModel:
    """Fresh, from the seed."""
    return ENCODERS[config.encoder](shape, config, seed)


def build_bucket_model(
    config: ModelConfig,
    shape: DataShape,
    seed: int,
    hashes: HashFamily | None,
    decoding: Decoding,
    rare: bool,
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

    def fresh() -> nn.Module:
        return with_scaling(SideBySide(networks, widths, rare), shape, config)

    with torch.device("meta"):
        shapes = fresh()
    return BucketModel(
        shapes,
        {},
        fresh=lambda: seeded(seed, fresh),
        classes=shape.classes,
        hashes=hashes,
        decoding=decoding,
    )
