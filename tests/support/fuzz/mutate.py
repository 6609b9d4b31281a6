"""Changes to bytes that readers of files have stumbled over, drawn by Hypothesis so that they shrink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

WORDS = (
    *(b"", b"0", b"-1", b"1", b"nan", b"inf", b"-0", b"1e999", b"1e-999", b"3.5e38", b"0x10", b"1_0"),
    *(b"2147483647", b"2147483648", b"4294967295", b"9223372036854775807", b"9223372036854775808"),
    *(
        b"18446744073709551616",
        b"9" * 25,
        b"9" * 400,
        b"?",
        b"''",
        b'"',
        b"'",
        b"\\",
        b"{",
        b"}",
        b"[" * 300,
    ),
    *(
        b",",
        b",,",
        b" ",
        b"\t",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
    ),
    *(
        b"%",
        b"#",
        b"@data",
        b"@attribute a string\n",
        b"../../x",
        b"/etc/passwd",
        b"a" * 2000,
        b"\xc3\x28",
    ),
    *(
        b"0001-01-01T00:00+14:00",
        b"9999-12-31T23:59:59.999999-14:00",
        b"::",
        b":",
        b"=",
        b"&lt;",
        b"<",
        b">",
    ),
)
NUMBERS = tuple(
    value.to_bytes(size, order)
    for size in (1, 2, 4, 8)
    for value in {0, 1, (1 << (8 * size)) - 1, 1 << (8 * size - 1), (1 << (8 * size - 1)) - 1, 255, 64}
    for order in ("little", "big")
)


@dataclass(frozen=True)
class Change:
    kind: str
    at: float  # where, from 0 to 1
    length: int
    payload: bytes


def changes() -> st.SearchStrategy[list[Change]]:
    payload = st.sampled_from(WORDS) | st.sampled_from(NUMBERS) | st.binary(max_size=12)
    kinds = ("put", "insert", "cut", "end", "flip", "repeat", "move", "number")
    one = st.builds(Change, st.sampled_from(kinds), st.floats(0, 1), st.integers(1, 64), payload)
    return st.lists(one, min_size=1, max_size=6)


def changed(content: bytes, made: Sequence[Change]) -> bytes:
    for change in made:
        content = _apply(content, change)
    return content[:200_000]


def _apply(content: bytes, change: Change) -> bytes:
    at = min(int(change.at * (len(content) + 1)), len(content))
    end = at + change.length
    match change.kind:
        case "put":
            return content[:at] + change.payload + content[at + len(change.payload) :]
        case "insert":
            return content[:at] + change.payload + content[at:]
        case "cut":
            return content[:at] + content[end:]
        case "end":
            return content[:at]
        case "flip":
            flipped = bytes(b ^ (1 << change.length % 8) for b in content[at : at + 1])
            return content[:at] + flipped + content[at + 1 :]
        case "repeat":
            return content[:end] + content[at:end] * 3 + content[end:]
        case "move":
            return content[:at] + content[end:] + content[at:end]
        case _:  # the number or word that begins hereabouts becomes another one
            while at < len(content) and not content[at : at + 1].isalnum():
                at += 1
            last = at
            while last < len(content) and content[last : last + 1].isalnum():
                last += 1
            return content[:at] + change.payload + content[last:]


@st.composite
def mutated(draw: st.DrawFn, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files with one or two of them changed, or one missing."""
    found = dict(files)
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(found)))
        if len(found) > 1 and draw(st.integers(0, 19)) == 0:
            del found[name]
        else:
            found[name] = changed(found[name], draw(changes()))
    return found
