"""Randomness as a value: every draw is a pure function of (seed, purpose, round, client, index).

Counter-based (splitmix64 over a keyed counter), so a draw does not depend on what was drawn before
it. A cohort of thousands and a single device compute the same numbers for the same client, and a
resumed run needs no saved generator state beyond its seed and its round.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Bits = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TURNS = 6  # of the Feistel network
_FEW_BITS = 10  # words of so many are mixed in advance: 48 kB at most


def key(seed: int, *purpose: str | int) -> int:
    """A 64-bit key for one purpose under one seed; distinct purposes give unrelated streams."""
    text = repr((int(seed), *purpose)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def streams(seed: int, purpose: str, round: int | Ints) -> Bits:
    """The key of a purpose in one round, or in the round of each of several clients: () or (k,)."""
    rounds = np.asarray(round).tolist()
    if isinstance(rounds, int):
        return np.asarray(key(seed, purpose, rounds), dtype=np.uint64)
    known = {one: key(seed, purpose, one) for one in set(rounds)}
    return np.array([known[one] for one in rounds], dtype=np.uint64)


def bits(stream: int | Bits, *counters: Ints | int) -> Bits:
    """64 random bits for each (broadcast) tuple of counters.

    `bits(bits(stream, a), b)` is `bits(stream, a, b)`: what many counters share is mixed once.
    """
    state = np.asarray(stream, dtype=np.uint64)
    for counter in counters:
        state = _mix(state ^ _mix(np.asarray(counter).astype(np.uint64) + _GOLDEN))
    return state


def permute(place: Ints, n: int | Ints, keys: Bits) -> Ints:
    """Where each place of [0, n) goes under the random order of its key, without making the order.

    A Feistel network on an even number of bits that holds n, walked until it lands below n: a bijection
    of [0, n) whose cost grows with the places given. place, n and keys: (…) → (…)
    """
    found = place.astype(np.int64).ravel()
    size = np.broadcast_to(np.asarray(n, dtype=np.int64), place.shape).ravel()
    bits_of = np.frexp((size - 1).astype(np.float64))[1]  # as int.bit_length, below 2^53
    half = np.maximum(-(-bits_of // 2), 3).astype(np.int64)  # of fewer bits orders are not even
    mask = (1 << half) - 1
    key, mixed = _mixing(keys, place.shape, int(half.max(initial=0)))
    walking, now = np.arange(found.size), found
    while walking.size:
        left, right = now >> half, now & mask
        for turn in range(_TURNS):
            left, right = right, left ^ (mixed(turn, right, key) & mask)
        now = (left << half) | right
        inside = now < size
        found[walking[inside]] = now[inside]
        (on,) = (~inside).nonzero()
        walking, now, key = walking[on], now[on], key[on]
        size, half, mask = size[on], half[on], mask[on]
    return found.reshape(place.shape)


def _mixing(keys: Bits, shape: tuple[int, ...], most: int) -> tuple[Any, Callable[..., Ints]]:
    """What stands for the key of each place, flat, and the function of (turn, words, those) that mixes.

    shape: of the places; most: bits of the longest word. Short words are looked up, as far as that pays.
    """
    whole = np.broadcast_to(keys, shape).ravel()
    if most > _FEW_BITS:
        turns = [np.uint64(turn << 32) for turn in range(_TURNS)]
        return whole, lambda turn, word, key: _mix(_mix(word.view(np.uint64) + turns[turn]) ^ key).view(
            np.int64
        )
    before = _mixed_before(most)
    if keys.size << most > 4 * whole.size:
        return whole, lambda turn, word, key: _mix(before[turn][word] ^ key).view(np.int64)
    # Many places under few keys: what a key makes of every word is worked out once.
    known = _mix(before[:, None] ^ keys.reshape(-1, 1)).view(np.int64)
    known_of = [*known.reshape(_TURNS, -1)]  # (keys · 2^most,) of every turn
    begin = (np.arange(keys.size) << most).reshape(keys.shape)
    at = np.broadcast_to(begin, shape).ravel()
    return at, lambda turn, word, key: known_of[turn].take(key + word)


@cache
def _mixed_before(most: int) -> Bits:
    """Every word of so many bits, mixed for every turn: (turns, 2^most)."""
    word, turn = np.arange(1 << most, dtype=np.uint64), np.arange(_TURNS, dtype=np.uint64)
    return _mix(word + (turn[:, None] << np.uint64(32)))


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A NumPy generator for one server-side purpose, for bulk draws that need a distribution."""
    return np.random.default_rng(key(seed, *purpose))


def _mix(word: Bits) -> Bits:
    """The splitmix64 finaliser: a bijection of 64-bit words that scatters every input bit."""
    z = np.asarray(np.add(word, _GOLDEN))  # of two scalars, a plain + would warn that it wraps
    z ^= z >> np.uint64(30)
    z *= _MIX_1
    z ^= z >> np.uint64(27)
    z *= _MIX_2
    z ^= z >> np.uint64(31)
    return z


def uniform_on(slots: Tensor, width: int) -> Tensor:
    """`width` uniform float32 draws in [0, 1) for every 64-bit slot, on the slots' own device.

    slots: (…) int64, themselves random bits. → (…, width)
    """
    return _shifted(_words_on(slots, width, salt=0), 40).to(torch.float32) * 2.0**-24


def uniform_at(slots: Tensor, column: Tensor) -> Tensor:
    """`uniform_on(slots, width)[…, column]`, one column of each slot: (…) → (…)"""
    return _shifted(_mixed_on(slots, column + 1), 40).to(torch.float32) * 2.0**-24


def normal_on(slots: Tensor, width: int) -> Tensor:
    """`width` standard normal draws for every slot, independent of its uniform ones. → (…, width)"""
    words = _words_on(slots, width, salt=1)
    turn = _shifted(words, 40).to(torch.float32) * 2.0**-24  # the two halves of one word
    share = ((words & 0xFFFFFF) + 1).to(torch.float32) * 2.0**-24  # in (0, 1]: it has a logarithm
    return (-2 * share.log()).sqrt() * (2 * math.pi * turn).cos()  # Box and Muller


def _words_on(slots: Tensor, width: int, *, salt: int) -> Tensor:
    """So many words of every slot: (…) → (…, width)"""
    column = torch.arange(1, width + 1, dtype=torch.int64, device=slots.device) + salt * (1 << 32)
    return _mixed_on(slots[..., None], column)


def _mixed_on(slots: Tensor, column: Tensor) -> Tensor:
    """splitmix64 in torch: int64 products wrap as they should."""
    z = slots + column * _signed(_GOLDEN)
    z = (z ^ _shifted(z, 30)) * _signed(_MIX_1)
    z = (z ^ _shifted(z, 27)) * _signed(_MIX_2)
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, by: int) -> Tensor:
    """Logical right shift: torch's own on int64 drags the sign along."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def _signed(word: np.uint64) -> int:
    return int(word.astype(np.int64))
