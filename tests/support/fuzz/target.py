"""A target: cases that Hypothesis draws, what is done with one, and how one is kept in the corpus."""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"
BATCH = 60  # examples between two looks at the clock


@dataclass(frozen=True)
class Target:
    """`run` returns what came of a case, and raises where the property does not hold."""

    name: str
    cases: st.SearchStrategy[Any]
    run: Callable[[Any], str]
    slow: bool = False  # too slow to look for a smaller case

    def corpus(self) -> list[Path]:
        return sorted((CORPUS / self.name).glob("*.json"))

    def keep(self, case: Any) -> Path:
        """Write a case where `make test` finds it."""
        text = json.dumps(case, default=_packed, indent=1) + "\n"
        path = CORPUS / self.name / f"{sha256(text.encode()).hexdigest()[:12]}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def short(self, examples: int) -> list[str]:
        """What came of every case in the corpus, and of a few others, the same every time."""
        said = [self.run(read_case(path)) for path in self.corpus()]
        self._go(settings(max_examples=examples, derandomize=True, database=None), heard=said.append)
        return said

    def long(self, seconds: float, start: int) -> tuple[int, int]:
        """New cases for so long; how many there were, and how many of them were not refused."""
        end, ran, done, number = time.monotonic() + seconds, 0, 0, start

        def count(said: str) -> None:
            nonlocal ran, done
            ran, done = ran + 1, done + (said == "done")

        while time.monotonic() < end:
            self._go(settings(max_examples=BATCH, database=None), number, count)
            number += 1
        return ran, done

    def _go(
        self, how: settings, number: int | None = None, heard: Callable[[str], None] = lambda s: None
    ) -> None:
        last: list[Any] = []

        phases = tuple(p for p in Phase if not (self.slow and p in (Phase.shrink, Phase.explain)))

        @settings(
            how, phases=phases, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False
        )
        @given(self.cases)
        def one(case: Any) -> None:
            last[:] = [case]
            heard(self.run(case))

        try:
            (one if number is None else seed(number)(one))()
        except BaseException as error:
            error.__notes__ = []  # the case is kept; it need not be printed
            raise FoundError(self, last[0] if last else None) from error


class FoundError(Exception):
    """A case for which the property does not hold, as small as Hypothesis could make it."""

    def __init__(self, target: Target, case: Any) -> None:
        super().__init__(target.name)
        self.target, self.case = target, case


def _packed(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b85encode(zlib.compress(value, 9)).decode()}
    raise TypeError(f"{type(value).__name__} is not kept")


def read_case(path: Path) -> Any:
    def unpack(value: dict[str, Any]) -> Any:
        if value.keys() == {"bytes"}:
            return zlib.decompress(base64.b85decode(value["bytes"]))
        return value

    return json.loads(path.read_text(), object_hook=unpack)
