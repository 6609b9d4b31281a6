"""Encoders by name: what they look at, what they refuse, and that a seed makes the same one again."""

import hashlib

import pytest
import torch
from torch import nn

import spreadout as so
from spreadout.models.build import ENCODERS, DataShape, ModelConfig, build_model, idle_keys
from spreadout.models.two_tower import MaskedMean

NUMBERS = DataShape(classes=4, first_class=0, features=12, window=None)
IMAGES = DataShape(classes=4, first_class=0, features=3 * 16 * 16, window=None, image=(3, 16, 16))
HISTORIES = DataShape(classes=4, first_class=1, features=None, window=5)


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENCODERS, "_parts", dict(ENCODERS._parts))


def shape_for(name: str) -> DataShape:
    return HISTORIES if name in ("mean", "attention") else IMAGES


def fingerprint(name: str, seed: int) -> str:
    found = hashlib.sha256()
    for key, value in (
        build_model(ModelConfig(encoder=name), shape_for(name), seed).encoder.state_dict().items()
    ):
        found.update(key.encode() + value.numpy().tobytes())
    return found.hexdigest()


@pytest.mark.parametrize(
    "name", ["mlp", "lookup", "mean", "attention", "convnet", "resnet8", "mobilenet_v3_small"]
)
def test_a_seed_makes_the_same_encoder_and_another_another(name: str) -> None:
    before = torch.random.get_rng_state()
    assert fingerprint(name, 3) == fingerprint(name, 3)
    assert torch.equal(torch.random.get_rng_state(), before)
    if name != "mean":  # without hidden layers it has one layer of its own, drawn or not
        assert fingerprint(name, 3) != fingerprint(name, 4)


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("mlp", {"hidden", "input_scaling"}),
        ("lookup", {"hidden", "width", "pooling", "init"}),
        ("mean", {"hidden", "output", "item", "similarity", "init"}),
        ("attention", {"hidden", "layers", "item", "similarity", "init"}),
        ("convnet", {"width", "norm"}),
        ("resnet20", {"norm"}),
        ("mobilenet_v3_small", {"norm"}),
        ("mobilenet_v3_large", {"norm"}),
    ],
)
def test_keys_that_an_encoder_has_no_use_for_are_refused(name: str, used: set[str]) -> None:
    changed = {
        "hidden": [3], "output": "relu", "width": 8, "pooling": "sum", "layers": 2, "item": "dense",
        "similarity": "dot", "init": 0.5, "input_scaling": "standard", "norm": "batch",
    }  # fmt: skip
    assert set(idle_keys(name)) == set(changed) - used
    for key, value in changed.items():
        if key in used:
            ModelConfig.model_validate({"encoder": name, key: value})
        else:
            with pytest.raises(
                ValueError, match=f"model.{key} = .*: encoder = '{name}' has no use for it"
            ):
                ModelConfig.model_validate({"encoder": name, key: value})


def test_an_unknown_encoder_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        so.UserError,
        match=r"model.encoder = 'resnet9': unknown; did you mean 'resnet8'\? Known: mlp, lookup",
    ):
        so.Experiment.of({"model": {"encoder": "resnet9"}})


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("mlp", HISTORIES, "takes the input x, and the data has histories"),
        ("lookup", HISTORIES, "takes the input x, and the data has histories"),
        ("resnet8", HISTORIES, "takes the input x, and the data has histories"),
        ("mean", NUMBERS, "takes histories of items, and the data has none"),
        ("convnet", NUMBERS, "takes images, and the data has 12 numbers an example"),
        (
            "convnet",
            DataShape(4, 0, 24, None, (1, 4, 6)),
            "takes square images .* not 4x6 of 1 channels",
        ),
    ],
)
def test_an_encoder_that_does_not_fit_the_data_says_so(name: str, shape: DataShape, says: str) -> None:
    with pytest.raises(so.UserError, match=f"model.encoder = '{name}': {says}"):
        build_model(ModelConfig(encoder=name), shape, 0)


def test_an_encoder_of_ones_own_is_built_as_it_says() -> None:
    @so.register_encoder("wide", uses=["width"])
    def wide(shape: so.DataShape, config: so.ModelConfig) -> nn.Module:
        return nn.Sequential(
            nn.Linear(shape.features or 0, config.width or 9), nn.Linear(config.width or 9, config.dim)
        )

    model = build_model(ModelConfig(encoder="wide", width=7, dim=5), NUMBERS, seed=2)
    assert [tuple(p.shape) for p in model.encoder.parameters()] == [(7, 12), (7,), (5, 7), (5,)]
    assert model.tables["classes"].dim == 5
    assert fingerprint("wide", 0) != fingerprint("wide", 1)


@pytest.mark.parametrize(
    ("encoder", "says"),
    [
        (lambda shape, config: nn.Linear(12, config.dim + 2), r"gives shape \(1, 66\) for one example; it must give \(1, 64\)"),
        (lambda shape, config: nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64)), "has a BatchNorm1d, whose batch statistics"),
        (lambda shape, config: nn.Sequential(nn.Linear(12, 64), nn.Dropout()), "has a Dropout, whose batch statistics"),
    ],
)  # fmt: skip
def test_an_encoder_that_cannot_be_trained_by_many_is_refused(encoder: object, says: str) -> None:
    so.register_encoder("odd")(encoder)  # type: ignore[arg-type]
    with pytest.raises(so.UserError, match=f"model.encoder = 'odd': {says}"):
        build_model(ModelConfig(encoder="odd"), NUMBERS, 0)


def test_names_and_keys_are_checked_when_an_encoder_is_registered() -> None:
    with pytest.raises(
        so.UserError, match=r"encoder 'mine': uses 'depth'; keys of \[model\] are hidden, output"
    ):
        so.register_encoder("mine", uses=["depth"])

    def mine(shape: so.DataShape, config: so.ModelConfig) -> nn.Module:
        return nn.Linear(12, config.dim)

    with pytest.raises(
        so.UserError,
        match=r"encoder 'mlp': spreadout.models.encoders._mlp has that name; choose another",
    ):
        so.register_encoder("mlp")(mine)


def test_no_unit_of_the_context_tower_is_dead_at_the_start() -> None:
    """Rows start short (0.05): a random bias would decide for all inputs at once which units fire."""
    for seed in range(5):
        torch.manual_seed(seed)
        tower = MaskedMean(16, [], relu=True)
        rows = 0.05 * torch.randn(2000, 10, 16)
        fired = (tower(rows, torch.ones(2000, 10)) > 0).any(0)
        assert fired.all()
