"""A node's side of secure aggregation: what it sends in each step of a round, and what it refuses.

    1  keys     a fresh pair for masks and one for letters, signed: it is known by
    2  shares   shares of its mask key and of its own mask's seed, a sealed letter to every other node
    3  masked   its numbers, plus its own mask, plus or minus a mask agreed with each of the others
    4, 5        whose numbers came, and shares that unmask their sum (`unmasking.py`)

Whoever had enough shares of both kinds could unmask one node alone. So a node answers each step of a
round once and gives one kind of share of a node only. What must not be done twice, a caller must also
hold to when a process dies or two run at once (`NodeLedger.once`).

All keys follow from the whole list of step 1, so nodes with other lists cannot read each other's
letters. What holds if a server tells nodes different things in later steps is in `unmasking.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spreadout.privacy import masking
from spreadout.privacy.masking import Bits, Broken, Masked
from spreadout.privacy.thresholds import least, most_colluding

MASK, LETTER = b"mask", b"letter"


class Announced(NamedTuple):
    """What a node is known by in a round."""

    mask_key: bytes
    letter_key: bytes
    signature: bytes


Signs = Callable[[bytes], bytes]
Verifies = Callable[[str, bytes, bytes], bool]  # name, what was signed, signature


@dataclass(frozen=True)
class Party:
    """A node in one round of one run, between two messages."""

    name: str  # the fingerprint of its key
    about: bytes  # the run and the round
    mask_private: bytes
    letter_private: bytes
    seed: bytes = b""  # of its own mask; from step 2 on
    threshold: int = 0
    others: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # public keys, from step 2 on
    own_shares: tuple[bytes, bytes] = (b"", b"")
    held: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # shares, from step 3 on
    confirmed: bytes = b""  # the list of those in the sum that it has signed, from step 4 on

    def is_of(self, about: bytes) -> bool:
        """Whether it is a party to this round."""
        return self.about[: len(about)] == about

    def to_bytes(self) -> bytes:
        """For the node's own memory: all of its secrets are in it."""
        return json.dumps(_hexed(vars(self))).encode()

    @classmethod
    def from_bytes(cls, kept: bytes) -> Party:
        plain = json.loads(kept)
        pairs = {
            key: {name: tuple(map(bytes.fromhex, pair)) for name, pair in plain.pop(key).items()}
            for key in ("others", "held")
        }
        own = tuple(map(bytes.fromhex, plain.pop("own_shares")))
        name, threshold = plain.pop("name"), plain.pop("threshold")
        rest = {key: bytes.fromhex(value) for key, value in plain.items()}
        return cls(name=name, threshold=threshold, own_shares=own, **pairs, **rest)  # type: ignore[arg-type]


def _hexed(values: object) -> object:
    if isinstance(values, bytes):
        return values.hex()
    if isinstance(values, Mapping):
        return {key: _hexed(value) for key, value in values.items()}
    return [_hexed(value) for value in values] if isinstance(values, tuple) else values


def about_round(run: str, round: int) -> bytes:
    """What all that belongs to a round is bound to; of one length, so that no name can look like two."""
    return hashlib.sha256(json.dumps(["spreadout secure sum", run, round]).encode()).digest()


def announce(name: str, about: bytes, sign: Signs) -> tuple[Party, Announced]:
    """Step 1."""
    party = Party(name, about, masking.new_key(), masking.new_key())
    keys = masking.public_of(party.mask_private), masking.public_of(party.letter_private)
    return party, Announced(*keys, sign(_signed(about, name, *keys)))


def _signed(about: bytes, name: str, mask_key: bytes, letter_key: bytes) -> bytes:
    return b"|".join((about, name.encode(), mask_key, letter_key))


def bound_to(about: bytes, announced: Mapping[str, Announced]) -> bytes:
    """The round and the list of its nodes: what all keys of the round follow from."""
    digest = hashlib.sha256()
    for name in sorted(announced):
        digest.update(_signed(b"", name, *announced[name][:2]))
    return about + digest.digest()


