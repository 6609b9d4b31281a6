"""Random words from the operating system's entropy, through a stream cipher.

A key of 32 bytes is drawn for every release and never kept: what one release's noise was tells nothing
about another's, and nobody can try out keys. `cryptography` is needed, which comes with Flower.
"""

from __future__ import annotations

import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

KEY_BYTES = 32


class KeyStream:
    """AES-256 in counter mode, read as 64-bit words."""

    def __init__(self, key: bytes | None = None) -> None:
        """key: for tests, which must see the same words again; None: fresh from the system."""
        key = os.urandom(KEY_BYTES) if key is None else key
        self._encrypt = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def __call__(self, count: int) -> NDArray[np.uint64]:
        """The next so many words."""
        return np.frombuffer(self._encrypt.update(bytes(8 * count)), dtype="<u8")
