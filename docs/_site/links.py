"""Links from the documentation to other hosts: `make links` asks each of them (it needs a network).

`links.txt` lists all of them, and a test compares it with the built site. Open a link before you add it.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

KNOWN = Path(__file__).with_name("links.txt")


def known() -> list[str]:
    return KNOWN.read_text(encoding="utf-8").split()


def fault(address: str, seconds: float = 20.0) -> str | None:
    """Why an address does not answer, or None."""
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0 (link check)"})
    try:
        with urllib.request.urlopen(request, timeout=seconds):
            return None
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        return str(error)


def main() -> int:
    broken = {address: said for address in known() if (said := fault(address)) is not None}
    for address, said in broken.items():
        print(f"{address}: {said}")
    print(f"{len(known()) - len(broken)} of {len(known())} links answer")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
