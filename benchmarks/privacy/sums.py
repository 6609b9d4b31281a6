"""What a secure sum costs a node and the server: time and bytes, with one node that leaves in between.

    python -m benchmarks.privacy.sums

All nodes are in this process and nothing is trained; a deployment has five messages a round in place of
one. Neither keys nor lists are signed here, which costs a node 3 ms for each of the others.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import write
from spreadout.privacy import secure_party as node
from spreadout.privacy.secure_sum import unmasked
from spreadout.privacy.unmasking import confirm, reveal

CASES = ((10, 100_000), (10, 1_000_000), (50, 100_000), (100, 100_000))  # nodes, numbers
SHARE = 2 / 3


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "privacy" / "sums.json")
    a = parser.parse_args()
    write(a.out, {"sums": [measured(nodes, numbers) for nodes, numbers in CASES]})


def measured(nodes: int, count: int) -> dict[str, Any]:
    about, names = node.about_round("a run", 0), [f"{i:032x}" for i in range(nodes)]
    rng = np.random.default_rng(0)
    numbers = {name: rng.integers(-(2**16), 2**16, count) for name in names}
    clock = time.perf_counter
    start = clock()
    made = {name: node.announce(name, about, lambda text: b"") for name in names}
    announced = {name: keys for name, (_, keys) in made.items()}
    parties, commitments = {}, {}
    letters: dict[str, dict[str, bytes]] = {name: {} for name in names}
    for name, (party, _) in made.items():
        found = node.share(party, announced, SHARE, lambda *of: True)
        parties[name], sealed, commitments[name] = found
        for to, letter in sealed.items():
            letters[to][name] = letter
    shared = clock()
    there = names[1:]  # the first leaves before its numbers
    sent = {}
    for name in there:
        parties[name] = node.received(parties[name], letters[name])
        sent[name] = node.masked(parties[name], numbers[name], 32)
    masked = clock()
    signed = {name: confirm(parties[name], there, lambda text: b"") for name in there}
    signatures = {name: signature for name, (_, signature) in signed.items()}
    revealed = {
        name: reveal(party, there, signatures, lambda *of: True)[1]
        for name, (party, _) in signed.items()
    }
    asked = clock()
    threshold = parties[names[1]].threshold
    total = unmasked(about, threshold, announced, commitments, sent, revealed, 32)
    done = clock()
    if not np.array_equal(total, sum(numbers[name] for name in there)):
        raise AssertionError("not the sum of what was sent")
    return {
        "nodes": nodes,
        "numbers": count,
        "prepare_ms": 1000 * (shared - start) / nodes,
        "mask_ms": 1000 * (masked - shared) / len(there),
        "unmask_ms": 1000 * (done - asked),
        "masked_bytes": int(sent[names[1]].nbytes),
        "letter_bytes": sum(map(len, letters[names[1]].values())),
    }


if __name__ == "__main__":
    command(main)
