"""Files for their owner alone, whatever the umask of whoever starts the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spreadout.core.errors import UserError

UMASK = 0o077  # new folders 0700, new files 0600


@contextmanager
def owner_only() -> Iterator[None]:
    """What is made in this block, by this process and those it starts, is for its owner alone."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)


def close_to_others(folder: Path) -> None:
    """Take away what others may do in a folder that was there before; links are left as they are."""
    for place, folders, files in os.walk(folder.resolve()):
        for path in (Path(place), *(Path(place, name) for name in (*folders, *files))):
            try:
                mode = path.lstat().st_mode
                if not path.is_symlink() and mode & UMASK:
                    path.chmod(mode & ~UMASK)
            except FileNotFoundError:  # a log that was swept meanwhile
                continue
            except PermissionError:
                raise UserError(
                    f"{path}: belongs to another user, who must make it private (`chmod go= {path}`)"
                ) from None
