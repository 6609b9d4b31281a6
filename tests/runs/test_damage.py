"""Files of a run folder that were damaged or changed: refused in one line that names the file, or the
answer is the one it always was. Never a traceback, never another answer."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest

import spreadout as so
from command import invoke
from spreadout.core.chained_log import ChainedLog
from spreadout.core.errors import UserError
from spreadout.runs.folder import RunFolder
from spreadout.runs.sums import check
from tiny import result_of, tiny

Damage = Callable[[bytes, random.Random], bytes]


def _flip(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _not_text(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + b"\xff" + data[at + 1 :]


def _without_a_line(data: bytes, draw: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[draw.randrange(len(lines))]
    return b"".join(lines)


def _another_digit(data: bytes, draw: random.Random) -> bytes:
    places = [at for at, byte in enumerate(data) if chr(byte).isdigit()]
    at = draw.choice(places) if places else 0
    return data[:at] + str((int(data[at : at + 1] or b"0") + 1) % 10).encode() + data[at + 1 :]


DAMAGES: dict[str, Damage] = {
    "a bit": _flip,
    "cut": _cut,
    "not text": _not_text,
    "a line": _without_a_line,
    "a digit": _another_digit,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one killed after its first checkpoint, and a comparison, on data in a file."""
    home = tmp_path_factory.mktemp("damage")
    y = np.repeat(np.arange(3), 4)
    np.savez(home / "data.npz", x=np.eye(3, 4, dtype=np.float32)[y], y=y)
    np.save(home / "x.npy", np.eye(3, 4, dtype=np.float32))
    e = tiny(data={"source": "npz", "path": str(home / "data.npz")})
    so.run(e, out=home / "finished", device="cpu")

    class Dies(so.Observer):
        def evaluated(self, record: dict[str, object]) -> None:
            if record["round"] == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        so.run(e, out=home / "killed", device="cpu", observer=Dies())
    so.compare({"a": e}, out=home / "comparison", device="cpu")
    return home


def answers(
    home: Path, folder: Path, ask: Callable[..., tuple[int, str, str]]
) -> Iterator[tuple[str, object]]:
    """What every command that reads the folder says, or the one line with which it refuses."""
    page, kind = home / "page.html", folder.name
    commands = {"report": ["report", str(folder), "-o", str(page)]}
    if kind != "comparison":
        commands["predict"] = ["predict", str(folder), "--input", str(home / "x.npy"), "--json"]
        commands["audit"] = ["audit", str(folder), "--json"]
        commands["resume"] = ["resume", str(folder), "--json", "--device", "cpu"]
    for name, words in commands.items():
        page.unlink(missing_ok=True)
        code, out, err = ask(*words)
        if code == 2:
            assert err.count("\n") == 1, err
            assert err.startswith(f"error: {folder}"), err
            yield name, None
        else:
            assert code == 0, err
            made: object = page.read_text() if name == "report" else out
            yield name, result_of(folder) if name == "resume" else made


def every_file(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())  # each meets three damages


