"""Published picture formats, made small and exact, whole and broken."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spreadout as so
from bombs import tiled
from spreadout.data.columns import Dense
from spreadout.data.load import DataConfig, load_data
from spreadout.data.sources.base import Instances, RawDataset
from spreadout.data.sources.cifar import Cifar
from spreadout.data.sources.idx import Idx
from spreadout.data.sources.image_folder import ImageFolder
from spreadout.data.sources.omniglot import Omniglot
from spreadout.data.sources.products import OnlineProducts

Image = pytest.importorskip("PIL.Image", reason="the extra [images] is not installed")


def png(shade: int, size: int = 8, mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.new(mode, (size, size), shade if mode in ("L", "1") else (shade,) * 3).save(out, "PNG")
    return out.getvalue()


def shades(part: Instances | None) -> list[int]:
    """The first byte of each picture."""
    assert part is not None
    column = part.columns["x"]
    assert isinstance(column, Dense)
    return column.values[:, 0, 0, 0].tolist()


def labels(part: Instances | None) -> list[int]:
    assert part is not None
    return part.labels.values.tolist()


# ---------------------------------------------------------------- CIFAR


def records(n: int, marks: int, classes: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    found = rng.integers(0, 256, (n, marks + 3072)).astype(np.uint8)
    found[:, :marks] = rng.integers(0, classes, (n, marks))
    return found


def tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, raw in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            file.addfile(info, io.BytesIO(raw))
    return path


def cifar10(rows: np.ndarray, kind: str) -> dict[str, bytes]:
    """Five training batches and a test batch, as the Toronto archives hold them."""
    parts = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    members = {}
    for name, part in zip(parts, np.array_split(rows, 6), strict=True):
        if kind == "binary":
            members[f"cifar-10-batches-bin/{name}.bin"] = part.tobytes()
        else:
            batch = {"batch_label": name, "labels": part[:, 0].tolist(), "data": part[:, 1:].copy()}
            members[f"cifar-10-batches-py/{name}"] = pickle.dumps(batch, protocol=2)
    return members


@pytest.mark.parametrize("kind", ["python", "binary"])
def test_cifar_10_archives_are_read(tmp_path: Path, kind: str) -> None:
    rows = records(18, 1, 10)
    found = Cifar(name="cifar-10").parse(tar(tmp_path / "c.tar.gz", cifar10(rows, kind)))
    assert labels(found.train) == rows[:15, 0].tolist()
    assert labels(found.test) == rows[15:, 0].tolist()
    pixels = found.train.columns["x"]
    assert isinstance(pixels, Dense)
    assert np.array_equal(pixels.values.numpy(), rows[:15, 1:].reshape(-1, 3, 32, 32))
    one = pixels.take(torch.tensor([0]))
    assert (one.shape, one.dtype) == ((1, 3, 32, 32), torch.float32)
    assert float(one[0, 0, 0, 0]) == pytest.approx(int(rows[0, 1]) / 255 * 2 - 1, abs=1e-6)


@pytest.mark.parametrize("kind", ["python", "binary"])
def test_cifar_100_has_fine_and_coarse_labels(tmp_path: Path, kind: str) -> None:
    rows = records(9, 2, 20)  # coarse first, then fine
    members = {}
    for name, part in (("train", rows[:6]), ("test", rows[6:])):
        if kind == "binary":
            members[f"cifar-100-binary/{name}.bin"] = part.tobytes()
        else:
            batch = {
                b"coarse_labels": part[:, 0].tolist(),
                b"fine_labels": part[:, 1].tolist(),
                b"data": part[:, 2:].copy(),
            }
            members[f"cifar-100-python/{name}"] = pickle.dumps(batch, protocol=2)
    path = tar(tmp_path / "c.tar.gz", members)
    assert labels(Cifar(name="cifar-100").parse(path).train) == rows[:6, 1].tolist()
    coarse = Cifar(name="cifar-100", labels="coarse").parse(path)
    assert labels(coarse.test) == rows[6:, 0].tolist()
    assert coarse.classes == 20


class Evil:
    """What a tampered archive would hold."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('code ran')",)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (pickle.dumps(Evil()), r"data_batch_1: not a CIFAR batch \(it asks for builtins.exec\)"),
        (pickle.dumps([1]), "not a CIFAR batch, but a list"),
        (
            pickle.dumps({"labels": [1], "data": np.zeros((1, 5), np.uint8)}),
            "no batch of labels with 3072",
        ),
        (b"\x80\x02}q", "not a CIFAR batch"),
    ],
)
def test_a_tampered_cifar_runs_no_code(tmp_path: Path, raw: bytes, complaint: str) -> None:
    members = {**cifar10(records(12, 1, 10), "python"), "cifar-10-batches-py/data_batch_1": raw}
    with pytest.raises(so.UserError, match=complaint):
        Cifar(name="cifar-10").parse(tar(tmp_path / "c.tar.gz", members))


