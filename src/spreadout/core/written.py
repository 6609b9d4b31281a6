"""What is read back must be what was written: schemas of JSON values, asked in one line.

A digest tells that a value is the one that was written, unless somebody wrote a digest of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spreadout.core.errors import UserError

Count = Annotated[int, Field(ge=0, lt=2**63)]


class Written(BaseModel):
    """JSON as it was written: no value is taken for another, and there may be more than is asked for."""

    model_config = ConfigDict(strict=True, extra="allow")


def as_written(kind: type[Written], value: Any, where: str | Path, remedy: str) -> dict[str, Any]:
    """The value, if it is what is written there."""
    try:
        kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        found = f" = {first['input']!r:.60}" if first["type"] != "missing" and key else ""
        said = first["msg"].removeprefix("Value error, ").removeprefix("Input should ")
        raise UserError(
            f"{where}: is damaged or was changed ({key}{found}: {said}); {remedy}"
            if key
            else f"{where}: is damaged or was changed ({said}); {remedy}"
        ) from None
    return dict(value)
