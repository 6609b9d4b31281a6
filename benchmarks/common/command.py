"""A benchmark as a command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from spreadout.core.errors import UserError


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser that says of the command what its module's first line says."""
    return argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)


def command(main: Callable[[], None]) -> None:
    """Run it; what is wrong with what it was given is one line."""
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
