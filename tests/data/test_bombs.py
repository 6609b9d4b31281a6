"""What becomes a gigabyte is refused before it does, whatever it is packed in."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spreadout as so
from spreadout.core.limits import VARIABLE, refuse_bomb, unpack_limit
from spreadout.data.io.npz import read_npy, read_npz
from spreadout.data.sources.libsvm import LibSVM

LIMIT_GB = 0.0625
# The limit, and what cutting text into numbers takes beside it.
MOST_MEMORY = 5 * LIMIT_GB * 2**30
SAID = {
    "npz_array_nobody_asked_for": "array 'junk' is unknown; known: client, x",
    "npz_array_of_zeros": "refused as a bomb",
    "npz_array_that_is_not_there": "refused as a bomb",
    "npz_of_a_node": "refused as a bomb",
    "npy_to_predict": "refused as a bomb",
    "zip_member": "refused as a bomb",
    "gz_file": "refused as a bomb",
    "bz2_file": "refused as a bomb",
    "tar_member": "refused as a bomb",
    "tar_name_of_a_gigabyte": "a name or notes of 1,073,741,824 bytes: a bomb",
    "tar_notes_of_a_gigabyte": "a name or notes of 1,073,741,824 bytes: a bomb",
    "tar_of_half_a_million_members": "refused as a bomb",
    "tar_member_below_zero": "a member of -512 bytes",
    "parquet_of_equal_rows": "refused as a bomb",
    "parquet_of_one_long_name": "longer than 1,024 bytes",
    "parquet_with_a_false_footer": "refused as a bomb",
    "parquet_of_names_that_begin_alike": "refused as a bomb",
    "csv_of_one_long_name": "refused as a bomb",
    "png_of_many_pixels": "a picture of 13,000 x 13,000 pixels: unpacks to",
    "tiff_of_one_large_tile": "a picture of 64 x 64 pixels: unpacks to 3,221,225,472 bytes",
    "idx_of_many_pictures": "refused as a bomb",
    "xml_of_a_billion_laughs": "not well-formed XML",
    "pickle_that_numbers_far": "it numbers a value 67108864",
    "pickle_of_an_array_that_is_not_there": "not a CIFAR batch",
    "message_that_promises_more": "header too large",
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What reading each bomb said and took, in a process of its own."""
    script = Path(__file__).parents[1] / "support" / "bombs.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path_factory.mktemp("bombs"))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, VARIABLE: str(LIMIT_GB), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return {found["bomb"]: found for found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", SAID)
def test_a_bomb_is_one_line_and_little_memory(reports: dict[str, dict[str, Any]], name: str) -> None:
    assert SAID[name] in reports[name]["said"]
    assert reports[name]["grew"] < MOST_MEMORY


def test_every_bomb_is_looked_at(reports: dict[str, dict[str, Any]]) -> None:
    assert reports.keys() == SAID.keys()


def test_the_limit_is_one_that_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"1 1:1\n" * 500_000))  # 3 MB in 5 kB
    monkeypatch.setenv(VARIABLE, "0.001")
    with pytest.raises(so.UserError, match=f"over 0.001 GiB .* refused as a bomb; .* set {VARIABLE}"):
        LibSVM().parse(path)
    monkeypatch.setenv(VARIABLE, "0.01")
    assert len(LibSVM().parse(path).train) == 500_000
    for wrong in ("much", "-1", "0", "nan", "inf"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(so.UserError, match=f"{VARIABLE} = '{wrong}': set a number of gibibytes"):
            LibSVM().parse(path)


def test_the_limit_grows_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert unpack_limit(0) == 2**28
    assert unpack_limit(2**30) == 50 * 2**30
    refuse_bomb("f", 2**28, 1)
    with pytest.raises(so.UserError, match="f: unpacks to 268,435,457 bytes or more"):
        refuse_bomb("f", 2**28 + 1, 1)


@pytest.mark.parametrize("kind", ["f4", ">i2", "?", "u8", "c8", "M8[s]", "S3", "f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_what_numpy_reads(tmp_path: Path, kind: str, order: str) -> None:
    array = np.asarray(np.arange(24).reshape(4, 6) % 7, order=order).astype(kind)
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", x=array, junk=array, nothing=np.zeros((0, 3)))
    expected = np.load(tmp_path / "a.npy")
    for found in (read_npy(tmp_path / "a.npy"), read_npz(tmp_path / "a.npz", ["x"], others=True)["x"]):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
        assert found.flags.writeable
    assert read_npz(tmp_path / "a.npz", ["nothing"], others=True)["nothing"].shape == (0, 3)


def test_arrays_of_objects_are_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    with pytest.raises(so.UserError, match=r"holds Python objects, .* by \.astype\(str\)"):
        read_npy(tmp_path / "a.npy")
    np.savez(tmp_path / "a.npz", x=np.eye(2), y=np.array(["ash", "fir"], dtype=object))
    with pytest.raises(so.UserError, match=r"a.npz: array 'y': holds Python objects, .*astype\(str\)"):
        read_npz(tmp_path / "a.npz", ["x", "y"])
