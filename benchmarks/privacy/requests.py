"""What requests of class rows give away and what they cost, by how FedSS draws them.

    python -m benchmarks.privacy.requests

Requests do not depend on the model, so nothing is trained. A client of Omniglot has 20 of 964
classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.common.record import write
from spreadout.runs.audit import foreseen

LOOKS = (1, 10)  # requests after which the observer is asked
DRAWS = {
    "fresh": ["method.sampled_rows=58", "method.draw=fresh"],
    "fixed": ["method.sampled_rows=58", "method.draw=fixed"],
    "popular": ["method.sampled_rows=58", "method.draw=popular"],
    "cover = 3": ["method.draw=cover", "method.cover=3"],
    "cover = 5": ["method.draw=cover", "method.cover=5"],
    "cover = 10": ["method.draw=cover", "method.cover=10"],
    "cover = 30": ["method.draw=cover", "method.cover=30"],
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "privacy" / "requests.json")
    a = parser.parse_args()
    rows = [observed(name, changes) for name, changes in DRAWS.items()]
    write(a.out, {"draws": rows})


def observed(name: str, changes: list[str]) -> dict[str, Any]:
    """How sure an observer is after some requests, and the bytes of a request's rows."""
    changes = [*changes, "clients.per_round=all"]  # every client is seen in every round
    watched = foreseen(str(CONFIGS / "fedss" / "omniglot-base.toml"), changes, max(LOOKS))
    looks = {look.requests: look for look in watched.looks()}
    return {
        "draw": name,
        "rows": looks[1].candidates,
        "bytes": looks[1].candidates * watched.row_bytes,
        "after": {
            str(t): {"sure": looks[t].confidence, "found": looks[t].found, "exposed": looks[t].exposed}
            for t in LOOKS
        },
    }


if __name__ == "__main__":
    command(main)