def share(
    party: Party,
    announced: Mapping[str, Announced],
    of_nodes: float,
    verifies: Verifies,
    colluding: int = 0,
) -> tuple[Party, dict[str, bytes], bytes]:
    """Step 2: the letters to the other nodes, and by what the seed of its own mask will be known.

    colluding: how many of the nodes may work with the server without unmasking this one.
    """
    if party.seed or not party.mask_private:
        raise Broken("shares of this round were sent already")
    own = announced.get(party.name)
    if own is None or own[:2] != _public(party):
        raise Broken("this node's own keys are not in the list, or changed")
    others = {name: keys for name, keys in announced.items() if name != party.name}
    for name, keys in others.items():
        if not verifies(name, _signed(party.about, name, *keys[:2]), keys.signature):
            raise Broken(f"the keys of node {name}: are not signed by a node that this one knows")
    if len({key for keys in announced.values() for key in keys[:2]}) < 2 * len(announced):
        raise Broken("two nodes with one key")
    count, seed = len(announced), masking.new_key()
    threshold = least(count, of_nodes)
    if count < threshold:
        raise Broken(f"{count} nodes are too few for a secure sum: it takes {threshold}")
    if colluding > most_colluding(count, threshold):
        raise Broken(f"{count} nodes are too few for a secure sum of which {colluding} may collude")
    places = sorted(announced)
    pairs = list(
        zip(
            masking.shares_of(seed, threshold, count),
            masking.shares_of(party.mask_private, threshold, count),
            strict=True,
        )
    )
    after = replace(
        party,
        about=bound_to(party.about, announced),
        seed=seed,
        threshold=threshold,
        others={name: keys[:2] for name, keys in others.items()},
        own_shares=pairs[places.index(party.name)],
    )
    letters = {
        name: masking.sealed(
            _letter_key(after, name),
            b"".join(pairs[places.index(name)]),
            _addressed(party.name, name),
        )
        for name in others
    }
    return after, letters, masking.commitment(seed, after.about)


def _public(party: Party) -> tuple[bytes, bytes]:
    return masking.public_of(party.mask_private), masking.public_of(party.letter_private)


def _letter_key(party: Party, other: str) -> bytes:
    return masking.agreed_key(party.letter_private, party.others[other][1], LETTER + party.about)


def _addressed(sender: str, receiver: str) -> bytes:
    return f"{sender} to {receiver}".encode()


def received(party: Party, letters: Mapping[str, bytes]) -> Party:
    """Step 3, first half: read the letters of those who are still there."""
    if not party.seed or party.held:
        raise Broken("numbers of this round were sent already, or no shares")
    if not letters.keys() <= party.others.keys():
        raise Broken("a letter of a node that is not in this round")
    if len(letters) + 1 < party.threshold:
        raise Broken(f"{len(letters) + 1} nodes are left: a sum takes {party.threshold}")
    held = {party.name: party.own_shares}
    for name, letter in letters.items():
        text = masking.opened(_letter_key(party, name), letter, _addressed(name, party.name))
        held[name] = text[: len(text) // 2], text[len(text) // 2 :]
    return replace(party, held=held)


def masked(party: Party, numbers: NDArray[np.int64], bits: Bits, form: bytes = b"") -> Masked:
    """Step 3, second half: what leaves the node in place of its numbers.

    form: what all nodes must have been told alike; masks of nodes that were not do not cancel.
    """
    found = masking.as_masked(numbers, bits)
    found = found + masking.mask(own_mask_key(party.seed, party.about), len(numbers), bits)
    for name in sorted(party.held.keys() - {party.name}):
        use = MASK + party.about + form
        key = masking.agreed_key(party.mask_private, party.others[name][0], use)
        between = masking.mask(key, len(numbers), bits)
        found = found + between if party.name < name else found - between
    return found


def own_mask_key(seed: bytes, about: bytes) -> bytes:
    return masking.commitment(seed, b"mask" + about)
