"""Targets: run folders, damaged or edited, read back by every command that reads them; and rosters.

A damaged folder has its checksums, and something in it was changed. An edited one has none, as users are
told they may do, or has checksums that were made anew: only what the files say can tell.
"""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from hypothesis import strategies as st
from safetensors.torch import load, save

import spreadout as so
from fuzz import configs
from fuzz.mutate import mutated
from fuzz.prop import HangError, folder, outcome
from fuzz.target import Target
from spreadout.core.checksums import sealed
from spreadout.core.errors import UserError, memory_ran_out
from spreadout.report.page import write_page
from spreadout.report.terminal import print_summary
from spreadout.runs.arms import arms_of
from spreadout.runs.audit import logged
from spreadout.runs.predict import Predictor

CONFIG: dict[str, Any] = {
    "name": "a",
    "rounds": 2,
    "chosen": [],
    "data": {"source": {"name": configs.FuzzToy().name}},
    "model": {"hidden": [4], "dim": 3},
    "clients": {"local_steps": 1},
    "eval": {"every": 1, "references": False},
    "run": {"log_requests": True},
}
RUN = {"finished": "a/seed-0", "killed": ""}  # where the run is in each kind of folder
CHECKPOINT, WEIGHTS, LOGS = "checkpoint/state.json", "model/weights.safetensors", (".jsonl",)
ODD = (None, -1, 0, 1, 2, 0.5, 10**30, 1e308, -1e-320, float("nan"), True, "", "x", "\n", "..", [], [1], [[]],
       [None, None], {}, {"a": 1}, "9" * 50)  # fmt: skip
Files = dict[str, bytes]


def predict(run: Path, whole: Path) -> None:
    Predictor.load(run).predict(np.zeros((2, 5), np.float32), 2)


def report(run: Path, whole: Path) -> None:
    write_page(arms_of(whole), whole.parent / "page.html", title="x")


def resume(run: Path, whole: Path) -> None:
    with redirect_stdout(io.StringIO()):
        result = so.resume(run, device="cpu")
        print_summary(result.summary, run, as_json=False)
        repr(result)
        result._repr_html_()


READERS: dict[str, Callable[[Path, Path], object]] = {
    "predict": predict,
    "report": report,
    "audit": lambda run, whole: logged(run).looks(),
    "resume": resume,
}


@cache
def base(kind: str) -> Mapping[str, bytes]:
    """The files of a comparison of one run, or of a run that was stopped after a round."""
    with folder() as home:
        if kind == "finished":
            so.compare({"a": so.Experiment.of(CONFIG)}, out=home / "whole", device="cpu")
        else:
            with _stopped():
                so.run(CONFIG, out=home / "whole", device="cpu", stop=lambda: True)
        found = [file for file in (home / "whole").rglob("*") if file.is_file()]
        return {file.relative_to(home / "whole").as_posix(): file.read_bytes() for file in found}


@contextmanager
def _stopped() -> Iterator[None]:
    try:
        yield
    except so.Interrupted:
        return
    raise AssertionError("it was not stopped")


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(RUN)))
    return {"kind": kind, "reader": draw(st.sampled_from(sorted(READERS))), "sums": True,
            "files": _changed(kind, draw(mutated(base(kind))))}  # fmt: skip


@st.composite
def edited(draw: st.DrawFn) -> dict[str, Any]:
    """Values in one of its files replaced, and nothing there that would tell."""
    kind = draw(st.sampled_from(sorted(RUN)))
    files = dict(base(kind))
    readable = (".json", ".jsonl", ".toml", WEIGHTS)
    name = draw(st.sampled_from(sorted(n for n in files if n.endswith(readable))))
    files[name] = _edited(draw, name, files[name])
    return {"kind": kind, "reader": draw(st.sampled_from(sorted(READERS))), "sums": False,
            "files": _changed(kind, _signed(files))}  # fmt: skip


def _changed(kind: str, files: Files) -> dict[str, bytes | None]:
    """What differs from the base; None of a file that is not there."""
    before = base(kind)
    return {
        n: files.get(n) for n in sorted(before.keys() | files.keys()) if files.get(n) != before.get(n)
    }


def _edited(draw: st.DrawFn, name: str, content: bytes) -> bytes:
    if name.endswith(".safetensors"):
        return _other_tensors(draw, content)
    lines = content.decode().splitlines() if name.endswith(".jsonl") else [content.decode()]
    at = draw(st.integers(0, len(lines) - 1))
    value = tomllib.loads(lines[at]) if name.endswith(".toml") else json.loads(lines[at])
    for _ in range(draw(st.integers(1, 3))):
        value = _replaced(draw, value)
    if name.endswith(".toml"):
        return tomli_w.dumps(_without_null(value) if isinstance(value, dict) else {}).encode()
    if isinstance(value, dict) and value.pop("check", None):
        value = sealed(value)
    lines[at] = json.dumps(value)
    return ("\n".join(lines) + "\n").encode()


