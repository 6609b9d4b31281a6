"""Small real files of every format, made by the libraries that make them, for mutations to start from."""

from __future__ import annotations

import bz2
import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as arrow
from PIL import Image
from pyarrow import parquet
from sklearn.datasets import dump_svmlight_file

from spreadout.data.input_columns import InputColumn, InputColumns
from spreadout.data.io.npz import read_npy
from spreadout.data.sources.arrays import Npz
from spreadout.data.sources.base import RawDataset, open_stored, write
from spreadout.data.sources.cifar import Cifar
from spreadout.data.sources.idx import Idx
from spreadout.data.sources.image_folder import ImageFolder
from spreadout.data.sources.interactions import Interactions
from spreadout.data.sources.libsvm import LibSVM
from spreadout.data.sources.movielens import MovieLens
from spreadout.data.sources.mulan_arff import MulanArff
from spreadout.data.sources.omniglot import Omniglot
from spreadout.data.sources.products import OnlineProducts
from spreadout.data.sources.table import Table
from spreadout.data.sources.texts import Texts
from spreadout.data.sources.xc_text import XCText
from spreadout.data.unlabelled.files import read_inputs
from spreadout.data.unlabelled.wanted import Wanted
from spreadout.flower.data import own_file

Files = dict[str, bytes]
Read = Callable[[Path], object]
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Base:
    """Files as somebody would have them, and who reads them; `entry` is what a config would name."""

    files: Mapping[str, bytes]
    read: Read
    entry: str = ""
    pack: Callable[[Mapping[str, bytes]], Mapping[str, bytes]] = field(default=lambda files: files)

    def put(self, folder: Path, files: Mapping[str, bytes]) -> Path:
        """Write files, packed as they are published."""
        for name, content in self.pack(files).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder / self.entry


def asked(wanted: Wanted) -> Read:
    """Without labels, as a trained model is asked."""
    return lambda path: read_inputs(path, wanted)


def parsed(source: object) -> Read:
    """A source's reader, and what is made of it: written to the cache and read back."""

    def read(path: Path) -> object:
        found = source.read(path) if isinstance(source, Npz) else source.parse(path)  # type: ignore[attr-defined]
        assert isinstance(found, RawDataset)
        for part in (found.train, found.test):
            if part is not None:
                check(part.labels.values, found.classes if part is found.train else None)
        kept = path.parent / "kept"
        kept.mkdir(exist_ok=True)
        write(found, kept)
        return open_stored(kept)

    return read


def check(labels: object, classes: int | None) -> None:
    """What every reader promises of labels."""
    values = np.asarray(labels)
    assert not len(values) or values.min() >= 0
    assert classes is None or not len(values) or values.max() < classes


def zipped(name: str) -> Callable[[Mapping[str, bytes]], Files]:
    def pack(files: Mapping[str, bytes]) -> Files:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in files.items():
                archive.writestr(zipfile.ZipInfo(member), content)
        return {name: buffer.getvalue()}

    return pack


def tarred(name: str, how: str) -> Callable[[Mapping[str, bytes]], Files]:
    def pack(files: Mapping[str, bytes]) -> Files:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode=f"w:{how}") as archive:  # type: ignore[call-overload]
            for member, content in files.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return {name: buffer.getvalue()}

    return pack


def each(ending: str, how: Callable[[bytes], bytes]) -> Callable[[Mapping[str, bytes]], Files]:
    return lambda files: {name + ending: how(content) for name, content in files.items()}


def two_zips(files: Mapping[str, bytes]) -> Files:
    parts: dict[str, Files] = {}
    for name, content in files.items():
        parts.setdefault(name.split("/")[0], {})[name] = content
    return {f"{p}.zip": zipped("z")(inside)["z"] for p, inside in parts.items()}


def picture(mode: str, form: str, size: int = 9) -> bytes:
    buffer = io.BytesIO()
    pixels = RNG.integers(0, 255, (size, size, 4), dtype=np.uint8)
    Image.fromarray(pixels, "RGBA").convert(mode).save(buffer, form)
    return buffer.getvalue()


def csv(quoted: bool, word: str = "item ") -> Files:
    rows = [(u, f"{word}{i}", t) for u in (1, 2, 10) for t, i in enumerate((3, 7, 3, 9))]
    mark = '"' if quoted else ""
    lines = ["user,item,time,note", *(f"{u},{mark}{i}{mark},2024-01-{t + 1:02},x" for u, i, t in rows)]
    return {"log.csv": "\n".join(lines).encode()}


def parquet_files() -> Files:
    table = arrow.table({
        "user": [1, 1, 1, 2, 2], "item": ["a", "b", "a", "c", "b"],
        "time": arrow.array([5, 6, 7, 1, 2], arrow.timestamp("us")), "note": [0.5, None, 1, 2, 3],
    })  # fmt: skip
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, row_group_size=3)
    return {"log.parquet": buffer.getvalue()}


