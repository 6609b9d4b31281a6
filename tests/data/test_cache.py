"""What is kept beside a source: made once, keyed by content, never half there."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.data.io import cache, stored
from spreadout.data.sources.libsvm import LibSVM
from spreadout.data.sources.mulan_arff import MulanArff
from spreadout.data.sources.xc_text import XCText

TEXT = "2 3 4\n1 0:1\n2,3 1:2 2:1\n"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SPREADOUT_CACHE", raising=False)
    path = tmp_path / "set.txt"
    path.write_text(TEXT)
    return path


def entries(folder: Path) -> list[Path]:
    return [entry for entry in folder.glob("*") if not entry.name.startswith(".")]


def test_a_source_is_parsed_once_and_reads_the_same_from_the_cache(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xc = XCText(name="xc-text")
    first = xc.read(source)
    monkeypatch.setattr(XCText, "parse", lambda self, path: pytest.fail("parsed again"))
    second = xc.read(source)
    for found in (first, second):
        every = torch.arange(2)
        assert found.train.columns["x"].take(every).tolist() == [[1, 0, 0], [0, 2, 1]]
        assert [found.train.labels[i].tolist() for i in range(2)] == [[1], [2, 3]]
    assert len(entries(source.parent / ".spreadout-cache")) == 1


def test_other_content_or_options_are_another_entry(source: Path) -> None:
    XCText(name="xc-text").read(source)
    before = source.stat()
    source.write_text(TEXT.replace("0:1", "0:7"))  # as long as before
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert XCText(name="xc-text").read(source).train.columns["x"].take(torch.tensor(0)).tolist() == [
        7,
        0,
        0,
    ]
    XCText(name="xc-text", split=1).read(source)
    assert len(entries(source.parent / ".spreadout-cache")) == 3


def test_nothing_half_built_stays_when_a_source_is_broken(source: Path) -> None:
    source.write_text(TEXT.replace("2,3", "2,9"))
    with pytest.raises(so.UserError, match=r"set.txt:3: label 9"):
        XCText(name="xc-text").read(source)
    folder = source.parent / ".spreadout-cache"
    assert entries(folder) == []
    assert [f for f in folder.iterdir() if f.is_dir()] == []


def test_a_damaged_entry_is_made_again(source: Path) -> None:
    xc = XCText(name="xc-text")
    xc.read(source)
    (entry,) = entries(source.parent / ".spreadout-cache")
    (entry / "train-labels.npy").write_bytes(b"")
    assert xc.read(source).train.labels.values.tolist() == [1, 2, 3]
    for damage in ("{", "[]", '{"files": {}}'):
        (entry / stored.INDEX).write_text(damage)
        assert xc.read(source).train.labels.values.tolist() == [1, 2, 3]


def _slow_entry(source: Path, tally: Path, wait: float) -> None:
    def write(folder: Path) -> None:
        with open(tally, "a") as file:
            file.write("made\n")
        time.sleep(wait)
        np.save(folder / "a.npy", np.zeros(1))
        stored.write_index(folder, {})

    cache.cached(source, [source], "slow", write)


def test_two_processes_make_an_entry_once(source: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    tally = tmp_path / "tally"
    workers = [context.Process(target=_slow_entry, args=(source, tally, 0.3)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert tally.read_text() == "made\n"


def test_an_entry_whose_maker_was_killed_is_made_by_the_next(source: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    tally = tmp_path / "tally"
    worker = context.Process(target=_slow_entry, args=(source, tally, 600))
    worker.start()
    while not tally.exists() or not tally.read_text():
        time.sleep(0.02)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    _slow_entry(source, tally, 0)  # neither waits for the dead nor trips over what it left
    assert tally.read_text() == "made\nmade\n"
    folder = source.parent / ".spreadout-cache"
    assert len([f for f in folder.iterdir() if f.is_dir()]) == 1


def test_a_folder_that_may_not_be_written_is_left_alone(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    locked = tmp_path / "locked"
    locked.mkdir()
    source = source.rename(locked / "set.txt")
    locked.chmod(0o555)
    try:
        XCText(name="xc-text").read(source)
    finally:
        locked.chmod(0o755)
    assert [f.name for f in locked.iterdir()] == ["set.txt"]
    assert len(entries(tmp_path / "own" / "spreadout")) == 1


def test_an_image_folder_is_keyed_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(b"x")
    before = cache.key([tmp_path / "a"], "")
    assert cache.key([tmp_path / "a"], "") == before
    (tmp_path / "a" / "2.png").write_bytes(b"x")
    assert cache.key([tmp_path / "a"], "") != before


def test_every_file_a_source_reads_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPREADOUT_CACHE", raising=False)
    train = tmp_path / "svm" / "data"
    train.parent.mkdir()
    train.write_text("1 1:1\n2 2:1\n")
    assert LibSVM().read(train).test is None
    train.with_name("data.t").write_text("1 1:1\n")
    assert LibSVM().read(train).test is not None
    arff = tmp_path / "mulan" / "toy.arff"
    arff.parent.mkdir()
    arff.write_text("@attribute a numeric\n@attribute b {0,1}\n@attribute c {0,1}\n@data\n1,0,1\n")
    xml = arff.with_name("toy.xml")
    xml.write_text('<labels><label name="c"/></labels>')
    assert MulanArff(name="mulan").read(arff).classes == 1
    xml.write_text('<labels><label name="b"/><label name="c"/></labels>')
    assert MulanArff(name="mulan").read(arff).classes == 2


def test_a_folder_counts_by_what_is_in_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPREADOUT_CACHE", raising=False)
    folder = tmp_path / "xc"
    folder.mkdir()
    for part in ("train", "test"):
        (folder / f"{part}.txt").write_text(TEXT)
    first = XCText(name="xc-text").read(folder)
    before = (folder / "train.txt").stat()
    (folder / "train.txt").write_text(TEXT.replace("2,3", "0,3"))
    os.utime(folder / "train.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    second = XCText(name="xc-text").read(folder)
    assert (first.train.labels.values.tolist(), second.train.labels.values.tolist()) == (
        [1, 2, 3],
        [1, 0, 3],
    )


def test_files_behind_links_count_as_they_are_read(tmp_path: Path) -> None:
    real, folder = tmp_path / "real", tmp_path / "set"
    real.mkdir()
    folder.mkdir()
    (real / "train.txt").write_text(TEXT)
    (folder / "part").symlink_to(real)
    before = cache.key([folder], "")
    (real / "train.txt").write_text(TEXT.replace("1 0:1", "1 0:7"))
    assert cache.key([folder], "") != before
