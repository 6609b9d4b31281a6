"""What the letters of a file are in, as a config says it."""

from __future__ import annotations

import codecs
from typing import Annotated

from pydantic import AfterValidator


def _known(name: str | None) -> str | None:
    """An encoding of text that Python has."""
    try:
        if name is not None:
            "".encode(name)
            codecs.lookup(name)
    except (LookupError, ValueError):
        raise ValueError(f"{name!r} is no encoding of text; such are cp1252, latin-1, cp1251") from None
    return name


Encoding = Annotated[str | None, AfterValidator(_known)]
"""Of a file that is neither UTF-8 nor UTF-16, such as cp1252; None: such a file is refused."""
