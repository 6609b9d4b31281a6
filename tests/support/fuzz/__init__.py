"""Fuzzing: whatever comes from outside is read, or refused in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzz.target import Target


def every_target() -> list[Target]:
    from fuzz import configs, files, folders, grid

    return [*files.TARGETS, *folders.TARGETS, *grid.TARGETS, *configs.TARGETS]
