"""A benchmark as a command."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Collection, Iterable

from spreadout.core.errors import UserError


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser that says of the command what its module's first line says."""
    return argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)


def command(main: Callable[[], None]) -> None:
    """Run it; what is wrong with what it was given is one line, and 2 is what it exits with."""
    try:
        main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def names(text: str) -> list[str]:
    """The type of an argument that is a list.

    >>> names("digits, bibtex,")
    ['digits', 'bibtex']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def whole_numbers(text: str) -> list[int]:
    """The type of an argument that is a list of seeds.

    >>> whole_numbers("0,1")
    [0, 1]
    """
    if not all(name.isdecimal() for name in names(text)) or not names(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give whole numbers, as 0,1,2")
    return [int(name) for name in names(text)]


def at_least_one(text: str) -> int:
    """The type of an argument that is a count."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, 1 or more")
    return int(text)


def duration(text: str) -> float:
    """The type of an argument that is a time; 0: begin nothing, `inf`: take all the time there is."""
    if (found := _number(text)) is None or found < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number, 0 or more")
    return found


def fraction(text: str) -> float:
    """The type of an argument that is a part of a whole."""
    if (found := _number(text)) is None or not 0 < found <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number above 0, at most 1")
    return found


def above_zero(text: str) -> float:
    """The type of an argument that is an amount."""
    if (found := _number(text)) is None or not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number above 0")
    return found


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return None if math.isnan(found) else found


def refuse_unknown(argument: str, given: Iterable[str], known: Collection[str]) -> None:
    """Names that nobody knows, before anything is run."""
    for name in given:
        if name not in known:
            raise UserError(f"{argument} {name}: unknown; known are {', '.join(known)}")