def _replaced(draw: st.DrawFn, value: Any) -> Any:
    """Go down to some place and put something odd there, or take it away."""
    if isinstance(value, dict | list) and value and draw(st.integers(0, 9)):
        keys = sorted(value) if isinstance(value, dict) else list(range(len(value)))
        key = draw(st.sampled_from(keys))
        if draw(st.integers(0, 5)) == 0:
            return (
                {k: v for k, v in value.items() if k != key} if isinstance(value, dict) else value[:key]
            )
        changed = dict(value) if isinstance(value, dict) else list(value)
        changed[key] = _replaced(draw, value[key])
        return changed
    return draw(st.sampled_from(ODD))


def _without_null(value: Any) -> Any:
    """As TOML can have it."""
    if isinstance(value, dict):
        return {key: _without_null(inner) for key, inner in value.items() if inner is not None}
    return [_without_null(one) for one in value if one is not None] if isinstance(value, list) else value


def _other_tensors(draw: st.DrawFn, content: bytes) -> bytes:
    """A tensor that is missing, has another shape, type or name, or is not finite."""
    tensors = dict(load(content))
    name = draw(st.sampled_from(sorted(tensors)))
    old = tensors.pop(name)
    match draw(st.sampled_from(("drop", "shape", "type", "name", "nan"))):
        case "shape":
            tensors[name] = torch.zeros(draw(st.sampled_from([(), (0,), (1,), (7, 2), (3, 1, 1)])))
        case "type":
            tensors[name] = old.to(
                draw(st.sampled_from([torch.int64, torch.bool, torch.float64, torch.half]))
            )
        case "name":
            tensors[draw(st.sampled_from(["dense.", "table.x", "scoring.counts", "junk"]))] = old
        case "nan":
            tensors[name] = torch.full_like(old, float("nan"))
    return save(tensors)


def _signed(files: Files) -> Files:
    """Without checksums, and the checkpoint's word on the logs as they are now."""
    found = {name: content for name, content in files.items() if not name.endswith("SHA256SUMS")}
    for name in [name for name in found if name.endswith(CHECKPOINT)]:
        home = name.removesuffix(CHECKPOINT)
        pointer = json.loads(found[name])
        if not isinstance(pointer, dict) or not isinstance(pointer.get("logs"), dict):
            continue
        for log, mark in pointer["logs"].items():
            if isinstance(mark, dict) and home + log in found:
                content = found[home + log]
                mark |= {"bytes": len(content), "sha256": sha256(content).hexdigest()}
        pointer.pop("check", None)
        found[name] = json.dumps(sealed(pointer)).encode()
    return found


def run(case: dict[str, Any]) -> str:
    with folder() as home:
        whole = home / "whole"
        for name, content in {**base(case["kind"]), **case["files"]}.items():
            if content is not None and (case["sums"] or not name.endswith("SHA256SUMS")):
                (whole / name).parent.mkdir(parents=True, exist_ok=True)
                (whole / name).write_bytes(content)
        return outcome(lambda: _read(READERS[case["reader"]], whole / RUN[case["kind"]], whole))


def _read(reader: Callable[[Path, Path], object], run: Path, whole: Path) -> None:
    """A config may be edited to ask for more memory or time than there is."""
    try:
        reader(run, whole)
    except HangError:
        raise
    except Exception as error:
        if memory_ran_out(error):
            raise UserError("not enough memory") from None
        raise


ROSTER = b'[clients.0]\nclasses = [1, 2]\n[clients.17]\nkey = "node.pub"\n'
KEY = (
    b"ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBI5TO2+g"
    b"v3tGJbswZnwB+2B++fi4qA/vWzAGKHAxh7Kjc+sdveAzGDZtBp+DpvWQAFPHNjPLBBshxV4ahsH0ALQ= node\n"
)
ROSTERS = {"roster.toml": ROSTER, "node.pub": KEY}


def read_roster(files: Files) -> str:
    from spreadout.flower.access import read_roster as read

    with folder() as home:
        for name, content in files.items():
            (home / name).write_bytes(content)
        return outcome(lambda: read(home / "roster.toml"))


TARGETS = [
    Target("run-folder-damaged", damaged(), run, slow=True),
    Target("run-folder-edited", edited(), run, slow=True),
    Target("roster", mutated(ROSTERS), read_roster),
]