@pytest.mark.parametrize("kind", ["finished", "killed", "comparison"])
def test_a_damaged_file_is_refused_or_does_not_matter(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    def ask(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = invoke(monkeypatch, *words)
        return code, *capsys.readouterr()

    draw, folder = random.Random(0), tmp_path / kind
    shutil.copytree(home / kind, folder)
    right = dict(answers(home, folder, ask))
    refused = dict.fromkeys(right, 0)
    damages = cycle(DAMAGES.values())
    for file in every_file(home / kind):
        for damage in islice(damages, 3):
            shutil.rmtree(folder)
            shutil.copytree(home / kind, folder)
            hurt = folder / file.relative_to(home / kind)
            before = hurt.read_bytes()
            hurt.write_bytes(damage(before, draw) if before else b"?")
            for command, answer in answers(home, folder, ask):
                refused[command] += answer is None
                assert answer is None or answer == right[command], (command, file, damage)
    assert all(refused.values())


@pytest.mark.parametrize("name", ["checkpoint/state.json", "SHA256SUMS", "config.toml"])
def test_every_single_byte_of_what_a_resumed_run_starts_from(
    home: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "killed"
    shutil.copytree(home / "killed", folder)
    whole, saved, refused = (folder / name).read_bytes(), RunFolder(folder).saved(), 0
    for at in range(len(whole)):
        (folder / name).write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            check(folder, "config.toml")
            assert RunFolder(folder).saved() == saved
        except UserError as error:
            refused += str(error).startswith(str(folder)) and "\n" not in str(error)
    assert refused >= (
        len(whole) - 1 if name != "checkpoint/state.json" else 0.8 * len(whole)
    )  # white space


EDITS = [
    ("checkpoint/state.json", '"round": 1', '"round": 0', "state.json: is damaged (its checksum"),
    ("checkpoint/state.json", '"dense_down": ', '"dense_down": 1', "state.json: is damaged (its checksum"),
    ("config.toml", "lr = 0.1", "lr = 0.2", "config.toml: is damaged or was changed (it does not match SHA256SUMS); put it back, or delete SHA256SUMS if you meant to change it"),
    ("metrics.jsonl", '"round": 0', '"round": 7', "metrics.jsonl: is damaged or was changed; restore it from a copy, or run it again with --force (force=True)"),
    ("requests.jsonl", '"client": 0', '"client": 1', "requests.jsonl: is damaged or was changed"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "line"), EDITS, ids=[f"{n} {o}" for n, o, _, _ in EDITS])
def test_what_was_edited_is_named_with_what_to_do(
    home: Path, tmp_path: Path, name: str, old: str, new: str, line: str
) -> None:
    folder = tmp_path / "killed"
    shutil.copytree(home / "killed", folder)
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    with pytest.raises(UserError) as told:
        so.resume(folder, device="cpu")
    assert line in str(told.value)


def test_a_line_cut_short_by_a_kill_is_dropped_and_written_again(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    shutil.copytree(home / "killed", folder)
    for name in ("metrics.jsonl", "requests.jsonl"):
        with open(folder / name, "a") as file:
            file.write('{"round": 2, "cli')
    assert [record["round"] for record in RunFolder(folder).history()] == [0, 1]
    so.resume(folder, device="cpu")
    assert result_of(folder) == result_of(home / "finished")


def test_what_a_run_left_at_its_end_is_made_again_from_its_checkpoint(
    home: Path, tmp_path: Path
) -> None:
    """As the refusals of `predict` and `report` say."""

    class Hears(so.Observer):
        said = ""

        def warned(self, text: str) -> None:
            self.said += text

    for name in ("model/weights.safetensors", "model/about.json", "projection.json", "summary.json"):
        folder, hears = tmp_path / Path(name).stem, Hears()
        shutil.copytree(home / "finished", folder)
        (folder / name).write_bytes(b"?")
        ask = RunFolder(folder).summary if name == "summary.json" else partial(so.load, folder)
        if name != "projection.json":
            with pytest.raises(
                UserError, match=f"{name}: is damaged .* `spreadout resume {folder}` writes"
            ):
                ask()
        so.resume(folder, device="cpu", observer=hears)
        assert "is made again from the checkpoint" in hears.said
        assert result_of(folder) == result_of(home / "finished")


def test_a_folder_without_sums_is_read_with_a_note(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "finished"
    shutil.copytree(home / "finished", folder)
    (folder / "SHA256SUMS").unlink()
    for words in (
        ["report", str(folder), "-o", str(tmp_path / "page.html")],
        ["predict", str(folder), "--input", str(home / "x.npy")],
        ["audit", str(folder)],
        ["resume", str(folder)],
    ):
        assert invoke(monkeypatch, *words) == 0
        said = capsys.readouterr().err
        assert f"{folder}: no SHA256SUMS, as in runs of earlier versions; read without a check" in said
    assert (folder / "SHA256SUMS").is_file()  # it can be checked from now on


def test_a_checkpoint_of_an_earlier_version_is_refused_by_its_number(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    shutil.copytree(home / "killed", folder)
    pointer = folder / "checkpoint" / "state.json"
    old = json.loads(pointer.read_text())
    pointer.write_text(json.dumps({**old, "format": 2}))
    with pytest.raises(UserError, match="checkpoint format 2, this version reads 3; resume it with"):
        so.resume(folder, device="cpu")


def test_a_chained_log_is_read_whole_or_refused(tmp_path: Path) -> None:
    records = [{"client": i, "rows": {"classes": [i, 2 * i]}} for i in range(5)]
    log = ChainedLog(tmp_path / "log")
    for record in records[:4]:
        log.append(record)
    with open(log.path, "a") as file:
        file.write('{"client": 4')  # cut short by a crash
    again = ChainedLog(log.path)
    assert again.read() == records[:4]
    again.append(records[4])
    whole = log.path.read_bytes()
    assert ChainedLog(log.path).read() == records
    for at in range(len(whole)):
        log.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with suppress(UserError):
            assert ChainedLog(log.path).read() in (records, records[:4])  # its last line is cut, or not
    lines = whole.splitlines(keepends=True)
    for order in ([0, 2, 3, 4], [1, 0, 2, 3, 4], [0, 0, 1, 2, 3, 4]):
        log.path.write_bytes(b"".join(lines[i] for i in order))
        with pytest.raises(UserError, match="is damaged or was changed; restore it from a copy"):
            ChainedLog(log.path).read()
    assert ChainedLog(tmp_path / "none").read() == []
