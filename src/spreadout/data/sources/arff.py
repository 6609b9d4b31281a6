"""The header of an ARFF file: its attributes and their types, as Weka, Mulan and MEKA write them.

https://waikato.github.io/weka-wiki/formats_and_processing/arff_stable/. Keywords are in any case, names
and values are bare or in either kind of quotes, `%` begins a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Literal

from spreadout.core.errors import UserError
from spreadout.data.input_columns import MOST_VALUES, is_number
from spreadout.data.io.text import BOM, LONGEST_LINE

QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_NAME = re.compile(rf"({QUOTED}|\S+)\s*(.*)", re.DOTALL)
_VALUE = re.compile(rf"\s*(?:({QUOTED})|([^\s,{{}}'\"]([^\s,{{}}]*))|(,))")
_MEKA = re.compile(r"\s-[cC]\s+(-?\d{1,9})\b")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
NUMBERS = ("numeric", "real", "integer", "float", "double", "int")
NOT_FEATURES = ("string", "date")

Kind = Literal["number", "nominal", "text"]


@dataclass(frozen=True)
class Attribute:
    """A column of the file; `values` are those a nominal one may have, in the order declared."""

    name: str
    kind: Kind
    values: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Columns it becomes: a nominal one has an indicator for every value but the first."""
        if self.kind == "text" or self.is_free:
            return 0
        return max(len(self.values) - 1, 1)

    @cached_property
    def is_free(self) -> bool:
        """Whether it has so many words that it names rows: hardly one tells anything of another row."""
        texts = sum(not is_number(value) for value in self.values)
        return len(self.values) > MOST_VALUES and texts >= len(self.values) / 2

    @cached_property
    def index(self) -> dict[str, int]:
        return {value: i for i, value in reversed(list(enumerate(self.values)))}

    @cached_property
    def by_number(self) -> dict[float, int] | None:
        """The values as numbers, where they all are different ones."""
        try:
            found = {float(value): i for i, value in enumerate(self.values) if "_" not in value}
        except ValueError:
            return None
        return found if len(found) == len(self.values) else None

    def shown(self) -> str:
        if not self.values:
            return f"{self.name!r} {self.kind}"
        values = ",".join(self.values[:6]) + (",…" if len(self.values) > 6 else "")
        return f"{self.name!r} {{{values}}}"


@dataclass(frozen=True)
class Header:
    attributes: tuple[Attribute, ...]
    lines: int  # of the file, up to and with @data
    labels: int | None  # MEKA's -C: so many attributes at the beginning (below 0: at the end)


def read_header(stream: IO[bytes], label: str) -> Header:
    """Everything up to `@data`, where it leaves the stream."""
    attributes: list[Attribute] = []
    number, labels = 0, None
    while raw := stream.readline(LONGEST_LINE + 1):
        number += 1
        if len(raw) > LONGEST_LINE:
            raise UserError(f"{label}:{number}: a line of more than {LONGEST_LINE >> 20} MiB")
        line = decoded(raw.removeprefix(BOM) if number == 1 else raw).strip()
        if not line or line[0] == "%":
            continue
        word, *rest = line.split(None, 1)
        keyword, after = word.lower(), rest[0] if rest else ""
        if keyword == "@data":
            if not attributes:
                raise UserError(f"{label}: declares no @attribute before its @data")
            return Header(tuple(attributes), number, labels)
        if keyword == "@relation":
            found = _MEKA.search(f" {after}")
            labels = int(found[1]) if found else None
        elif keyword == "@attribute":
            try:
                attributes.append(_attribute(after))
            except ValueError as error:
                raise UserError(f"{label}:{number}: {error}") from None
        else:
            raise UserError(f"{label}:{number}: {line[:40]!r} is no @relation, @attribute or @data")
    raise UserError(f"{label}: no @data section; the file may be cut short")


def decoded(raw: bytes) -> str:
    """Text of a file that does not say its encoding: UTF-8, or else ISO 8859-1."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("iso-8859-1")


def plain(token: str) -> str:
    """A name or value without its quotes; inside quotes a backslash escapes what follows."""
    if len(token) > 1 and token[0] in "'\"" and token[-1] == token[0]:
        return unescaped(token[1:-1])
    return token


def unescaped(text: str) -> str:
    """Without backslashes: `m\\'usica` is `m'usica`."""

    def meant(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROL.get(code, code)

    return _ESCAPE.sub(meant, text) if "\\" in text else text


def _attribute(declared: str) -> Attribute:
    match = _NAME.match(declared)
    if match is None:
        raise ValueError("an @attribute without a name")
    name, kind = match[1], match[2]
    if not kind.startswith("{") and "{" in name and name[0] not in "'\"":  # foo{0,1}
        name, brace, tail = declared.partition("{")
        kind = brace + tail
    name = plain(name)
    if kind.startswith("{"):
        return Attribute(name, "nominal", _values(name, kind))
    word = kind.split("%")[0].split("[")[0].split(None, 1)
    said = word[0].lower() if word else ""
    if said in NUMBERS:
        return Attribute(name, "number")
    if said in NOT_FEATURES:
        return Attribute(name, "text")
    if said == "relational":
        raise ValueError(f"attribute {name[:40]!r} is relational (bags of rows): these are not read")
    raise ValueError(f"attribute {name[:40]!r} has no type that is known, but {kind[:20]!r}")


def _values(name: str, declared: str) -> tuple[str, ...]:
    """The values between the braces, separated by commas or spaces."""
    values, at = [], 1
    while match := _VALUE.match(declared, at):
        at = match.end()
        if not match[4]:
            values.append(plain(match[1] or match[2]))
    if not declared[at:].lstrip().startswith("}"):
        raise ValueError(f"the values of attribute {name[:40]!r} have no closing brace")
    if not values:
        raise ValueError(f"attribute {name[:40]!r} has no values")
    return tuple(values)
