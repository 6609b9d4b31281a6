"""A round of secure aggregation in one process, with a server that does as it should."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from spreadout.privacy import masking, unmasking
from spreadout.privacy import secure_party as node
from spreadout.privacy.masking import Bits
from spreadout.privacy.secure_party import Party
from spreadout.privacy.secure_sum import unmasked

ABOUT = node.about_round("a run", 3)
NAMES = ["ada", "ben", "cleo", "dora", "emil"]
MORE = ["finn", "gus"]


def sign(name: str) -> Callable[[bytes], bytes]:
    return lambda text: masking.commitment(name.encode() * 8, text)  # stands for a node's key


def verifies(name: str, text: bytes, signature: bytes) -> bool:
    return name in (*NAMES, *MORE) and signature == sign(name)(text)


class Round:
    """A server that relays everything, as it should."""

    def __init__(self, names: Sequence[str] = NAMES, share: float = 2 / 3) -> None:
        made = {name: node.announce(name, ABOUT, sign(name)) for name in names}
        self.announced = {name: announced for name, (_, announced) in made.items()}
        self.parties: dict[str, Party] = {}
        self.letters: dict[str, dict[str, bytes]] = {name: {} for name in names}  # by receiver, sender
        self.commitments = {}
        for name, (party, _) in made.items():
            after, letters, self.commitments[name] = node.share(party, self.announced, share, verifies)
            self.parties[name] = Party.from_bytes(after.to_bytes())  # kept between two messages
            for to, letter in letters.items():
                self.letters[to][name] = letter

    @property
    def threshold(self) -> int:
        return next(iter(self.parties.values())).threshold

    def sent(self, numbers: dict[str, NDArray[np.int64]], bits: Bits = 32) -> dict[str, masking.Masked]:
        found = {}
        for name, own in numbers.items():
            self.parties[name] = node.received(self.parties[name], self.letters[name])
            found[name] = node.masked(self.parties[name], own, bits)
        return found

    def signed(self, there: Sequence[str], by: Sequence[str]) -> dict[str, bytes]:
        found = {}
        for name in by:
            self.parties[name], found[name] = unmasking.confirm(self.parties[name], there, sign(name))
        return found

    def revealed(self, there: Sequence[str], by: Sequence[str]) -> dict[str, dict[str, bytes]]:
        signatures, found = self.signed(there, by), {}
        for name in by:
            own = Party.from_bytes(self.parties[name].to_bytes())
            self.parties[name], found[name] = unmasking.reveal(own, there, signatures, verifies)
        return found

    def sum(
        self,
        sent: dict[str, masking.Masked],
        revealed: dict[str, dict[str, bytes]],
        bits: Bits = 32,
        threshold: int | None = None,
    ) -> NDArray[np.int64]:
        least = threshold or self.threshold
        return unmasked(ABOUT, least, self.announced, self.commitments, sent, revealed, bits)


def some_numbers(names: Sequence[str] = NAMES, count: int = 101) -> dict[str, NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    return {name: rng.integers(-(2**20), 2**20, count) for name in names}
