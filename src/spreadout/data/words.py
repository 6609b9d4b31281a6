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
from typing import Any

import torch

from spreadout.core.ragged import offsets_from_lengths
from spreadout.data.columns import Sparse

WIDTH = 8192  # features: few enough to send a row for each, enough that words of one text rarely meet
MARKS = "".join(chr(i) for i in range(0x300, 0x10000) if unicodedata.category(chr(i))[0] == "M")
"""Vowels and accents that many scripts write on a letter: they part no word."""
WORD = re.compile(rf"\w+(?:[{MARKS}]+\w*)*")
UNPARTED = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF)),
    *((0x3040, 0x30FF), (0x3400, 0x9FFF), (0x20000, 0x3FFFF)),
)
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese letters: nothing parts words there, so each is one."""
ALONE = re.compile(f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in UNPARTED)}][{MARKS}]*")
NGRAMS = (1, 2)


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
        pairs = [f"{one} {other}" for one, other in pairwise(words)]  # as NGRAMS says
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


def rule(width: int) -> dict[str, Any]:
    """All that another program needs to make the same numbers of a text, as `rule_in_words` says it."""
    return {
        "normalization": "NFKC",
        "letters": "full case folding",
        "word": "[\\p{L}\\p{N}_]+ with marks inside or behind",
        "marks": [f"{ord(MARKS[0]):04X}", "FFFF"],
        "words_of_one_letter": [[f"{first:04X}", f"{last:04X}"] for first, last in UNPARTED],
        "ngrams": list(NGRAMS),
        "join": " ",
        "hash": "CRC-32",
        "encoding": "UTF-8",
        "buckets": width,
        "value": "1 + ln(count)",
        "norm": "L2",
    }


def rule_in_words(width: int) -> list[str]:
    """The same for a person, step by step."""
    unparted = ", ".join(f"U+{first:04X}–{last:04X}" for first, last in UNPARTED)
    return [
        "A text is brought into Unicode's form NFKC, and its letters are folded in full (`casefold`).",
        f"Where nothing parts words ({unparted}), a letter with the marks behind it is a word, and "
        "other marks from there are dropped.",
        "Any other word is a run of letters, numbers and `_` (Unicode's L and N), with marks (M, from "
        f"U+{ord(MARKS[0]):04X} to U+FFFF) inside or behind.",
        "Each word is a feature, and so is each pair of neighbours with a blank between: "
        f"CRC-32 (as in zlib) of its UTF-8 bytes, modulo {width:,}.",
        "A feature that is there n times is 1 + ln n, any other 0; then all are divided by the vector's "
        "length, if that is not 0.",
    ]