def test_cut_short_and_mislabelled_cifar_is_named(tmp_path: Path) -> None:
    members = cifar10(records(12, 1, 10), "binary")
    name = "cifar-10-batches-bin/data_batch_2.bin"
    broken = {**members, name: members[name][:-1]}
    with pytest.raises(
        so.UserError, match=r"data_batch_2.bin: 6,145 bytes are no whole number of records"
    ):
        Cifar(name="cifar-10").parse(tar(tmp_path / "a.tar.gz", broken))
    missing = {n: raw for n, raw in members.items() if n != name}
    with pytest.raises(so.UserError, match=r"the archive has no data_batch_2.bin"):
        Cifar(name="cifar-10").parse(tar(tmp_path / "b.tar.gz", missing))
    far = records(12, 1, 10)
    far[0, 0] = 77
    with pytest.raises(so.UserError, match="a label beyond 9; is it cifar-10"):
        Cifar(name="cifar-10").parse(tar(tmp_path / "c.tar.gz", cifar10(far, "binary")))
    raw = (tmp_path / "c.tar.gz").read_bytes()
    (tmp_path / "c.tar.gz").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(so.UserError, match=r"c.tar.gz: .*cut short"):
        Cifar(name="cifar-10").parse(tmp_path / "c.tar.gz")


def test_cifar_as_png_folders(tmp_path: Path) -> None:
    for part, count in (("train", 2), ("test", 1)):
        for c in range(10):
            folder = tmp_path / part / f"class{c}"
            folder.mkdir(parents=True)
            for i in range(count):
                (folder / f"{i}.png").write_bytes(png(10 * c, size=32))
    found = Cifar(name="cifar-10").parse(tmp_path)
    assert shades(found.train) == [10 * c for c in range(10) for _ in range(2)]
    assert labels(found.test) == list(range(10))


# ---------------------------------------------------------------- idx


def write_idx(folder: Path, part: str, pictures: np.ndarray, label: np.ndarray, *, zipped: bool) -> None:
    for name, array in ((f"{part}-images-idx3-ubyte", pictures), (f"{part}-labels-idx1-ubyte", label)):
        head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        raw = head + array.astype(np.uint8).tobytes()
        if zipped:
            with gzip.open(folder / f"{name}.gz", "wb") as stream:
                stream.write(raw)
        else:
            (folder / name).write_bytes(raw)


def mnist(folder: Path, *, zipped: bool = False) -> Path:
    rng = np.random.default_rng(0)
    write_idx(
        folder, "train", rng.integers(0, 256, (5, 28, 28)), np.array([3, 1, 4, 1, 9]), zipped=zipped
    )
    write_idx(folder, "t10k", rng.integers(0, 256, (2, 28, 28)), np.array([2, 6]), zipped=zipped)
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files_are_read(tmp_path: Path, zipped: bool) -> None:
    found = Idx(name="mnist").parse(mnist(tmp_path, zipped=zipped))
    assert (labels(found.train), labels(found.test), found.classes) == ([3, 1, 4, 1, 9], [2, 6], 10)
    column = found.train.columns["x"]
    assert isinstance(column, Dense)
    assert column.values.shape == (5, 1, 28, 28)
    expected = np.random.default_rng(0).integers(0, 256, (5, 28, 28))
    assert np.array_equal(column.values[:, 0].numpy(), expected)


