"""The data sets known by name: what they are, the published figures, and where to get them.

Nothing is shipped. Figures and checksums are the publishers' own, or, for files whose publisher gives
none, those that independent loaders agree on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from spreadout.core.errors import UserError
from spreadout.data.sources import AnySource
from spreadout.data.sources.base import Source

GROUPLENS = "https://files.grouplens.org/datasets/movielens/"
TORONTO = "https://www.cs.toronto.edu/~kriz/"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
OMNIGLOT = "https://github.com/brendenlake/omniglot/raw/master/python/"
XC_HOME = "http://manikvarma.org/downloads/XC/XMLRepository.html"
MULAN_HOME = "https://mulan.sourceforge.net/datasets-mlc.html"
HARPER = "Harper & Konstan 2015; research use, no redistribution without permission"
BHATIA = "Bhatia et al. 2016 and each set's own paper; research use"


@dataclass(frozen=True)
class File:
    """A published file: its place in SPREADOUT_DATA, its MD5, and where it may be fetched from."""

    place: str
    md5: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class DataSet:
    """A published data set; `figures` are counts that `check` compares with what it finds."""

    name: str
    about: str
    figures: Mapping[str, int | float]
    terms: str
    home: str
    files: tuple[File, ...] = ()
    place: str = ""  # its file or folder in SPREADOUT_DATA; empty: it ships with a dependency
    layout: str = ""  # what must lie there, where that is not one file of that name
    source: Source = field(init=False, compare=False)

    def __post_init__(self) -> None:
        adapter: TypeAdapter[Source] = TypeAdapter(AnySource)
        object.__setattr__(self, "source", adapter.validate_python(self.name))

    def here(self) -> Path | None:
        """Where it lies on this machine, if it does."""
        try:
            return self.source.locate(None)
        except UserError:
            return None

    @property
    def fetchable(self) -> bool:
        return bool(self.files) and all(file.url for file in self.files)


def _movielens(size: str, ratings: int, users: int, movies: int, md5: str) -> DataSet:
    return DataSet(
        f"movielens-{size}",
        f"movie ratings by {users:,} people, as next-movie examples",
        {"ratings": ratings, "users": users, "movies": movies, "examples": ratings - users},
        HARPER,
        f"https://grouplens.org/datasets/movielens/{size}/",
        (File(f"ml-{size}.zip", md5, f"{GROUPLENS}ml-{size}.zip"),),
        f"ml-{size}.zip",
    )


def _xc(name: str, features: int, classes: int, train: int, test: int, files: str) -> DataSet:
    return DataSet(
        name,
        "sparse text, many labels",
        {"train": train, "test": test, "features": features, "classes": classes},
        BHATIA,
        XC_HOME,
        place=name,
        layout=files,
    )


def _mulan(name: str, figures: Mapping[str, int | float], cite: str) -> DataSet:
    return DataSet(
        name,
        "multi-label, Mulan's ARFF",
        figures,
        cite,
        MULAN_HOME,
        place=name,
        layout=f"{name}-train.arff, {name}-test.arff and {name}.xml",
    )


def _idx(name: str, about: str, base: str, md5s: Mapping[str, str], cite: str, home: str) -> DataSet:
    return DataSet(
        name,
        about,
        {"train": 60_000, "test": 10_000, "classes": 10},
        cite,
        home,
        tuple(File(f"{name}/{file}", md5, base + file) for file, md5 in md5s.items()),
        name,
        layout="the four idx files, gzipped or not",
    )


CATALOGUE: dict[str, DataSet] = {
    known.name: known
    for known in (
        DataSet(
            "digits",
            "8x8 handwritten digits; ships with scikit-learn",
            {"examples": 1797, "classes": 10},
            "UCI; free",
            "https://scikit-learn.org/stable/datasets/toy_dataset.html",
        ),
        _movielens("100k", 100_000, 943, 1_682, "0e33842e24a9c977be4e0107933c0723"),
        _movielens("1m", 1_000_209, 6_040, 3_706, "c4d9eecfca2ab87c1945afe126590906"),
        _movielens("10m", 10_000_054, 69_878, 10_677, "ce571fd55effeba0271552578f2648bd"),
        _movielens("20m", 20_000_263, 138_493, 26_744, "cd245b17a1ae2cc31bb14903e1204af3"),
        _movielens("25m", 25_000_095, 162_541, 59_047, "6b51fb2759a8657d3bfcbfc42b592ada"),
        _movielens("32m", 32_000_204, 200_948, 84_432, "d472be332d4daa821edc399621853b57"),
        _mulan(
            "bibtex",
            {"train": 4880, "test": 2515, "features": 1836, "classes": 159, "labels a row": 2.40},
            "Katakis et al. 2008",
        ),
        _mulan("mediamill", {"rows": 43_907, "features": 120, "classes": 101}, "Snoek et al. 2006"),
        _mulan("delicious", {"rows": 16_105, "features": 500, "classes": 983}, "Tsoumakas et al. 2008"),
        _mulan("corel5k", {"rows": 5_000, "features": 499, "classes": 374}, "Duygulu et al. 2002"),
        _xc("eurlex-4k", 5_000, 3_993, 15_539, 3_809, "eurlex_train.txt and eurlex_test.txt"),
        _xc("wiki10-31k", 101_938, 30_938, 14_146, 6_616, "wiki10_train.txt and wiki10_test.txt"),
        _xc("amazoncat-13k", 203_882, 13_330, 1_186_239, 306_782, "train.txt and test.txt"),
        _xc("delicious-200k", 782_585, 205_443, 196_606, 100_095, "train.txt and test.txt"),
        _xc("wikilshtc-325k", 1_617_899, 325_056, 1_778_351, 587_084, "train.txt and test.txt"),
        _xc("amazon-670k", 135_909, 670_091, 490_449, 153_025, "train.txt and test.txt"),
        _xc("lf-amazontitles-131k", 40_000, 131_073, 294_805, 134_835, "train.txt and test.txt"),
        _xc("lf-wikiseealsotitles-320k", 40_000, 312_330, 693_082, 177_515, "train.txt and test.txt"),
        DataSet(
            "cifar-10",
            "32x32 photographs",
            {"train": 50_000, "test": 10_000, "classes": 10},
            "Krizhevsky 2009",
            f"{TORONTO}cifar.html",
            (
                File(
                    "cifar-10-python.tar.gz",
                    "c58f30108f718f92721af3b95e74349a",
                    f"{TORONTO}cifar-10-python.tar.gz",
                ),
            ),
            "cifar-10-python.tar.gz",
            "cifar-10-python.tar.gz, cifar-10-binary.tar.gz, or a folder cifar-10 of PNGs",
        ),
        DataSet(
            "cifar-100",
            "32x32 photographs",
            {"train": 50_000, "test": 10_000, "classes": 100},
            "Krizhevsky 2009",
            f"{TORONTO}cifar.html",
            (
                File(
                    "cifar-100-python.tar.gz",
                    "eb9058c3a382ffc7106e4002c42a8d85",
                    f"{TORONTO}cifar-100-python.tar.gz",
                ),
            ),
            "cifar-100-python.tar.gz",
            "cifar-100-python.tar.gz, cifar-100-binary.tar.gz, or a folder cifar-100 of PNGs",
        ),
        _idx(
            "mnist",
            "28x28 handwritten digits",
            MNIST,
            {
                "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
                "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
                "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
            },
            "LeCun et al. 1998",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        _idx(
            "fashion-mnist",
            "28x28 pictures of clothes",
            FASHION,
            {
                "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
                "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
                "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
            },
            "Xiao et al. 2017; MIT",
            "https://github.com/zalandoresearch/fashion-mnist",
        ),
        DataSet(
            "omniglot",
            "handwritten characters of 50 alphabets",
            {"train": 19_280, "test": 13_180, "classes": 964, "test classes": 659},
            "Lake et al. 2015; MIT",
            "https://github.com/brendenlake/omniglot",
            (
                File(
                    "omniglot/images_background.zip",
                    "68d2efa1b9178cc56df9314c21c6e718",
                    f"{OMNIGLOT}images_background.zip",
                ),
                File(
                    "omniglot/images_evaluation.zip",
                    "6b91aef0f799c5bb55b94e3f2daec811",
                    f"{OMNIGLOT}images_evaluation.zip",
                ),
            ),
            "omniglot",
            "images_background.zip and images_evaluation.zip",
        ),
        DataSet(
            "online-products",
            "Stanford Online Products",
            {"train": 59_551, "test": 60_502, "classes": 11_318, "test classes": 11_316},
            "Song et al. 2016; research use",
            "https://cvgl.stanford.edu/projects/lifted_struct/",
            (
                File(
                    "Stanford_Online_Products.zip",
                    "7f73d41a2f44250d4779881525aea32e",
                    "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
                ),
            ),
            "Stanford_Online_Products.zip",
        ),
    )
}

FORMATS: dict[str, str] = {
    "npz": "your arrays: x, y and client in one .npz file",
    "image-folder": "your pictures, one folder per class or person",
    "interactions": "your events: user, item, time as CSV or Parquet",
    "xc-text": "extreme-classification text with a header `N D L`",
    "libsvm": "libsvm text, several labels a row",
    "mulan": "Mulan ARFF with its XML",
    "idx": "MNIST's file format",
    "movielens": "any MovieLens zip or folder",
    "synthetic": "made-up extremes of any size; nothing to get",
}