def svm() -> Files:
    buffer = io.BytesIO()
    x = RNG.integers(0, 3, (6, 5)).astype(float)
    labels = RNG.integers(0, 2, (6, 4))  # which of four labels each row has
    dump_svmlight_file(x, labels, buffer, zero_based=False, multilabel=True)
    return {"data.svm": buffer.getvalue()}


XC = b"3 5 4\n0,2 0:1.5 3:2\n 1:0.5\n3 4:1e-3\n"
ARFF = (Path(__file__).parent / "toy.arff").read_bytes()
XML = b'<labels xmlns="http://mulan.sourceforge.net/labels"><label name="TAG_b"/><label name="it\'s"/></labels>'


def arrays() -> Files:
    buffer, one = io.BytesIO(), io.BytesIO()
    x, y = RNG.normal(size=(8, 3)).astype(np.float32), np.arange(8) % 3
    np.savez(buffer, x=x, y=y, client=y, x_test=x[:2], y_test=y[:2])
    np.save(one, x)
    return {"a.npz": buffer.getvalue(), "a.npy": one.getvalue()}


def idx() -> Files:
    files = {}
    for part, n in (("train", 6), ("t10k", 3)):
        pixels = RNG.integers(0, 255, (n, 4, 4), dtype=np.uint8)
        files[f"{part}-images-idx3-ubyte"] = (
            b"\0\0\x08\x03" + struct.pack(">III", n, 4, 4) + pixels.tobytes()
        )
        files[f"{part}-labels-idx1-ubyte"] = b"\0\0\x08\x01" + struct.pack(">I", n) + bytes(range(n))
    return files


def pictures() -> Files:
    kinds = {"png": ("RGBA", "PNG"), "jpg": ("RGB", "JPEG"), "bmp": ("RGB", "BMP"), "gif": ("P", "GIF"),
             "webp": ("RGB", "WEBP"), "tif": ("L", "TIFF")}  # fmt: skip
    files = {f"class{i % 2}/a.{end}": picture(*kind) for i, (end, kind) in enumerate(kinds.items())}
    deep = io.BytesIO()
    Image.fromarray(RNG.integers(0, 1 << 16, (9, 9), dtype=np.uint16)).save(deep, "PNG")
    return {**files, "class1/deep.png": deep.getvalue()}


def omniglot() -> Files:
    return {
        f"images_{part}/Greek/character{c:02}/{c:04}_{drawer:02}.png": picture("1", "PNG", 20)
        for part in ("background", "evaluation")
        for c in (1, 2)
        for drawer in (1, 2)
    }


def cifar(protocol: int) -> Files:
    batch = {
        b"data": RNG.integers(0, 255, (2, 3072), dtype=np.uint8),
        b"labels": [1, 7],
        b"filenames": ["a", "b"],
    }
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    return {f"cifar-10-batches-py/{name}": pickle.dumps(batch, protocol=protocol) for name in names}


def cifar_binary() -> Files:
    record = bytes([3]) + RNG.integers(0, 255, 3072, dtype=np.uint8).tobytes()
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    return {f"cifar-10-batches-bin/{name}": record for name in names}


def movielens() -> Files:
    rated = "\n".join(f"{u}::{m}::{4}::{t}" for u in (1, 2) for t, m in enumerate((3, 7, 9, 3)))
    movies = "\n".join(f"{m}::Title {m} (1999)::Drama" for m in (3, 7, 9))
    return {
        "ml-1m/ratings.dat": rated.encode(),
        "ml-1m/movies.dat": movies.encode(),
        "ml-1m/users.dat": b"1::F\n2::M\n",
    }


def movielens_csv() -> Files:
    rated = "\n".join(f"{u},{m},4.5,{t}" for u in (1, 2) for t, m in enumerate((3, 7, 9)))
    movies = 'movieId,title,genres\n3,"A, ""B""",x\n7,C,x\n9,D,x\n'
    return {
        "ratings.csv": f"userId,movieId,rating,timestamp\n{rated}\n".encode(),
        "movies.csv": movies.encode(),
    }


def products() -> Files:
    head = "image_id class_id super_class_id path\n"
    files: Files = {}
    for part, first in (("train", 1), ("test", 3)):
        rows = [f"{i} {first + i % 2} 1 chair/{part}{i}.JPG" for i in range(3)]
        files[f"SOP/Ebay_{part}.txt"] = (head + "\n".join(rows)).encode()
        files |= {f"SOP/chair/{part}{i}.JPG": picture("RGB", "JPEG") for i in range(3)}
    return files