def test_broken_idx_files_are_named(tmp_path: Path) -> None:
    mnist(tmp_path)
    picture = tmp_path / "train-images-idx3-ubyte"
    raw = picture.read_bytes()
    picture.write_bytes(raw[:-10])
    with pytest.raises(
        so.UserError, match=r"train-images-idx3-ubyte: promises 3,920 bytes, holds 3,910"
    ):
        Idx(name="mnist").parse(tmp_path)
    picture.write_bytes(b"\x00\x00\x0d\x03" + raw[4:])
    with pytest.raises(so.UserError, match="not an idx file of bytes in 3 dimensions"):
        Idx(name="mnist").parse(tmp_path)
    picture.write_bytes(bytes([0, 0, 8, 3]) + struct.pack(">3I", 4, 28, 28) + raw[16 : 16 + 4 * 784])
    with pytest.raises(so.UserError, match="4 train pictures, but 5 labels"):
        Idx(name="mnist").parse(tmp_path)
    picture.unlink()
    with pytest.raises(so.UserError, match="has no train-images-idx3-ubyte"):
        Idx(name="mnist").parse(tmp_path)


# ---------------------------------------------------------------- folders of pictures


def faces(folder: Path) -> Path:
    for person, shade in (("ann", 10), ("bob", 200)):
        for mood, extra in (("glad", 0), ("sad", 5)):
            (folder / person / mood).mkdir(parents=True)
            for i in range(2):
                (folder / person / mood / f"{i}.png").write_bytes(png(shade + extra + i))
    return folder


def test_folders_are_classes_or_people_with_classes(tmp_path: Path) -> None:
    by_class = ImageFolder(size=4).parse(faces(tmp_path) / "ann")
    assert (labels(by_class.train), by_class.class_names) == ([0, 0, 1, 1], ("glad", "sad"))
    assert by_class.train.user is None  # nobody says whose they are: a client holds a class
    both = ImageFolder(size=4, layout="person/class", grey=True).parse(tmp_path)
    assert labels(both.train) == [0, 0, 1, 1] * 2
    assert both.train.user is not None
    assert both.train.user.tolist() == [0] * 4 + [1] * 4
    assert shades(both.train) == [10, 11, 15, 16, 200, 201, 205, 206]
    column = both.train.columns["x"]
    assert isinstance(column, Dense)
    assert column.values.shape == (8, 1, 4, 4)


def test_a_picture_is_cut_in_the_middle_and_averaged_down(tmp_path: Path) -> None:
    wide = np.zeros((8, 16), np.uint8)
    wide[:, 4:8:2], wide[:, 5:8:2], wide[:, 8:12] = (
        90,
        110,
        200,
    )  # the middle square; the sides are cut off
    (tmp_path / "a").mkdir()
    Image.fromarray(wide).save(tmp_path / "a" / "0.png")
    found = ImageFolder(size=4, grey=True).parse(tmp_path)
    column = found.train.columns["x"]
    assert isinstance(column, Dense)
    assert column.values[0, 0].tolist() == [[100, 100, 200, 200]] * 4


def test_bad_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(so.UserError, match="holds no pictures; put one folder per class there"):
        ImageFolder().parse(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "good.png").write_bytes(png(1))
    (tmp_path / "a" / "bad.png").write_bytes(png(1)[:40])
    with pytest.raises(so.UserError, match=r"a/bad.png: does not decode as a picture"):
        ImageFolder().parse(tmp_path)
    (tmp_path / "a" / "bad.png").unlink()
    (tmp_path / "loose.png").write_bytes(png(1))
    with pytest.raises(
        so.UserError, match=r"loose.png: lies too high up; pictures lie as CLASS/picture"
    ):
        ImageFolder().parse(tmp_path)


# ---------------------------------------------------------------- Omniglot


def omniglot(folder: Path) -> Path:
    for part, alphabets in (("background", ("Greek", "Latin")), ("evaluation", ("Tengwar",))):
        with zipfile.ZipFile(folder / f"images_{part}.zip", "w") as file:
            number = 0
            for alphabet in alphabets:
                for c in (1, 2):
                    number += 1
                    for drawer in (1, 2, 3):
                        name = f"images_{part}/{alphabet}/character{c:02}/{number:04}_{drawer:02}.png"
                        file.writestr(name, png(1 if drawer == 1 else 0, size=105, mode="1"))
    return folder


def test_omniglot_tests_on_alphabets_it_never_trains(tmp_path: Path) -> None:
    found = Omniglot().parse(omniglot(tmp_path))
    assert found.classes == 4
    assert labels(found.train) == [c for c in range(4) for _ in range(3)]
    assert labels(found.test) == [4, 4, 4, 5, 5, 5]
    assert found.class_names[0] == "Greek/character01"
    assert found.class_names[4:] == ("Tengwar/character01", "Tengwar/character02")
    assert found.train.user is not None
    assert found.train.user.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]  # each alphabet has its own
    assert shades(found.train)[:3] == [0, 255, 255]  # paper is dark, ink is bright


