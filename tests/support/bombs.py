"""Files and messages that would become a gigabyte or more, and how much memory they really take.

`python tests/support/bombs.py FOLDER` makes and reads each in turn, in a process of its own, and prints a
line of JSON for each: what was said, and by how much the process grew at most.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import json
import pickle
import re
import resource
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch

from spreadout.core.errors import UserError
from spreadout.data.io.npz import read_npy
from spreadout.data.sources.arrays import Npz
from spreadout.data.sources.cifar import Cifar
from spreadout.data.sources.idx import Idx
from spreadout.data.sources.image_folder import ImageFolder
from spreadout.data.sources.interactions import Interactions
from spreadout.data.sources.libsvm import LibSVM
from spreadout.data.sources.mulan_arff import MulanArff
from spreadout.data.sources.xc_text import XCText

GIB = 1 << 30
BLOCK = 1 << 24
Bomb = Callable[[Path], object]
BOMBS: dict[str, Bomb] = {}


def bomb(made: Bomb) -> Bomb:
    BOMBS[made.__name__] = made
    return made


def deflated(head: bytes, zeros: int) -> bytes:
    """Raw deflate of a head and then of zeros, made without compressing them all."""
    first = zlib.compressobj(9, zlib.DEFLATED, -15)
    begin = first.compress(head) + first.flush(zlib.Z_FULL_FLUSH)
    return begin + _zeros() * (zeros // BLOCK) + b"\x03\x00"


@cache
def _zeros() -> bytes:
    block = zlib.compressobj(9, zlib.DEFLATED, -15)
    return block.compress(bytes(BLOCK)) + block.flush(zlib.Z_FULL_FLUSH)


def zipped(path: Path, name: str, head: bytes, zeros: int) -> Path:
    """A zip with one member, whose checksum nobody gets to see."""
    packed, size, raw = deflated(head, zeros), len(head) + zeros, name.encode()
    crc = 0 if zeros else zlib.crc32(head)
    about = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, crc, len(packed), size, len(raw), 0)
    local = b"PK\x03\x04" + about + raw + packed
    central = b"PK\x01\x02" + struct.pack("<H", 20) + about + struct.pack("<HHHII", 0, 0, 0, 0, 0) + raw
    end = struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
    path.write_bytes(local + central + b"PK\x05\x06" + end)
    assert zipfile.ZipFile(path).infolist()[0].file_size == size
    return path


def gzipped(path: Path, head: bytes, zeros: int) -> Path:
    path.write_bytes(gzip.compress(head) + _gzipped_zeros() * (zeros // BLOCK))
    return path


@cache
def _gzipped_zeros() -> bytes:
    return gzip.compress(bytes(BLOCK))


def npy_head(shape: str, kind: str = "|u1") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def tar_head(name: bytes, size: int, kind: bytes) -> bytes:
    head = bytearray(tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT))
    head[:100] = name.ljust(100, b"\0")
    head[124:136] = b"%011o\0" % size if size >= 0 else b"\xff" + (size + (1 << 88)).to_bytes(11, "big")
    head[156:157] = kind
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


@bomb
def npz_array_nobody_asked_for(folder: Path) -> object:
    return Npz().read(zipped(folder / "a.npz", "junk.npy", npy_head(f"({GIB},)"), GIB))


@bomb
def npz_array_of_zeros(folder: Path) -> object:
    return Npz().read(zipped(folder / "a.npz", "x.npy", npy_head(f"({GIB >> 8}, 256)"), GIB))


@bomb
def npz_array_that_is_not_there(folder: Path) -> object:
    return Npz().read(zipped(folder / "a.npz", "x.npy", npy_head(f"({1 << 40}, 4)"), 0))


@bomb
def npz_of_a_node(folder: Path) -> object:
    from spreadout.flower.data import own_file

    return own_file(zipped(folder / "a.npz", "x.npy", npy_head(f"({GIB >> 8}, 256)"), GIB), classes=3)


@bomb
def npy_to_predict(folder: Path) -> object:
    (folder / "a.npy").write_bytes(npy_head(f"({GIB}, 8)", "<f8") + bytes(100))
    return read_npy(folder / "a.npy")


@bomb
def zip_member(folder: Path) -> object:
    return XCText().parse(zipped(folder / "a.zip", "train.txt", b"1 1 1\n", GIB))


@bomb
def gz_file(folder: Path) -> object:
    return Interactions().parse(gzipped(folder / "a.csv.gz", b"user,item,time\n", GIB))


@bomb
def bz2_file(folder: Path) -> object:
    (folder / "a.bz2").write_bytes(bz2.compress(bytes(BLOCK >> 2)) * 256)
    return LibSVM().parse(folder / "a.bz2")


@bomb
def tar_member(folder: Path) -> object:
    return XCText().parse(gzipped(folder / "a.tar.gz", tar_head(b"train.txt", GIB, b"0"), GIB))


@bomb
def tar_name_of_a_gigabyte(folder: Path) -> object:
    return XCText().parse(gzipped(folder / "a.tar.gz", tar_head(b"././@LongLink", GIB, b"L"), GIB))


@bomb
def tar_notes_of_a_gigabyte(folder: Path) -> object:
    return XCText().parse(gzipped(folder / "a.tar.gz", tar_head(b"notes", GIB, b"x"), GIB))


@bomb
def tar_of_half_a_million_members(folder: Path) -> object:
    block = gzip.compress(tar_head(b"a", 0, b"0") * (BLOCK // 512))
    (folder / "a.tar.gz").write_bytes(block * 16)
    return XCText().parse(folder / "a.tar.gz")


@bomb
def tar_member_below_zero(folder: Path) -> object:
    """Not large, but read for ever: its end lies before its beginning."""
    (folder / "a.tar").write_bytes(tar_head(b"train.txt", -512, b"0") + bytes(2048))
    return XCText().parse(folder / "a.tar")


@bomb
def parquet_of_equal_rows(folder: Path) -> object:
    import pyarrow as arrow
    from pyarrow import parquet

    one = np.zeros(1 << 20, dtype=np.int64)
    table = arrow.table({"user": one, "item": one, "time": one})
    with parquet.ParquetWriter(folder / "a.parquet", table.schema) as writer:
        for _ in range(24):
            writer.write_table(table)
    return Interactions().parse(folder / "a.parquet")


@bomb
def parquet_of_one_long_name(folder: Path) -> object:
    import pyarrow as arrow
    from pyarrow import parquet

    name = arrow.DictionaryArray.from_arrays(np.zeros(4000, dtype=np.int32), ["x" * (1 << 18)])
    rows = np.arange(4000)
    parquet.write_table(arrow.table({"user": name, "item": rows, "time": rows}), folder / "a.parquet")
    return Interactions().parse(folder / "a.parquet")


@bomb
def parquet_with_a_false_footer(folder: Path) -> object:
    """Pages of zeros that the footer says are small."""
    import pyarrow as arrow
    from pyarrow import parquet

    path, cell = folder / "a.parquet", bytes(GIB >> 4)
    table = arrow.table({"user": arrow.array([cell], arrow.binary()), "item": [1], "time": [1]})
    how = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    with parquet.ParquetWriter(path, table.schema, **how) as writer:
        for _ in range(16):
            writer.write_table(table)
    raw, about = path.read_bytes(), parquet.read_metadata(path)
    start = len(raw) - 8 - struct.unpack("<I", raw[-8:-4])[0]
    foot, group = raw[start:], about.row_group(0)
    for size in (group.column(0).total_uncompressed_size, group.total_byte_size):
        true = varint(size)
        foot = foot.replace(true, varint(1000, len(true)))
    path.write_bytes(raw[:start] + foot)
    assert parquet.read_metadata(path).row_group(15).column(0).total_uncompressed_size == 1000
    return Interactions().parse(path)


def varint(value: int, length: int = 0) -> bytes:
    """A number as Thrift has it, filled up to a length."""
    found, left = [], 2 * value
    while left or len(found) < length or not found:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes([*found[:-1], found[-1] & 127])


@bomb
def parquet_of_names_that_begin_alike(folder: Path) -> object:
    """Every name is stored as the length of what it has in common with the last one."""
    import pyarrow as arrow
    from pyarrow import parquet

    rows = 1 << 16
    names = arrow.array([b"x" * 1000] * rows, arrow.binary())
    table = arrow.table({"user": names, "item": np.zeros(rows), "time": np.zeros(rows)})
    how = {"use_dictionary": ["item", "time"], "column_encoding": {"user": "DELTA_BYTE_ARRAY"}}
    with parquet.ParquetWriter(folder / "a.parquet", table.schema, **how) as writer:
        for _ in range(16):
            writer.write_table(table)
    return Interactions().parse(folder / "a.parquet")


@bomb
def csv_of_one_long_name(folder: Path) -> object:
    rows = b"u,i,1\n" * (1 << 20)
    (folder / "a.csv").write_bytes(b"user,item,time\n" + b"x" * 1000 + b",i,1\n" + rows)
    return Interactions().parse(folder / "a.csv")


@bomb
def png_of_many_pixels(folder: Path) -> object:
    side = 13_000  # 169 million pixels in 20 kB
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)),
              (b"IDAT", b"\x78\x9c" + deflated(b"", side * (side // 8 + 2))), (b"IEND", b""))  # fmt: skip
    raw = b"".join(
        struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks
    )
    (folder / "class").mkdir()
    (folder / "class" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + raw)
    return ImageFolder().parse(folder)


def tiled(side: int, kind: int = 4) -> bytes:
    """A TIFF picture of 64 x 64 pixels in a tile of so many; `kind` is the type its width is given in."""
    size = 4 * side * side
    packed = zlib.compress(bytes(size)) if size < BLOCK else b"\x78\x9c" + deflated(b"", size)
    tags = [(256, 4, 1, 64), (257, 4, 1, 64), (258, 3, 4, 0), (259, 3, 1, 8), (262, 3, 1, 2), (277, 3, 1, 4),
            (322, kind, 1, side), (323, 4, 1, side), (324, 4, 1, 0), (325, 4, 1, len(packed)), (338, 3, 1, 2)]  # fmt: skip
    end = 8 + 2 + 12 * len(tags) + 4
    places = {258: end, 324: end + 8}
    head = b"".join(struct.pack("<HHII", tag, t, n, places.get(tag, value)) for tag, t, n, value in tags)
    about = struct.pack("<H", len(tags)) + head + struct.pack("<I", 0) + struct.pack("<4H", 8, 8, 8, 8)
    return b"II*\0" + struct.pack("<I", 8) + about + packed


@bomb
def tiff_of_one_large_tile(folder: Path) -> object:
    (folder / "class").mkdir()
    (folder / "class" / "a.tif").write_bytes(tiled(16_384))
    return ImageFolder().parse(folder)


@bomb
def idx_of_many_pictures(folder: Path) -> object:
    head = bytes([0, 0, 8, 3]) + struct.pack(">III", GIB >> 10, 32, 32)
    gzipped(folder / "train-images-idx3-ubyte.gz", head, GIB)
    return Idx().parse(folder)


@bomb
def xml_of_a_billion_laughs(folder: Path) -> object:
    (folder / "a.arff").write_text("@relation a\n@attribute a {0,1}\n@data\n1\n")
    entities = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    (folder / "a.xml").write_text(
        f'<!DOCTYPE x [<!ENTITY l0 "lol">{entities}]><labels><label name="&l9;"/></labels>'
    )
    return MulanArff().parse(folder)


def cifar(folder: Path, batch: bytes) -> object:
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (folder / name).write_bytes(batch)
    return Cifar(name="cifar-10").parse(folder)


@bomb
def pickle_that_numbers_far(folder: Path) -> object:
    return cifar(folder, b"\x80\x02]r" + struct.pack("<I", 1 << 26) + b".")


@bomb
def pickle_of_an_array_that_is_not_there(folder: Path) -> object:
    call = b"cnumpy\nndarray\n" + pickle.dumps((GIB * 4,), protocol=2)[2:-1] + b"\x85R"
    return cifar(folder, b"\x80\x02" + call + b".")


@bomb
def message_that_promises_more(folder: Path) -> object:
    from flwr.app import Array, ArrayRecord, RecordDict

    from spreadout.flower import messages

    tensor = {"0 a": {"dtype": "F32", "shape": [GIB], "data_offsets": [0, 4 * GIB]}}
    for head in (json.dumps(tensor).encode(), b"{}"):
        size = len(head) if head != b"{}" else 1 << 40
        data = size.to_bytes(8, "little") + head + bytes(64)
        record = ArrayRecord({messages.ONE: Array("uint8", (len(data),), messages.STYPE, data)})
        try:
            messages.tensors_in(RecordDict({"updates": record}), "updates")
        except messages.Malformed as error:
            refused = error
    raise UserError(str(refused))


def memory(what: str) -> int:
    """Bytes: of this process now (VmRSS), or at most so far (VmHWM)."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def main(folder: Path) -> None:
    torch.zeros(1)
    for name, go in BOMBS.items():
        own = folder / name
        own.mkdir()
        _warm(name)
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far is what there is now
        before, said = memory("VmRSS"), "nothing"
        try:
            go(own)
        except UserError as error:
            said = str(error)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        # Of a child what it took beyond what this process has: it is counted from there.
        child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
        grew = max(memory("VmHWM"), child) - before
        print(json.dumps({"bomb": name, "said": said, "grew": grew}), flush=True)


def _warm(name: str) -> None:
    """What a reader imports late is not counted."""
    for start, module in LATE.items():
        if name.startswith(start):
            importlib.import_module(module)


LATE = {
    "parquet": "pyarrow.parquet",
    "png": "PIL.ImageOps",
    "tiff": "PIL.TiffImagePlugin",
    "message": "spreadout.flower.messages",
    "npz_of_a_node": "spreadout.flower.data",
}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
