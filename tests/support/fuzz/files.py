"""Targets: files of every format, changed inside and outside of what they are packed in."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from fuzz.bases import BASES, Base
from fuzz.mutate import mutated
from fuzz.prop import folder, outcome
from fuzz.target import Target


def file_target(name: str, base: Base) -> Target:
    packed = dict(base.pack(base.files))
    cases = mutated(base.files).map(lambda files: dict(base.pack(files)))
    if packed != dict(base.files):
        cases = st.one_of(cases, mutated(packed))

    def run(files: dict[str, bytes]) -> str:
        with folder() as home:
            for file, content in files.items():
                (home / file).parent.mkdir(parents=True, exist_ok=True)
                (home / file).write_bytes(content)
            if not (home / base.entry).exists():
                return "not there"
            return outcome(lambda: base.read(home / base.entry))

    return Target(f"files-{name}", cases, run)


def untouched(base: Base) -> Any:
    """What comes of a base as it is: it must be read."""
    with folder() as home:
        return outcome(lambda: base.read(base.put(home, base.files)))


TARGETS = [file_target(name, base) for name, base in BASES.items()]