def test_fewer_drawings_of_each_character_are_trained_on(tmp_path: Path) -> None:
    place = omniglot(tmp_path)
    every, first = Omniglot().parse(place), Omniglot(drawings=1).parse(place)
    assert first.classes == every.classes
    assert torch.bincount(first.train.labels.values).tolist() == [1] * every.classes
    assert len(first.test) == len(every.test)  # type: ignore[arg-type]


def test_a_broken_omniglot_is_named(tmp_path: Path) -> None:
    omniglot(tmp_path)
    with zipfile.ZipFile(tmp_path / "images_background.zip", "a") as file:
        file.writestr("images_background/Greek/character01/odd.png", png(0))
    with pytest.raises(so.UserError, match=r"Greek/character01/odd.png: not ALPHABET/characterNN"):
        Omniglot().parse(tmp_path)
    (tmp_path / "images_evaluation.zip").unlink()
    omniglot_only = tmp_path / "x"
    omniglot_only.mkdir()
    with pytest.raises(
        so.UserError, match=r"has no images_background.zip; put both Omniglot zips there"
    ):
        Omniglot().parse(omniglot_only)


def test_omniglot_has_the_published_counts(real_data: Path) -> None:
    found = Omniglot().read(real_data / "omniglot")
    assert found.test is not None
    assert (len(found.train), len(found.test), found.classes) == (19_280, 13_180, 964)
    assert len(torch.unique(found.test.labels.values)) == 659
    assert torch.bincount(found.train.labels.values).tolist() == [20] * 964
    assert len({name.split("/")[0] for name in found.class_names}) == 50


# ---------------------------------------------------------------- Stanford Online Products

TRAIN = "image_id class_id super_class_id path\n1 1 1 bicycle_final/a.JPG\n2 1 1 bicycle_final/b.JPG\n3 4 1 mug_final/c.JPG\n"
TEST = "image_id class_id super_class_id path\n4 9 1 mug_final/d.JPG\n"


def products(path: Path, train: str = TRAIN, test: str = TEST) -> RawDataset:
    with zipfile.ZipFile(path, "w") as file:
        base = "Stanford_Online_Products/"
        file.writestr(base + "Ebay_train.txt", train)
        file.writestr(base + "Ebay_test.txt", test)
        for name in ("bicycle_final/a", "bicycle_final/b", "mug_final/c", "mug_final/d"):
            out = io.BytesIO()
            Image.new("RGB", (70, 50), (9, 9, 9)).save(out, "JPEG")
            file.writestr(f"{base}{name}.JPG", out.getvalue())
    return OnlineProducts(size=8).parse(path)


def test_online_products_are_read(tmp_path: Path) -> None:
    found = products(tmp_path / "p.zip")
    assert (labels(found.train), labels(found.test), found.classes) == ([0, 0, 1], [2], 2)
    assert found.class_names == ("1", "4", "9")


@pytest.mark.parametrize(
    ("train", "test", "complaint"),
    [
        (
            TRAIN.replace("image_id", "id"),
            TEST,
            r"Ebay_train.txt:1: the header must be 'image_id class_id",
        ),
        (TRAIN.replace("3 4 1", "3 four 1"), TEST, r"Ebay_train.txt:4: not 'image_id"),
        (
            TRAIN.replace("b.JPG", "z.JPG"),
            TEST,
            r"Ebay_train.txt:3: bicycle_final/z.JPG is not in the archive",
        ),
        (TRAIN, TEST.replace("4 9", "4 1"), "class 1 is in Ebay_train.txt and in Ebay_test.txt"),
    ],
)
def test_broken_online_products_are_named(tmp_path: Path, train: str, test: str, complaint: str) -> None:
    with pytest.raises(so.UserError, match=complaint):
        products(tmp_path / "p.zip", train, test)


