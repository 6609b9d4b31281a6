"""Pictures as the run's own were read: to one size, in its channels, as bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spreadout.core.errors import UserError
from spreadout.data.io.archive import opened
from spreadout.data.sources.idx import read_idx_file
from spreadout.data.sources.images import decode_all, is_picture
from spreadout.data.unlabelled.wanted import Unlabelled, Wanted


def read_pictures(path: Path, wanted: Wanted) -> Unlabelled:
    """A picture, or all of them in a folder or archive, by name."""
    with opened(path) as archive:
        names = [path.name] if path.is_file() and is_picture(path.name) else archive.names
        names = sorted(filter(is_picture, names))
        if not names:
            raise UserError(f"{path}: holds no pictures; this run takes {wanted.described}")
        size, grey = refuse_unless_pictures(str(path), wanted)
        pixels = decode_all(names, archive.read, archive.label, size=size, grey=grey)
    return Unlabelled(as_trained(pixels.numpy(), wanted), called=names)


def read_picture_files(paths: list[Path], wanted: Wanted) -> Unlabelled:
    """Pictures wherever they lie, in this order."""
    for path in paths:
        if not is_picture(path.name):
            raise UserError(f"{path}: is no picture; give them, or one file of inputs by itself")
        if not path.is_file():
            raise UserError(f"{path}: no such file")
    names = [str(path) for path in paths]
    size, grey = refuse_unless_pictures(names[0], wanted)
    pixels = decode_all(names, lambda name: Path(name).read_bytes(), str, size=size, grey=grey)
    return Unlabelled(as_trained(pixels.numpy(), wanted), called=names)


def read_picture_bytes(pictures: list[bytes], wanted: Wanted) -> Unlabelled:
    """Pictures that are in no file, such as those of a request."""
    size, grey = refuse_unless_pictures("a picture", wanted)
    names = [str(number) for number in range(len(pictures))]
    pixels = decode_all(
        names, lambda name: pictures[int(name)], lambda name: f"picture {name}", size=size, grey=grey
    )
    return Unlabelled(as_trained(pixels.numpy(), wanted))


def read_idx(path: Path, wanted: Wanted) -> Unlabelled:
    """MNIST's own files of images."""
    return Unlabelled(read_idx_file(path, 3).numpy()[:, None])


def refuse_unless_pictures(what: str, wanted: Wanted) -> tuple[int, bool]:
    """The side of the run's pictures, and whether they are grey."""
    if wanted.image is None:
        raise UserError(f"{what}: this run takes {wanted.described}, and no pictures")
    channels, high, wide = wanted.image
    if not wanted.bytes_are_pixels:
        raise UserError(
            f"{what}: this run was trained on numbers, and nothing says how pixels become them; give an "
            f"array, {wanted.described}"
        )
    if high != wide or channels not in (1, 3):
        raise UserError(f"{what}: this run takes {wanted.described}; give them as an array of bytes")
    return high, channels == 1


def as_trained(pixels: np.ndarray, wanted: Wanted) -> np.ndarray:
    """Bytes (n, channels, side, side); ink is bright where the source has made it so."""
    dark = wanted.source is not None and wanted.source.turns_ink_bright
    return 255 - pixels if dark else pixels
