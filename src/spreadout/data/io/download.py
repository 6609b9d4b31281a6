"""Fetching published files: resumed where they stopped, checked, and in place only when whole."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from spreadout import __version__
from spreadout.core.errors import UserError

PIECE = 1 << 18
Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where the server says


def fetch(
    url: str, target: Path, md5: str | None, progress: Progress = lambda done, total: None
) -> None:
    """Download a file. After an interruption the part already fetched is kept, and the rest follows."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        _fetch_rest(url, part, progress)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        kept = (
            f"; {part.stat().st_size:,} bytes are kept, run again to continue" if part.exists() else ""
        )
        raise UserError(
            f"{url}: cannot be fetched ({reason}){kept}; or get it elsewhere and put it at {target}"
        ) from None
    if md5 is not None:
        with open(part, "rb") as stream:
            found = hashlib.file_digest(stream, "md5").hexdigest()
        if found != md5:
            part.unlink()
            raise UserError(
                f"{url}: came with MD5 {found}, published is {md5}; it was thrown away, try again"
            )
    os.replace(part, target)


def _fetch_rest(url: str, part: Path, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"spreadout/{__version__}"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send
            return
        raise
    with answer:
        goes_on = answer.status == 206
        length = answer.headers.get("Content-Length")
        start = have if goes_on else 0
        total = start + int(length) if length and length.isdigit() else None
        with open(part, "ab" if goes_on else "wb") as file:
            done = start
            while piece := answer.read(PIECE):
                file.write(piece)
                done += len(piece)
                progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"it ended after {done:,} of {total:,} bytes")