def test_test_and_val_folders_together_are_refused_and_users_can_be_validated_on(tmp_path: Path) -> None:
    for part, people in (("train", "abcde"), ("test", "f")):
        for person in people:
            (tmp_path / part / person / "smile").mkdir(parents=True)
            (tmp_path / part / person / "smile" / "0.png").write_bytes(png(9))
    config = DataConfig(
        source={"name": "image-folder", "layout": "person/class", "size": 4},
        path=tmp_path, partition="by_user", hold_out="users", validation_fraction=0.4,
    )  # fmt: skip
    splits = load_data(config, seed=0)
    assert splits.validation is not None
    assert (splits.train.clients, len(splits.validation), len(splits.test)) == (3, 2, 1)
    (tmp_path / "val" / "g" / "smile").mkdir(parents=True)
    (tmp_path / "val" / "g" / "smile" / "0.png").write_bytes(png(9))
    with pytest.raises(so.UserError, match="has test/ and val/"):
        ImageFolder(layout="person/class").parse(tmp_path)


def test_folders_of_classes_are_not_users(tmp_path: Path) -> None:
    for name in ("cat", "dog", "owl"):
        (tmp_path / name).mkdir()
        for i in range(8):
            (tmp_path / name / f"{i}.png").write_bytes(png(30 * i))
    source = {"name": "image-folder", "size": 4}
    values = {"rounds": 1, "data": {"source": source, "path": str(tmp_path)}}
    result = so.run(so.Experiment.of(values), out=tmp_path.parent / "run")
    assert so.Experiment.load(tmp_path.parent / "run" / "config.toml").data.partition.name == "by_label"
    assert result.summary["clients"] == 3
    with pytest.raises(
        so.UserError, match=r'by_user": the source does not say .*layout = "person/class"'
    ):
        so.load_data(so.DataConfig(source=source, path=tmp_path, partition="by_user"))


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "cat"
    real.mkdir(parents=True)
    (real / "0.png").write_bytes(png(3))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "cat").symlink_to(real)
    (real / "loop").symlink_to(tmp_path / "set")
    found = ImageFolder(size=4).parse(tmp_path / "set")
    assert (found.class_names, labels(found.train)) == (("cat",), [0])


def test_sixteen_bits_transparency_and_the_cameras_way_up(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.fromarray(np.full((4, 4), 0x8000, np.uint16)).save(tmp_path / "a" / "0.png")
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "a" / "1.png")
    tall = np.zeros((8, 4), np.uint8)
    tall[:4] = 200  # bright above; turned upside down by its tag
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(tall).save(tmp_path / "a" / "2.jpg", exif=exif, quality=100)
    column = ImageFolder(size=4, grey=True).parse(tmp_path).train.columns["x"]
    assert isinstance(column, Dense)
    assert column.values[:2, 0, 0, 0].tolist() == [0x80, 255]
    assert int(column.values[2, 0, 3, 0]) > 150 > int(column.values[2, 0, 0, 0])


def test_a_picture_in_tiles_is_read_if_it_says_plainly_how_large_they_are(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    path = tmp_path / "class" / "a.tif"
    path.write_bytes(tiled(64))
    assert shades(ImageFolder(size=8).parse(tmp_path).train) == [255]  # all transparent: white
    slong8 = 17  # libtiff reads this type, Pillow does not
    path.write_bytes(tiled(16_384, kind=slong8))
    with pytest.raises(so.UserError, match=r"a.tif: does not decode .*its tiles is no plain number"):
        ImageFolder(size=8).parse(tmp_path)


def test_idx_parts_of_different_size_are_refused(tmp_path: Path) -> None:
    mnist(tmp_path)
    write_idx(tmp_path, "t10k", np.zeros((2, 14, 14)), np.array([2, 6]), zipped=False)
    with pytest.raises(
        so.UserError, match=r"train pictures are \(1, 28, 28\), t10k pictures \(1, 14, 14\)"
    ):
        Idx(name="mnist").parse(tmp_path)


@pytest.mark.parametrize("bad", [[-1] * 2, ["a"] * 2, None, [[1], [2]], [1, [2]], [10**30] * 2])
def test_cifar_labels_that_are_none_are_refused(tmp_path: Path, bad: object) -> None:
    members = cifar10(records(12, 1, 10), "python")
    batch = {"labels": bad, "data": np.zeros((2, 3072), np.uint8)}
    members["cifar-10-batches-py/data_batch_1"] = pickle.dumps(batch, protocol=2)
    with pytest.raises(so.UserError, match=r"data_batch_1: (its labels|no batch)"):
        Cifar(name="cifar-10").parse(tar(tmp_path / "c.tar.gz", members))
