"""The pieces of secure aggregation: agreed keys, sealed letters, shares of a secret, and masks.

Bonawitz et al. 2017, "Practical Secure Aggregation", with all nodes of a round as neighbours. Every
primitive is a library's: X25519, HKDF, AES-GCM and AES-CTR of `cryptography`, Shamir's shares of
PyCryptodome (put together again by `interpolation.py`); both come with Flower. Flower's own SecAgg+
expands a key to a mask through a generator that keeps 32 bits of it, which can be tried out one by one;
here a mask is the key stream of AES-256.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import Literal

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from spreadout.privacy.interpolation import combined
from spreadout.privacy.keystream import KEY_BYTES, KeyStream

NONCE, BLOCK = 12, 16
Bits = Literal[32, 64]
Masked = NDArray[np.uint32] | NDArray[np.uint64]  # whole numbers modulo 2^bits


class Broken(ValueError):
    """A letter, a key or shares that are not what they should be."""


def new_key() -> bytes:
    """A secret of 32 bytes; it is a private key of X25519 as well."""
    return os.urandom(KEY_BYTES)


def public_of(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed_key(private: bytes, public: bytes, use: bytes) -> bytes:
    """What two nodes alone know, each from its own private key and the other's public one."""
    try:
        theirs = X25519PublicKey.from_public_bytes(public)
        shared = X25519PrivateKey.from_private_bytes(private).exchange(theirs)
    except ValueError:  # of the wrong length, or a point that makes every shared key the same
        raise Broken("a public key that is none") from None
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=use).derive(shared)


def sealed(key: bytes, letter: bytes, about: bytes) -> bytes:
    """A letter that only who has the key can read or change; `about` must be the same on both sides."""
    nonce = os.urandom(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, letter, about)


def opened(key: bytes, letter: bytes, about: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(letter[:NONCE], letter[NONCE:], about)
    except (InvalidTag, ValueError):
        raise Broken("a letter of somebody else, or changed on its way") from None


def shares_of(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Shares of a secret of 32 bytes, of which any `threshold` give it back and fewer nothing."""
    halves = [Shamir.split(threshold, count, secret[i : i + BLOCK], ssss=False) for i in (0, BLOCK)]
    return [first[1] + second[1] for first, second in zip(*halves, strict=True)]


def secret_of(shares: Sequence[tuple[int, bytes]]) -> bytes:
    """The secret out of enough shares, each with its place from 0; of fewer, something else."""
    if any(len(share) != 2 * BLOCK for _, share in shares):
        raise Broken("shares of another length")
    halves = [
        (place + 1, int.from_bytes(share[:BLOCK]), int.from_bytes(share[BLOCK:]))
        for place, share in shares
    ]
    try:
        first, second = combined(halves)
    except ValueError:
        raise Broken("shares of one place twice") from None
    return first.to_bytes(BLOCK) + second.to_bytes(BLOCK)


def commitment(secret: bytes, use: bytes) -> bytes:
    """By which a secret is known again, and not found: it is 32 random bytes."""
    return hmac.digest(secret, b"commitment" + use, hashlib.sha256)


def mask(key: bytes, count: int, bits: Bits) -> Masked:
    """So many numbers modulo 2^bits, that nobody without the key can tell from random ones."""
    words = KeyStream(key)(count if bits == 64 else (count + 1) // 2)
    if bits == 64:
        return words
    halves = np.frombuffer(words.tobytes(), dtype=np.uint32)
    return halves[:count]


def as_masked(numbers: NDArray[np.int64], bits: Bits) -> Masked:
    """Signed numbers modulo 2^bits."""
    whole = numbers.astype(np.uint64)
    return whole if bits == 64 else whole.astype(np.uint32)


def as_signed(numbers: Masked) -> NDArray[np.int64]:
    """The numbers of least magnitude that are the same modulo 2^bits."""
    signed = np.int64 if numbers.dtype == np.uint64 else np.int32
    return numbers.view(signed).astype(np.int64)
