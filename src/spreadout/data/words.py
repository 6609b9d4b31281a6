"""Text as numbers, without a vocabulary that clients would have to share.

A text is the set of its words and of its pairs of neighbouring words. Each is a feature by its own hash
(Weinberger et al. 2009), so every client finds the same number for a word. That hides no word: the hash
is public, and whoever sees which features moved can hash a dictionary.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import torch

from spreadout.core.ragged import offsets_from_lengths
from spreadout.data.columns import Sparse

WIDTH = 8192  # features: few enough to send a row for each, enough that words of one text rarely meet
MARKS = "".join(chr(i) for i in range(0x300, 0x10000) if unicodedata.category(chr(i))[0] == "M")
"""Vowels and accents that many scripts write on a letter: they part no word."""
WORD = re.compile(rf"\w+(?:[{MARKS}]+\w*)*")
LETTERS = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
ALONE = re.compile(rf"[{LETTERS}][{MARKS}]*")
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese letters: nothing parts words there, so each is one."""


def words_of(text: str) -> list[str]:
    """Its words in small letters, in their order.

    >>> words_of("Where's MY card?")
    ['where', 's', 'my', 'card']
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return WORD.findall(ALONE.sub(lambda letter: f" {letter[0]} ", plain))


def hashed_words(texts: Sequence[str], width: int) -> Sparse:
    """A row for each text: 1 + log of how often a feature is there, at a length of 1.

    >>> rows = hashed_words(["a card", "card a", "a card"], 64).dense().values
    >>> bool((rows[0] == rows[2]).all()), bool((rows[0] == rows[1]).all())  # pairs have an order
    (True, False)
    """
    ids, counts, lengths = list[int](), list[int](), list[int]()
    for text in texts:
        words = words_of(text)
        pairs = [f"{one} {other}" for one, other in pairwise(words)]
        found = Counter(zlib.crc32(one.encode()) % width for one in (*words, *pairs))
        ids += sorted(found)
        counts += [found[one] for one in sorted(found)]
        lengths.append(len(found))
    size, weights = torch.tensor(lengths, dtype=torch.int64), 1 + torch.tensor(counts).double().log()
    row = torch.repeat_interleave(torch.arange(len(lengths)), size)
    norm = torch.zeros(len(lengths), dtype=torch.float64).index_add_(0, row, weights**2).sqrt()
    return Sparse(
        torch.tensor(ids, dtype=torch.int64),
        (weights / norm[row]).float(),
        offsets_from_lengths(size),
        width,
    )
