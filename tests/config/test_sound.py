"""Nothing but data and method named: every method trains on every kind of data that it can read."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import tomli_w
import torch

import spreadout as so
from command import invoke
from kinds import KINDS, written
from spreadout.config import sound
from spreadout.config.keys import DECIDED, has, is_open, value_of
from spreadout.data.columns import Column
from spreadout.data.handedness import Handedness, handedness
from spreadout.data.moments import are_numbers
from spreadout.flower.project import write_project
from spreadout.methods import METHODS
from spreadout.runs.compare import Suite
from spreadout.runs.folder import RunFolder
from toys import tagged

UNREADABLE = {"histories": set(METHODS) - {"dual_encoder"}}  # their models take an input x
PAIRS = [(kind, name) for kind in KINDS for name in METHODS if name not in UNREADABLE.get(kind, ())]


@pytest.fixture(scope="session")
def data_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    return {kind: written(kind, tmp_path_factory.mktemp("data")) for kind in KINDS}


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_data_and_method_are_enough(
    kind: str,
    name: str,
    data_of: dict[str, dict[str, object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked, out, again = (tmp_path / place for place in ("asked.toml", "run", "again"))
    asked.write_text(tomli_w.dumps({"data": data_of[kind], "method": {"name": name}}))
    assert invoke(monkeypatch, "run", str(asked), "rounds=2", "--out", str(out), "--device", "cpu") == 0
    complete = so.Experiment.load(out / "config.toml")
    assert "model.encoder" in (complete.chosen or [])
    (said,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("chosen from"))
    assert f"encoder = {complete.model.encoder}, " in said
    assert not [key for key in complete.chosen or [] if is_open(complete, key)]
    # The config says all: it is left as it is, stopped and resumed, and gives the same run.
    with pytest.raises(so.Interrupted):
        so.run(out / "config.toml", out=again, device="cpu", stop=lambda: True)
    so.resume(again, device="cpu")
    assert (again / "config.toml").read_bytes() == (out / "config.toml").read_bytes()
    assert _scores(again) == _scores(out)


def _scores(folder: Path) -> list[dict[str, object]]:
    return [
        {name: value for name, value in record.items() if name != "seconds"}
        for record in RunFolder(folder).history()
    ]


ROOT = Path(__file__).resolve().parents[2]


PUBLISHED = [
    path for path in sorted((ROOT / "configs").glob("*/*.toml"))
    if "the rest is chosen from the data" not in path.read_text().partition("\n")[0]
]  # fmt: skip


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_configs_of_published_results_choose_nothing(path: Path) -> None:
    for experiment in Suite.load([str(path)], None).variants.values():
        assert experiment.chosen == []
        assert sound.settled(experiment) is experiment


@pytest.mark.parametrize("preset", ["digits-fedaws", "digits-demo"])
def test_presets_say_all_that_matters(preset: str) -> None:
    for experiment in Suite.load([preset], None).variants.values():
        complete, _ = sound.prepared(experiment)
        assert complete.chosen == []


def test_what_is_set_stays_and_auto_is_left_out() -> None:
    values = {"model": {"encoder": "auto"}, "clients": {"batch": 7, "local_steps": 3}, "rounds": "auto"}
    experiment = so.Experiment.of(values, overrides=["eval.every=auto", "method.name=fedss"])
    assert "rounds" not in experiment.model_fields_set
    complete, _ = sound.prepared(experiment)
    assert (complete.clients.batch, complete.clients.local_steps) == (7, 3)
    assert complete.method.model_dump()["negatives"] == 5  # of ten classes
    chosen = set(complete.chosen or [])
    assert {"model.encoder", "rounds", "eval.every", "method.negatives"} <= chosen
    assert chosen.isdisjoint({"clients.batch", "clients.local_steps", "clients.local_epochs"})
    assert sound.sound(complete, sound.prepared(complete)[1]) is complete
    kept = so.Experiment.of({"method": {"name": "fedss", "prior": "auto"}})
    assert kept.method.prior == "auto"  # a value of its own
    with pytest.raises(so.UserError, match="seed = 'auto': must be a whole number"):
        so.Experiment.of({"seed": "auto"})


RATES = [
    "clients.lr",
    "clients.row_lr",
    "clients.local_steps",
    "server.optimizer",
    "server.lr",
    "server.eps",
]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], [0.1, 1.0, 1, "adam", 0.003, 1e-8]),
        (["clients.lr=auto", "server.lr=auto"], [0.1, 1.0, 1, "adam", 0.003, 1e-8]),
        (["clients.lr=0.02"], [0.02, 1.0, 1, "adam", 0.003, 1e-8]),  # one rate, nothing else
        (["clients.row_lr=0.3", "clients.local_steps=1"], [0.1, 0.3, 1, "adam", 0.003, 1e-8]),
        (["clients.local_steps=4"], [0.1, None, 4, "adam", 0.003, 1e-8]),  # rates are for one step
        (["clients.optimizer=adam"], [0.1, None, None, "adam", 0.003, 1e-8]),
        (["server.optimizer=adam"], [0.1, 1.0, 1, "adam", 0.003, 1e-8]),
        (["server.optimizer=adam", "server.lr=0.01"], [0.1, 1.0, 1, "adam", 0.01, 1e-8]),
        (["server.optimizer=sgd"], [0.1, 1.0, 1, "sgd", 1.0, 1e-3]),
        (["server.lr=0.5"], [0.1, 1.0, 1, "sgd", 0.5, 1e-3]),  # might be meant for either
        (["server.momentum=0.9"], [0.1, 1.0, 1, "sgd", 1.0, 1e-3]),
        (["server.claim_quantile=0.5"], [0.1, 1.0, 1, "adam", 0.003, 1e-8]),  # no matter of rates
        (["server.robust=median"], [0.1, 1.0, 1, "adam", 0.003, 1e-8]),
    ],
)
def test_a_rate_that_is_set_leaves_the_others_as_they_are_chosen(
    given: list[str], expected: list[object]
) -> None:
    complete, _ = sound.prepared(so.Experiment.of({}, overrides=given))
    assert [value_of(complete, key) for key in RATES] == expected
    said = sound.announcement(complete) or ""
    assert ("server.optimizer stays sgd: set both" in said) == (
        given in (["server.lr=0.5"], ["server.momentum=0.9"])
    )


def test_no_hidden_layers_are_said_to_be_none() -> None:
    complete = so.Experiment.of({"chosen": ["model.hidden", "rounds"], "model": {"hidden": []}})
    assert sound.announcement(complete) == "chosen from the data: hidden = none, rounds = 100"
    two = complete.model_copy(update={"model": complete.model.model_copy(update={"hidden": [64, 32]})})
    assert "hidden = 64 32" in (sound.announcement(two) or "")


def test_every_key_that_is_decided_exists() -> None:
    some = [so.Experiment(method=method()) for method in METHODS.parts()]  # type: ignore[arg-type]
    some.append(so.Experiment.of({"data": {"partition": "iid"}}))
    for key in DECIDED:
        assert any(has(one, key) for one in some), key


def test_a_key_of_the_model_says_which_encoder_is_meant(
    data_of: dict[str, dict[str, object]],
) -> None:
    def model_of(kind: str, **model: object) -> str:
        asked = so.Experiment.of({"data": data_of[kind], "model": model})
        return sound.prepared(asked)[0].model.encoder

    assert model_of("sparse sets") == "lookup"
    few = tagged()  # 24 features
    assert sound.sound(so.Experiment(), few).model.encoder == "mlp"
    assert sound.sound(so.Experiment(model={"pooling": "sum"}), few).model.encoder == "lookup"
    assert model_of("images") == "convnet"
    assert model_of("images", hidden=[8]) == "mlp"
    with pytest.raises(so.UserError, match=r"model.layers = 2: encoder = 'convnet' has no use for it"):
        model_of("images", layers=2)
    with pytest.raises(so.UserError, match=r"model.layers = 2: encoder = 'mlp' has no use for it"):
        sound.settled(so.Experiment.of({"model": {"layers": 2}}))


METRICS = {
    "rows": ["P@1"],
    "dense sets": ["P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"],
    "histories": ["R@10", "R@1", "nDCG@10"],
    "new classes": ["MAP@R", "retrieval R@1", "retrieval R@5"],
}


@pytest.mark.parametrize(("kind", "metrics"), METRICS.items())
def test_metrics_are_those_of_the_kind(
    kind: str, metrics: list[str], data_of: dict[str, dict[str, object]]
) -> None:
    assert sound.prepared(so.Experiment.of({"data": data_of[kind]}))[0].eval.metrics == metrics
    private = so.Experiment.of({"data": data_of[kind], "privacy": {"clip": 1.0, "noise": 5.0}})
    untold = [name for name in metrics if "PSP" not in name]  # propensities are made of clients' counts
    assert sound.prepared(private)[0].eval.metrics == untold


def test_a_client_is_somebody_where_the_data_says_who(data_of: dict[str, dict[str, object]]) -> None:
    complete, splits = sound.prepared(so.Experiment.of({"data": data_of["users"]}))
    assert (complete.data.partition.name, splits.train.clients) == ("by_user", 8)  # numbered 0, 3, 6 …
    assert sound.prepared(so.Experiment.of({"data": data_of["rows"]}))[1].train.clients == 5


@pytest.mark.parametrize(
    ("clients", "per_round", "rounds", "several", "every"),
    [(200, "all", 300, 100, 15), (400, 200, 300, 200, 15), (50_000, 1000, 1000, 1000, 50)],
)
def test_many_clients_take_part_in_turn(
    clients: int, per_round: int | str, rounds: int, several: int, every: int
) -> None:
    who = np.repeat(np.arange(clients), 2)
    train = so.FederatedDataset.from_arrays(np.zeros((len(who), 2)), who, who, classes=60_000)
    splits = so.Splits("many", train, so.Examples.from_arrays([[0.0, 0.0]], [0]))
    found = sound.sound(so.Experiment(), splits)
    assert (found.clients.per_round, found.rounds, found.eval.every) == (per_round, rounds, every)
    hashed = so.Experiment(method={"name": "fedmlh"})
    assert sound.sound(hashed, splits).clients.local_steps == 1  # a class each
    mixed = so.FederatedDataset.from_arrays(
        np.zeros((2 * len(who), 2)), np.tile(who, 2), np.concatenate([who, who[::-1]]), classes=60_000
    )
    two_each = sound.sound(hashed, replace(splits, train=mixed))
    assert (two_each.clients.local_epochs, two_each.rounds) == (5, several)
    assert found.clients.selection == ("weighted" if clients > 200 else "uniform")
    sampled = sound.sound(so.Experiment(method={"name": "fedss"}), splits)
    assert (sampled.method.weighting, sampled.clients.selection) == ("examples", "uniform")
    assert (sampled.method.prior, found.method.prior) == (0.0, "auto")
    assert found.method.model_dump()["spreadout_form"] == "topk"  # 60,000 classes
    assert found.method.model_dump()["k"] == 100
    held = sound.sound(so.Experiment(), replace(splits, validation=splits.test)).eval
    assert (held.split, held.keep, held.patience) == ("test", "best", 10)
    assert (found.eval.keep, found.eval.patience) == ("last", None)  # no choosing by the test part
    asked = sound.sound(so.Experiment(eval={"keep": "last"}), replace(splits, validation=splits.test))
    assert asked.eval.patience is None  # scores of the test part would say when to stop
    short = sound.sound(so.Experiment(rounds=12), replace(splits, validation=splits.test)).eval
    assert (short.keep, short.patience, short.every) == ("best", None, 1)  # it is short enough


def test_every_example_is_seen_often_enough() -> None:
    labels = np.repeat(np.arange(10), 5000)
    train = so.FederatedDataset.from_arrays(np.zeros((50_000, 64)), labels, labels)
    splits = so.Splits("large", train, so.Examples.from_arrays(np.zeros((1, 64)), [0]))
    found = sound.sound(so.Experiment(), splits)
    assert (found.clients.batch, found.clients.per_round) == (128, "all")
    assert found.rounds == -(-20 * 50_000 // (10 * 128))  # 20 epochs in steps of all clients' batches
    whole = sound.sound(so.Experiment(clients={"batch": "full"}), splits)
    assert whole.rounds == 300


@pytest.mark.parametrize(
    ("features", "filled", "hidden"),
    [(300, 0.05, []), (256, 0.05, []), (255, 0.05, [256]), (50, 0.05, [256]), (300, 0.9, [256])],
)
def test_words_have_no_hidden_layer(features: int, filled: float, hidden: list[int]) -> None:
    """Many features, mostly 0, are words."""
    rng = np.random.default_rng(0)
    dense = (rng.random((60, features)) < filled) * rng.integers(1, 9, (60, features))
    labels = np.arange(60) % 6
    for x in (dense.astype(np.float32), scipy.sparse.csr_matrix(dense.astype(np.float32))):
        train = so.FederatedDataset.from_arrays(x, labels)
        splits = so.Splits("words", train, so.Examples.from_arrays(x[:6], labels[:6]))
        for name in ("fedaws", "fedss", "centralized"):
            found = sound.sound(so.Experiment.of({"method": {"name": name}}), splits)
            assert (found.model.encoder, found.model.hidden) == ("mlp", hidden)
    asked = so.Experiment.of({"model": {"hidden": [32]}})
    assert sound.sound(asked, splits).model.hidden == [32]


def pictures(clients: int, each: int, side: int = 4) -> so.Splits:
    """Images of a class on every client, too small to be shifted unless a side is given."""
    labels = np.repeat(np.arange(clients), each)
    light = np.add.outer(np.arange(side), np.zeros(side)).astype(np.uint8)  # from below: it has no side
    x = np.broadcast_to(light, (len(labels), 1, side, side))
    train = so.FederatedDataset.from_arrays(x, labels)
    return so.Splits("pictures", train, so.Examples.from_arrays(x[:1], labels[:1]))


@pytest.mark.parametrize(
    ("clients", "each", "batch", "per_round", "rounds"),
    [
        (60, 20, 17, "all", 300),
        (10, 1001, 102, "all", 982),  # 100 epochs in steps of about 1,024 images
        (64, 1000, 16, "all", 2000),  # no more than that
        (128, 20, 8, "all", 300),
        (256, 20, 8, "all", 300),
        (300, 20, 4, "all", 500),
        (2000, 5, 4, 256, 977),  # with more clients not all take part
        (3, 2000, 128, "all", 1563),
    ],
)
def test_images_are_learned_in_many_steps_of_about_a_thousand(
    clients: int, each: int, batch: int, per_round: int | str, rounds: int
) -> None:
    splits = pictures(clients, each)
    found = sound.sound(so.Experiment(), splits)
    assert (found.model.encoder, found.clients.batch) == ("convnet", batch)
    assert (found.clients.per_round, found.rounds) == (per_round, rounds)
    assert found.clients.selection == ("uniform" if per_round == "all" else "weighted")
    flat = sound.sound(so.Experiment.of({"model": {"encoder": "mlp"}}), splits)
    assert flat.clients.per_round == ("all" if clients <= 200 else 200)
    assert flat.rounds <= 1000


@pytest.mark.parametrize(
    ("batch", "per_round"),
    [(16, "all"), (20, "all"), (32, 32), (64, 16), (128, 8), (4096, 8), ("full", "all")],
)
def test_a_batch_that_is_set_says_how_many_clients_make_up_a_step(
    batch: int | str, per_round: int | str
) -> None:
    found = sound.sound(so.Experiment.of({"clients": {"batch": batch}}), pictures(70, 20))
    assert (found.clients.batch, found.clients.per_round) == (batch, per_round)


@pytest.mark.parametrize(
    ("clients", "per_round", "batch"), [(100, 10, 102), (1000, 10, 102), (1000, 300, 4), (50, "all", 20)]
)
def test_clients_that_are_set_say_how_many_images_each_brings(
    clients: int, per_round: int | str, batch: int
) -> None:
    asked = so.Experiment.of({"clients": {"per_round": per_round}})
    found = sound.sound(asked, pictures(clients, 20))
    assert found.clients.batch == batch
    assert found.clients.selection == ("uniform" if per_round == "all" else "weighted")


def test_several_steps_on_images_have_plain_batches() -> None:
    for local in ({"local_epochs": 1}, {"local_steps": 10}):
        found = sound.sound(so.Experiment.of({"clients": local}), pictures(100, 500))
        assert (found.clients.batch, found.clients.per_round) == (32, 32)
    one = sound.sound(so.Experiment.of({"clients": {"local_steps": 1}}), pictures(100, 500))
    assert (one.clients.batch, one.clients.per_round) == (10, "all")


LEANING, EITHER = True, False


def drawings(leaning: bool, *shape: int) -> so.Splits:
    """A bright field at a height of the class, on the left; half of them on the right unless leaning."""
    rng, (channels, high, wide) = np.random.default_rng(0), shape
    y = np.arange(300) % 5
    x = rng.integers(0, 60, (300, channels, high, wide), dtype=np.uint8)
    for i, top in enumerate(high * (1 + y) // 7):
        x[i, :, top : top + high // 4, wide // 8 : wide // 3] = 255
    if not leaning:
        x[::2] = x[::2, ..., ::-1]
    train = so.FederatedDataset.from_arrays(x, y)
    return so.Splits("drawings", train, so.Examples.from_arrays(x[:20], y[:20]))


IMAGE_METHODS = [
    "fedaws", "fedalc", "fedss", "fedavg", "fedaws-softmax", "baseline-1", "baseline-2", "flag", "centralized"
]  # fmt: skip


@pytest.mark.parametrize("leaning", [LEANING, EITHER])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)], ids=str)
def test_images_are_shifted_and_mirrored_where_classes_have_no_side(
    leaning: bool, shape: tuple[int, ...]
) -> None:
    """Of a comparison all arms alike."""
    splits = drawings(leaning, *shape)
    for name in IMAGE_METHODS:
        found = sound.sound(so.Experiment.of({"method": {"name": name}}), splits)
        assert found.model.encoder == "convnet", name
        assert found.clients.image_shift == (0 if leaning else shape[1] // 8), name
        assert found.clients.image_flip is not leaning, name
        assert {"clients.image_shift", "clients.image_flip"} <= set(found.chosen or []), name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["clients.image_shift=auto", "clients.image_flip=auto"], (3, True)),
        (["clients.image_shift=0"], (0, True)),
        (["clients.image_flip=false"], (0, False)),
        (["clients.image_flip=true"], (3, True)),
        (["clients.image_shift=1", "clients.image_flip=false"], (1, False)),
        (["clients.image_shift=0", "clients.image_flip=true"], (0, True)),
        (["model.encoder=mlp"], (0, False)),
        (["method.name=fedmlh"], (0, False)),  # it has no encoder of images
    ],
)
def test_how_images_are_moved_is_the_users_to_say(
    given: list[str], expected: tuple[int, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {one.partition("=")[0] for one in given if "=auto" not in one}
    for look, key in (("is_picture", "clients.image_shift"), ("handedness", "clients.image_flip")):
        both = {"clients.image_shift", "clients.image_flip"} <= said
        if (key in said and look == "handedness") or both or expected == (0, False):  # nobody looks
            monkeypatch.setattr(f"spreadout.data.dataset.{look}", None)
    found = sound.sound(so.Experiment.of({}, overrides=given), drawings(EITHER, 1, 28, 28))
    assert (found.clients.image_shift, found.clients.image_flip) == expected
    assert said.isdisjoint(found.chosen or [])


def test_images_are_looked_at_once_for_all_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    def looking(*columns: object) -> Handedness | None:
        looked.append(columns)
        return handedness(*columns)  # type: ignore[arg-type]

    monkeypatch.setattr("spreadout.data.dataset.handedness", looking)
    splits = drawings(EITHER, 1, 28, 28)
    for name in ("fedaws", "fedss", "centralized"):
        assert sound.sound(so.Experiment.of({"method": {"name": name}}), splits).clients.image_flip
    assert len(looked) == 1


def test_images_that_are_not_square_move_by_a_part_of_their_shorter_side() -> None:
    @so.register_encoder("pooled-for-a-test")
    def pooled(shape: so.DataShape, config: so.ModelConfig) -> torch.nn.Module:
        assert shape.image is not None
        layers = torch.nn.Flatten(), torch.nn.Linear(shape.features or 0, config.dim)
        return torch.nn.Sequential(*layers)

    splits = drawings(EITHER, 3, 16, 40)
    assert sound.sound(so.Experiment(), splits).clients.image_shift == 0  # an mlp reads these
    asked = so.Experiment.of({"model": {"encoder": "pooled-for-a-test"}, "rounds": 2})
    found = so.run(asked, data=splits, device="cpu")
    augment = found.federation.clients.augment
    assert (augment.shift, augment.flip) == (2, True)


def test_under_privacy_nothing_follows_from_what_images_show(monkeypatch: pytest.MonkeyPatch) -> None:
    for look in ("is_picture", "handedness"):
        monkeypatch.setattr(f"spreadout.data.dataset.{look}", None)
    private = {"clip": 1.0, "noise": 5.0}
    asked = so.Experiment.of({"privacy": private, "rounds": 2, "model": {"width": 4}})
    found = so.run(asked, data=drawings(EITHER, 1, 16, 16), device="cpu")
    assert not found.federation.clients.augment
    moved = so.Experiment.of({"privacy": private, "rounds": 2, "clients": {"image_shift": 1}})
    found = so.run(moved, data=drawings(EITHER, 1, 16, 16), device="cpu")
    assert found.federation.clients.augment.shift == 1


def test_arrays_that_are_no_pictures_are_not_moved() -> None:
    """A board of eight by eight fields is another one if it is shifted."""
    rng, y = np.random.default_rng(0), np.arange(200) % 4
    boards = (rng.random((4, 6, 8, 8)) < 0.2)[y] ^ (rng.random((200, 6, 8, 8)) < 0.02)
    train = so.FederatedDataset.from_arrays(boards.astype(np.float32), y)
    splits = so.Splits("boards", train, so.Examples.from_arrays(boards[:4].astype(np.float32), y[:4]))
    found = sound.sound(so.Experiment(), splits)
    assert found.model.encoder == "convnet"
    assert (found.clients.image_shift, found.clients.image_flip) == (0, False)


def test_what_images_do_is_written_down_and_shipped(tmp_path: Path) -> None:
    train = drawings(EITHER, 1, 16, 16).train
    x, y = (train.columns[name].take(torch.arange(train.examples)).numpy() for name in ("x", "y"))
    np.savez(tmp_path / "x.npz", x=(x * 100).astype(np.uint8), y=y)
    values = {"data": {"source": "npz", "path": str(tmp_path / "x.npz")}, "model": {"width": 4}}
    so.run(so.Experiment.of(values, overrides=["rounds=1"]), out=tmp_path / "run", device="cpu")
    write_project(tmp_path / "app", so.Experiment.of(values))
    for place in ("run/config.toml", "app/deployed/experiment.toml"):
        complete = so.Experiment.load(tmp_path / place)
        assert (complete.clients.image_shift, complete.clients.image_flip) == (2, True), place
        assert {"clients.image_shift", "clients.image_flip"} <= set(complete.chosen or []), place


@pytest.mark.parametrize(
    ("each", "rounds", "still"), [(1000, 4000, 2000), (400, 2500, 2000), (20, 1000, 300)]
)
def test_images_that_move_are_trained_on_for_longer(each: int, rounds: int, still: int) -> None:
    """100 times each, which would be 6,250 rounds of 64,000 images."""
    splits = pictures(64, each, 8)
    moved: dict[str, object]
    for moved in ({"image_flip": True}, {"image_shift": 1}):
        assert sound.sound(so.Experiment.of({"clients": moved}), splits).rounds == rounds
    stays = {"image_shift": 0, "image_flip": False}
    assert sound.sound(so.Experiment.of({"clients": stays}), splits).rounds == still
    central = so.Experiment.of({"method": {"name": "centralized"}, "clients": {"image_flip": True}})
    assert sound.sound(central, splits).rounds == 100


def test_a_softmax_has_small_steps_on_the_server() -> None:
    expected = {"fedaws": 0.003, "fedalc": 0.003, "fedss": 0.001, "fedavg": 0.001, "fedmlh": 0.003}
    for name, rate in expected.items():
        server = sound.prepared(so.Experiment.of({"method": {"name": name}}))[0].server
        assert (server.optimizer, server.lr, server.lr_decay) == ("adam", rate, "cosine"), name


def test_what_was_chosen_is_chosen_again_for_another_method() -> None:
    first, _ = sound.prepared(so.Experiment.of({"method": {"name": "fedss"}, "clients": {"lr": 0.2}}))
    values = tomllib.loads(first.to_toml())
    shorter = so.Experiment.of(values, overrides=["rounds=3", "eval.every=1"])
    assert {*(first.chosen or [])} - {*(shorter.chosen or [])} == {"rounds", "eval.every"}
    hinge, _ = sound.prepared(so.Experiment.of({"method": {"name": "fedaws", "margin": 0.8}}))
    soft = so.Experiment.of(tomllib.loads(hinge.to_toml()), overrides=["method.name=fedss"])
    assert soft.method.model_dump()["loss_form"] == "sampled"  # both have such a key, with other values
    back = so.Experiment.of(tomllib.loads(hinge.to_toml()), overrides=["method.name=fedalc"])
    assert back.method.model_dump()["margin"] == 0.8  # set by hand
    other = so.Experiment.of(values, overrides=["method.name=fedmlh"])
    assert other.chosen is None
    assert is_open(other, "rounds")
    assert other.clients.lr == 0.2
    assert sound.prepared(other)[0].method.model_dump()["buckets"] == 5


def test_a_comparison_of_open_configs_is_gone_on_with(tmp_path: Path) -> None:
    asked = {"a": so.Experiment(rounds=1), "b": so.Experiment(rounds=1, clients={"batch": 8})}
    so.compare(asked, out=tmp_path / "both", device="cpu")
    finished = (tmp_path / "both" / "a" / "seed-0" / "summary.json").stat().st_mtime_ns
    so.compare(asked, out=tmp_path / "both", go_on=True, device="cpu")
    assert (tmp_path / "both" / "a" / "seed-0" / "summary.json").stat().st_mtime_ns == finished
    asked["a"] = so.Experiment(rounds=1, clients={"batch": 9})  # which had been chosen before
    with pytest.raises(so.UserError, match="was run with another config"):
        so.compare(asked, out=tmp_path / "both", go_on=True, device="cpu")


def test_a_deployments_config_is_complete(data_of: dict[str, dict[str, object]], tmp_path: Path) -> None:
    asked = so.Experiment.of({"data": data_of["sparse sets"]})
    write_project(tmp_path / "app", asked)
    shipped = so.Experiment.load(tmp_path / "app" / "deployed" / "experiment.toml")
    assert shipped.eval.metrics == ["P@1", "P@3", "P@5"]  # a deployment's server cannot have PSP@k
    assert "model.encoder" in (shipped.chosen or [])
    elsewhere = so.Experiment.of({"data": {**data_of["sparse sets"], "path": "/not/here"}})
    write_project(tmp_path / "blind", elsewhere)
    assert so.Experiment.load(tmp_path / "blind" / "deployed" / "experiment.toml").chosen == []


def test_data_given_in_python_decides_too(toy: so.Splits) -> None:
    found = so.run(so.Experiment(rounds=1, method={"name": "fedss"}), data=toy, device="cpu")
    assert found.federation.method.model_dump()["negatives"] == 3  # of six classes
    assert found.federation.server.selection == "nonempty"  # client 4 holds nothing


@pytest.mark.parametrize(("rows", "rate"), [(4000, 0.001), (5500, 0.003)])
def test_a_softmax_over_many_instances_has_larger_steps(rows: int, rate: float) -> None:
    """An instance with three labels is one instance, though on three clients; a tenth is held out."""
    source = {"name": "synthetic", "classes": 50, "features": 100, "examples": rows, "test_examples": 10}
    asked = {"data": {"source": {**source, "labels_per_example": 3}}, "method": {"name": "fedss"}}
    found, splits = sound.prepared(so.Experiment.of(asked))
    assert splits.train.examples > 6000
    assert found.server.lr == rate


@pytest.mark.parametrize(
    ("rows", "columns", "filled", "rounds"),
    [
        (1600, 32, 0.9, 500),  # 60 epochs, in steps of six clients with 32 examples
        (1600, 31, 0.1, 500),
        (1600, 32, 0.1, 300),  # words: 20
        (4800, 32, 0.9, 1000),
        (300, 32, 0.9, 300),
    ],
)
def test_rows_of_numbers_are_seen_more_often(
    rows: int, columns: int, filled: float, rounds: int
) -> None:
    splits = table_of(rows, columns, filled)
    for name in ("fedaws", "fedss"):
        assert sound.sound(so.Experiment.of({"method": {"name": name}}), splits).rounds == rounds


def table_of(rows: int, columns: int, filled: float) -> so.Splits:
    rng = np.random.default_rng(0)
    x = ((rng.random((rows, columns)) < filled) * rng.normal(size=(rows, columns))).astype(np.float32)
    train = so.FederatedDataset.from_arrays(x, np.arange(rows) % 6)
    return so.Splits("rows", train, so.Examples.from_arrays(x[:6], np.arange(6)))


@pytest.mark.parametrize(
    ("rows", "columns", "filled", "dropped"),
    [
        (3900, 32, 0.9, 0.2),
        (4000, 32, 0.9, 0.0),
        (4000, 32, 0.1, 0.2),
        (300, 32, 0.9, 0.2),
        (300, 31, 0.9, 0.0),
        (300, 31, 0.1, 0.0),
    ],
)
def test_of_few_columns_none_is_dropped_nor_of_many_rows_of_numbers(
    rows: int, columns: int, filled: float, dropped: float
) -> None:
    splits = table_of(rows, columns, filled)
    for name in ("fedaws", "fedss", "centralized"):
        found = sound.sound(so.Experiment.of({"method": {"name": name}}), splits)
        assert found.clients.input_dropout == dropped


def test_whether_features_are_numbers_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Column] = []

    def looking(column: Column) -> bool:
        looked.append(column)
        return are_numbers(column)

    monkeypatch.setattr("spreadout.data.dataset.are_numbers", looking)
    x = np.random.default_rng(0).normal(size=(60, 300)).astype(np.float32)
    train = so.FederatedDataset.from_arrays(x, np.arange(60) % 6)
    splits = so.Splits("numbers", train, so.Examples.from_arrays(x[:6], np.arange(6)))
    found = sound.sound(so.Experiment.of({"method": {"name": "fedaws"}}), splits)
    assert (found.model.input_scaling, found.model.hidden) == ("standard", [256])  # both asked for it
    assert len(looked) == 1
