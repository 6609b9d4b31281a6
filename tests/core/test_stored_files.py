"""Files as they are written: whole, with their digests, and tensors as the format's own library reads them."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from spreadout.core.checksums import digest_of, read_json, sealed, unsealed
from spreadout.core.files import append, cut, sweep, write_atomic
from spreadout.core.tensor_files import TYPES, tensor_file_bytes, write_tensors


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    assert (
        write_atomic(path, [b"new ", memoryview(b"words")]) == hashlib.sha256(b"new words").hexdigest()
    )
    assert path.read_text() == "new words"

    def broken():  # type: ignore[no-untyped-def]
        yield b"half"
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        write_atomic(path, broken())
    assert path.read_text() == "new words"
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_an_error_names_the_file_not_the_temporary_one(tmp_path: Path) -> None:
    for work in (
        lambda path: write_atomic(path, b"x"),
        lambda path: append(path, b"x"),
        lambda path: cut(path, 0),
    ):
        path = tmp_path / "nowhere" / "file"
        with pytest.raises(FileNotFoundError) as told:
            work(path)
        assert told.value.filename == str(path)


def test_only_temporary_files_of_these_names_are_swept(tmp_path: Path) -> None:
    swept = [".a.json.123", ".state-00000004.safetensors.7"]
    kept = ["a.json", ".a.json", ".a.json.bak", ".notes.2024", ".b.json.123"]
    for name in (*swept, *kept):
        (tmp_path / name).touch()
    sweep(tmp_path, ["a.json", "state-*.safetensors"])
    assert {one.name for one in tmp_path.iterdir()} == set(kept)
    sweep(tmp_path / "nowhere", ["a.json"])


def test_a_sealed_record_is_itself_or_refused() -> None:
    record = {"a": [1, 2.5, None], "b": {"c": "é", "nan": float("nan")}, "n": 10**20}
    back = json.loads(json.dumps(sealed(record), indent=3))
    assert unsealed(back) == {**record, "b": {"c": "é", "nan": None}}
    for other in ({**back, "n": 1}, {**back, "new": 1}, {"a": 1}, {**back, "check": "x"}, [back], None):
        with pytest.raises(ValueError, match=r"checksum|no JSON object"):
            unsealed(other)


def test_json_that_is_nested_too_deep_is_a_value_error(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deep"):
        read_json(tmp_path / "deep")


def test_the_digest_of_the_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abcdef")
    assert digest_of(tmp_path / "a", 3) == hashlib.sha256(b"abc").hexdigest()
    assert digest_of(tmp_path / "a") == digest_of(tmp_path / "a", 6)


def test_tensors_are_read_by_the_formats_own_library(tmp_path: Path) -> None:
    tensors = {f"{name} é": torch.arange(6).reshape(2, 3).to(dtype) for dtype, name in TYPES.items()} | {
        "empty": torch.empty(0, 3),
        "number": torch.tensor(3.5),
        "turned": torch.randn(4, 5).T,
        "needs grad": torch.nn.Parameter(torch.randn(2)),
    }
    path = tmp_path / "t.safetensors"
    assert write_tensors(path, tensors) == digest_of(path)
    found = load_file(path)
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)
    assert path.stat().st_size == tensor_file_bytes(tensors)
    plain = {name: value.detach().contiguous() for name, value in tensors.items()}
    assert len(save(plain)) == path.stat().st_size  # not a byte more than theirs