TABLE = b'n,word,who,label\n1,a,x,red\n2.5,"b, c",y,blue\n,a,x,red\nNA,,y,blue\n'
TEXTS = 'text,label\n"a card, lost",x;y\nनमस्ते 我的卡,\n\n"two\nlines",y\n'.encode()
COLUMNS = InputColumns((InputColumn("n", mean=1.5), InputColumn("word", 1, ("a", "b"))), ("label",))
OF_TEXTS = InputColumns((InputColumn("text", 16, words=True),), ("label",))
HISTORIES = b'[1, "two", 3]\n1\t2\t3\n4, 5; 6\nThe Matrix\n\n'
BASES: dict[str, Base] = {
    "csv": Base(csv(False), parsed(Interactions()), "log.csv"),
    "csv-quoted": Base(csv(True), parsed(Interactions()), "log.csv"),
    "csv-gz": Base(
        csv(False, ""),
        parsed(Interactions(numbering="published")),
        "log.csv.gz",
        each(".gz", gzip.compress),
    ),
    "table": Base({"t.csv": TABLE}, parsed(Table(client="who")), "t.csv"),
    "table-gz": Base({"t.csv": TABLE}, parsed(Table()), "t.csv.gz", each(".gz", gzip.compress)),
    "texts": Base({"t.csv": TEXTS}, parsed(Texts(separator=";", width=16)), "t.csv"),
    "parquet": Base(parquet_files(), parsed(Interactions()), "log.parquet"),
    "libsvm": Base(svm(), parsed(LibSVM()), "data.svm"),
    "libsvm-bz2": Base(
        svm(), parsed(LibSVM(first_feature=0)), "data.svm.bz2", each(".bz2", bz2.compress)
    ),
    "xc-text": Base({"train.txt": XC, "test.txt": XC}, parsed(XCText()), "set.zip", zipped("set.zip")),
    "xc-splits": Base(
        {"a.txt": XC, "trSplit.txt": b"1 2\n3 1\n", "tsSplit.txt": b"2 3\n"}, parsed(XCText())
    ),
    "xc-matrices": Base(
        {
            f"{part}_X_{what}.txt": b"2 4\n0:1 3:2.5\n1:1\n"
            for part in ("trn", "tst")
            for what in ("Xf", "Y")
        },
        parsed(XCText()),
    ),
    "arff": Base({"toy.arff": ARFF, "toy.xml": XML}, parsed(MulanArff())),
    "arff-zip": Base(
        {"toy-train.arff": ARFF, "toy-test.arff": ARFF, "toy.xml": XML},
        parsed(MulanArff()),
        "toy.zip",
        zipped("toy.zip"),
    ),
    "arff-meka": Base({"toy.arff": ARFF}, parsed(MulanArff()), "toy.arff"),
    "npz": Base({"a.npz": arrays()["a.npz"]}, parsed(Npz()), "a.npz"),
    "npz-of-a-node": Base({"a.npz": arrays()["a.npz"]}, lambda path: own_file(path, classes=5), "a.npz"),
    "npy": Base({"a.npy": arrays()["a.npy"]}, read_npy, "a.npy"),
    "idx": Base(idx(), parsed(Idx())),
    "idx-gz": Base(idx(), parsed(Idx()), "", each(".gz", gzip.compress)),
    "image-folder": Base(pictures(), parsed(ImageFolder(size=8))),
    "image-zip": Base(pictures(), parsed(ImageFolder(size=8, grey=True)), "p.zip", zipped("p.zip")),
    "omniglot": Base(omniglot(), parsed(Omniglot(size=8)), "", two_zips),
    "cifar": Base(cifar(2), parsed(Cifar(name="cifar-10")), "c.tar.gz", tarred("c.tar.gz", "gz")),
    "cifar-folder": Base(cifar(4), parsed(Cifar(name="cifar-10"))),
    "cifar-binary": Base(cifar_binary(), parsed(Cifar(name="cifar-10")), "c.tar", tarred("c.tar", "")),
    "movielens": Base(movielens(), parsed(MovieLens()), "ml-1m.zip", zipped("ml-1m.zip")),
    "movielens-csv": Base(movielens_csv(), parsed(MovieLens())),
    "online-products": Base(products(), parsed(OnlineProducts(size=8)), "s.zip", zipped("s.zip")),
    "histories": Base({"h.txt": HISTORIES}, asked(Wanted(None, histories=True)), "h.txt"),
    "asked-events": Base(
        {"e.csv": b"user,item,time\n1,a,3\n1,b,4\n2,a,1\n"}, asked(Wanted(None, histories=True)), "e.csv"
    ),
    "asked-numbers": Base({"n.csv": b"a,b\n1,2.5\n-3e4,4\n"}, asked(Wanted(2)), "n.csv"),
    "asked-by-name": Base(
        {"n.csv": b'label,word,n\n,b,1\nred,"c",2.5\n,a,\n'}, asked(Wanted(2, columns=COLUMNS)), "n.csv"
    ),
    "asked-texts": Base({"t.csv": TEXTS}, asked(Wanted(16, columns=OF_TEXTS)), "t.csv"),
    "asked-lines": Base({"t.txt": TEXTS}, asked(Wanted(16, columns=OF_TEXTS)), "t.txt"),
    "asked-sparse": Base({"s.txt": b"2 9 3\n1,2 3:0.5 8:1\n 0:1 4:2\n"}, asked(Wanted(9)), "s.txt"),
    "asked-arff": Base(
        {"a.arff": b"@relation r\n@attribute a real\n@attribute c {x,y}\n@data\n1,y\n{0 2}\n"},
        asked(Wanted(2)),
        "a.arff",
    ),
}
