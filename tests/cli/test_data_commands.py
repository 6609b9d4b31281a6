"""`spreadout data`: descriptions that can be worked out by hand, checks that can fail, real downloads."""

import hashlib
import http.server
import json
import math
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.cli.main import main
from spreadout.core.ragged import Ragged
from spreadout.data.catalog import catalogue, formats
from spreadout.data.columns import Dense, Lists
from spreadout.data.dataset import FederatedDataset
from spreadout.data.describe import describe
from spreadout.data.held_out import Examples
from spreadout.data.io.download import fetch
from spreadout.data.published import PublishedDataset, PublishedFile
from spreadout.data.sources import SOURCES
from spreadout.data.sources.base import single
from spreadout.data.sources.movielens import MovieLens
from spreadout.data.splits import Splits
from spreadout.report.data_view import histogram, page, ranked


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPREADOUT_CACHE", str(tmp_path_factory.mktemp("cache")))


def say(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["spreadout", "data", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    code = stopped.value.code
    return code if isinstance(code, int) else 0


# ---------------------------------------------------------------- describe


def small() -> Splits:
    """Client 0: classes 0, 0, 1; client 1: nothing; client 2: class 2, on an instance client 0 has too."""
    x = torch.tensor([[1.0], [2.0], [2.0]])
    index = torch.tensor([0, 1, 2, 0])
    columns = {"x": Dense(x, index=index), "y": Dense(torch.tensor([0, 0, 1, 2]))}
    train = FederatedDataset(columns, torch.tensor([0, 3, 3, 4]), classes=4)
    test = Examples({"x": Dense(torch.tensor([[2.0], [9.0]]))}, Ragged.from_lists([[1], [5, 6]]))
    return Splits("small", train, test)


def test_a_description_says_what_one_can_count_by_hand() -> None:
    found = describe(small())
    assert (found.clients, found.empty_clients, found.examples, found.instances) == (3, 1, 4, 3)
    assert (found.classes, found.classes_held, found.test_classes_never_trained) == (4, 3, 2)
    assert (found.duplicates, found.test_in_training) == (1, 1)
    assert (found.sizes.least, found.sizes.most, found.sizes.mean) == (1, 3, 2)
    assert (found.classes_per_client.least, found.classes_per_client.most) == (1, 2)
    assert found.label_counts.tolist() == [2, 1, 1]
    # Client 0 holds 2/3 and 1/3 of classes whose shares of all are 1/2 and 1/4; client 2 all of a quarter.
    first = 2 / 3 * math.log((2 / 3) / (2 / 4)) + 1 / 3 * math.log((1 / 3) / (1 / 4))
    assert found.divergence_from_all.least == pytest.approx(first)
    assert found.divergence_from_all.most == pytest.approx(math.log(4))
    p, q = np.array([2, 1, 0, 0]) + 0.25, np.array([0, 0, 1, 0]) + 0.25
    p, q = p / p.sum(), q / q.sum()
    between = sorted([float((p * np.log(p / q)).sum()), float((q * np.log(q / p)).sum())])
    assert found.divergence_between.least == pytest.approx(between[0])
    assert found.divergence_between.most == pytest.approx(between[1])


def test_label_sets_and_histories_are_described_too() -> None:
    columns = {
        "history": Lists.of(Ragged.from_lists([[1, 2], [2, 1], [1, 2], [3]]), pad=0),
        "y": Lists.of(Ragged.from_lists([[0, 1], [1], [], [2]])),
    }
    train = FederatedDataset(columns, torch.tensor([0, 2, 4]), 3, {"history": "classes", "y": "classes"})
    test = Examples({"history": columns["history"]}, Ragged.from_lists([[0], [1], [2], [0]]))
    found = describe(Splits("sets", train, test))
    assert found.duplicates == 1  # [1, 2] twice; [2, 1] is another history
    assert found.test_in_training == 4
    assert found.label_counts.tolist() == [2, 1, 1]
    assert found.classes_of.tolist() == [2, 1]


def test_histograms_and_ranks_lose_nobody() -> None:
    values = np.random.default_rng(0).zipf(1.6, 500).clip(max=10_000)
    assert sum(count for _, count in histogram(values)) == 500
    assert sum(count for _, count in histogram(np.array([0, 0, 0, 5, 20]))) == 5
    assert histogram(np.array([2, 2, 4])) == [("2", 2.0), ("3", 0.0), ("4", 1.0)]
    assert histogram(np.array([], dtype=np.int64)) == []
    curve = ranked(np.sort(values)[::-1])
    assert curve[0] == (1, int(values.max()))
    assert curve[-1] == (500, int(values.min()))


def test_describe_prints_plots_and_speaks_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "sub" / "digits.html"
    code = say(monkeypatch, "describe", "digits", "partition=dirichlet", "partition.clients=5",
               "partition.alpha=0.3", "-o", str(target))  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0
    assert re.search(r"clients +5", out)
    assert "KL(client ‖ another)" in out
    assert target.read_text().count("<figure") == 3
    assert "http" not in re.sub(r"http://www.w3.org\S*", "", target.read_text())  # self-contained
    assert say(monkeypatch, "describe", "digits-fedaws", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["clients"], found["examples"], found["sizes"]["most"]) == (10, 1257, 128)


def test_a_page_survives_data_with_nothing_in_it() -> None:
    empty = FederatedDataset(
        {"x": Dense(torch.zeros(0, 1)), "y": Dense(torch.zeros(0, dtype=torch.int64))},
        torch.tensor([0, 0]),
        classes=2,
    )
    found = describe(
        Splits("none", empty, Examples({"x": Dense(torch.zeros(0, 1))}, Ragged.from_lists([])))
    )
    assert found.classes_held == 0
    assert page(found).count("<figure") == 3


# ---------------------------------------------------------------- list and check


def test_every_known_data_set_can_be_read_by_a_source_and_named_in_a_config() -> None:
    assert {**catalogue(), **formats()}.keys() == set(SOURCES) - {"python"}  # no file: not listed
    assert not catalogue().keys() & formats().keys()
    for data in catalogue().values():
        source = so.Experiment.of({"data": {"source": data.name}}).data.source
        assert source.name == data.name
        assert data in source.published


def test_a_source_of_ones_own_is_listed_with_what_it_says_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SOURCES, "_parts", dict(SOURCES._parts))
    monkeypatch.setenv("SPREADOUT_DATA", str(tmp_path))

    @so.register_source
    class Squares(so.Source):
        """Little squares.

        More about them.
        """

        published: ClassVar = (
            PublishedDataset("squares-9", "nine of them", {"examples": 9}, place="squares.txt"),
        )
        name: str = "squares"

        def read(self, path: Path | None) -> so.RawDataset:
            label = single(torch.arange(int(self.locate(path).read_text())))
            return so.RawDataset(so.Instances({"x": Dense(torch.zeros(len(label), 1))}, label), 9)

    assert say(monkeypatch, "list") == 0
    out = capsys.readouterr().out
    assert re.search(r"squares-9 +– +nine of them\n", out)
    assert re.search(r"squares +Little squares.\n", out)
    assert say(monkeypatch, "check", "squares-9") == 2
    (tmp_path / "squares.txt").write_text("9")
    assert say(monkeypatch, "check", "squares-9") == 0
    (tmp_path / "squares.txt").write_text("8")
    assert say(monkeypatch, "check", "squares-9") == 2
    assert "squares-9: 8 examples, published are 9" in capsys.readouterr().err
    assert say(monkeypatch, "list", "squares") == 2
    assert "squares is a format: Little squares." in capsys.readouterr().err
    with pytest.raises(so.UserError, match=r"data.source = 'squares-8': unknown; did you mean"):
        so.Experiment.of({"data": {"source": "squares-8"}})
    with pytest.raises(so.UserError, match="unknown"):
        Squares(name="squares-8")


def test_list_says_what_is_here_and_where_to_put_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPREADOUT_DATA", str(tmp_path))
    (tmp_path / "bibtex").mkdir()
    assert say(monkeypatch, "list") == 0
    out = capsys.readouterr().out
    assert re.search(r"bibtex +here", out)
    assert re.search(r"movielens-1m +–", out)
    assert say(monkeypatch, "list", "amazon-670k") == 0
    out = capsys.readouterr().out
    assert "670,091 classes" in out
    assert f"put train.txt and test.txt into {tmp_path / 'amazon-670k'}" in out
    assert say(monkeypatch, "list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["digits"]["here"] is not None
    assert rows["cifar-10"]["here"] is None


def test_check_passes_what_is_whole_and_fails_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert say(monkeypatch, "check", "digits") == 0
    assert "1,797  as published" in capsys.readouterr().out
    monkeypatch.setenv("SPREADOUT_DATA", str(tmp_path))
    assert say(monkeypatch, "check", "eurlex-4k") == 2
    assert "eurlex-4k: is not here; download it from" in capsys.readouterr().err
    folder = tmp_path / "eurlex-4k"
    folder.mkdir()
    for part in ("train", "test"):
        (folder / f"eurlex_{part}.txt").write_text("1 5000 3993\n7 0:1\n")
    assert say(monkeypatch, "check", "eurlex-4k") == 2
    shown = capsys.readouterr()
    assert "BAD  train                     1  PUBLISHED 15,539" in shown.out
    assert "ok   features              5,000  as published" in shown.out
    assert shown.err == "error: eurlex-4k: 1 train, published are 15539\n"
    assert say(monkeypatch, "check", "eurlex") == 2
    assert "data set 'eurlex': unknown" in capsys.readouterr().err


def test_check_finds_the_real_files_whole(
    real_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("movielens-1m", "bibtex", "omniglot"):
        assert say(monkeypatch, "check", name, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["wrong"] == []
        assert found["published"].items() <= found["found"].items()


# ---------------------------------------------------------------- fetch


CONTENT = bytes(range(256)) * 4000


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, whole or from where it is asked; /short breaks off after half, once."""

    broken_once = False
    asked: list[str | None] = []  # noqa: RUF012 - one server at a time

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        Handler.asked.append(wanted)
        start = int(wanted.split("=")[1].rstrip("-")) if wanted and "stubborn" not in self.path else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        body = CONTENT[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if "short" in self.path and not Handler.broken_once:
            Handler.broken_once = True
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Handler.broken_once, Handler.asked = False, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


MD5 = hashlib.md5(CONTENT).hexdigest()


def test_a_file_is_fetched_and_checked(server: str, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    fetch(
        f"{server}/a", tmp_path / "deep" / "a.zip", MD5, lambda done, total: seen.append((done, total))
    )
    assert (tmp_path / "deep" / "a.zip").read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [f.name for f in (tmp_path / "deep").iterdir()] == ["a.zip"]


def test_an_interrupted_download_goes_on_where_it_stopped(server: str, tmp_path: Path) -> None:
    target = tmp_path / "a.zip"
    with pytest.raises(so.UserError, match=r"512,000 bytes are kept, run again to continue"):
        fetch(f"{server}/short", target, MD5)
    assert not target.exists()
    fetch(f"{server}/short", target, MD5)
    assert target.read_bytes() == CONTENT
    assert Handler.asked == [None, "bytes=512000-"]


@pytest.mark.parametrize("have", [1000, len(CONTENT)])
def test_a_server_that_cannot_go_on_starts_again_and_a_whole_part_is_taken(
    server: str, tmp_path: Path, have: int
) -> None:
    (tmp_path / "a.zip.part").write_bytes(CONTENT[:have])
    fetch(f"{server}/{'stubborn' if have == 1000 else 'plain'}", tmp_path / "a.zip", MD5)
    assert (tmp_path / "a.zip").read_bytes() == CONTENT


def test_a_file_with_another_checksum_is_thrown_away(server: str, tmp_path: Path) -> None:
    with pytest.raises(so.UserError, match=f"came with MD5 {MD5}, published is 00; it was thrown away"):
        fetch(f"{server}/a", tmp_path / "a.zip", "00")
    assert list(tmp_path.iterdir()) == []


def test_the_fetch_command_brings_a_data_set_and_says_what_it_cannot(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def publish(url: str) -> None:
        file = PublishedFile("ml-100k.zip", MD5, url)
        here = PublishedDataset("movielens-100k", "", {}, "terms", "home", (file,), "ml-100k.zip")
        monkeypatch.setattr(MovieLens, "published", (here,))

    publish(f"{server}/ml-100k.zip")
    monkeypatch.delenv("SPREADOUT_DATA", raising=False)
    assert say(monkeypatch, "fetch", "movielens-100k") == 2
    assert "set SPREADOUT_DATA, or --to" in capsys.readouterr().err
    assert say(monkeypatch, "fetch", "movielens-100k", "--to", str(tmp_path)) == 0
    assert (tmp_path / "ml-100k.zip").read_bytes() == CONTENT
    assert say(monkeypatch, "fetch", "movielens-100k", "--to", str(tmp_path)) == 0
    assert "is here already" in capsys.readouterr().out
    (tmp_path / "ml-100k.zip").write_bytes(b"mine")
    assert say(monkeypatch, "fetch", "movielens-100k", "--to", str(tmp_path)) == 2
    assert "is not the published file; move it away first" in capsys.readouterr().err
    assert (tmp_path / "ml-100k.zip").read_bytes() == b"mine"
    assert say(monkeypatch, "fetch", "eurlex-4k", "--to", str(tmp_path)) == 2
    assert "offers no direct download; download it from http" in capsys.readouterr().err
    publish("http://127.0.0.1:9/ml-100k.zip")
    assert say(monkeypatch, "fetch", "movielens-100k", "--to", str(tmp_path / "x")) == 2
    said = capsys.readouterr().err
    assert "cannot be fetched" in said
    assert f"put it at {tmp_path / 'x' / 'ml-100k.zip'}" in said


def test_clients_without_labels_have_no_divergence() -> None:
    columns = {"x": Dense(torch.zeros(3, 1)), "y": Lists.of(Ragged.from_lists([[0], [1], []]))}
    train = FederatedDataset(columns, torch.tensor([0, 1, 2, 3]), 2)
    found = describe(
        Splits("gaps", train, Examples({"x": Dense(torch.zeros(1, 1))}, Ragged.from_lists([[0]])))
    )
    assert found.divergence_from_all.least == pytest.approx(math.log(2))
    assert found.classes_of.tolist() == [1, 1, 0]


def test_check_looks_at_checksums_wherever_the_file_lies(
    real_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = real_data / "ml-1m.zip"
    assert say(monkeypatch, "check", "movielens-1m", "--path", str(path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["checksums"].keys() == {str(path)}


def test_a_path_may_look_like_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("20").write_text(
        "user,item,time\n" + "".join(f"{u},{i},{i}\n" for u in range(20) for i in range(3))
    )
    assert say(monkeypatch, "describe", "interactions", "--path", "20", "--json") == 0
    assert json.loads(capsys.readouterr().out)["clients"] == 16
