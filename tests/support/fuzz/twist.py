"""Changes to Flower messages: to the bytes of a record, to its arrays, to the records, to the envelope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from hypothesis import strategies as st

from fuzz.mutate import Change, changed, changes
from spreadout.flower import messages

Twist = dict[str, Any]  # plain values, so that it can be kept

VALUES = (0, 1, -1, 7, 2**31, 2**62, -(2**63), 2**63 - 1, float("nan"), float("inf"), 1e38, 1e-45)
SHAPES = ([], [0], [1], [3], [2, 2], [0, 5], [1, 1, 1], [4, 3], [10_000])
KINDS = ("f4", "f8", "f2", "i8", "i4", "u1", "?", "u8", "i2")
NAMES = ("junk", "", "1/", "/about", "-1/about", "1/about", "99/loss", "٣/loss", "dense.", "ids.classes", "1/junk|V",
         "9" * 30 + "/loss", "clients", "numbers", "offsets.classes", "rows.classes", "a\nb\x1b[2J")  # fmt: skip
RECORDS = (
    "updates",
    "requests",
    "clients",
    "about",
    "setup",
    "task",
    "dense",
    "rows",
    "control",
    "public",
    "problem",
    "x",
)


def twists() -> st.SearchStrategy[list[Twist]]:
    at = st.integers(0, 30)
    change = changes().map(lambda made: [[c.kind, c.at, c.length, c.payload] for c in made])
    one = st.one_of(
        st.fixed_dictionaries({"do": st.just("bytes"), "record": at, "made": change}),
        st.fixed_dictionaries({"do": st.just("fill"), "record": at, "array": at, "value": st.integers(0, len(VALUES) - 1),
                               "all": st.booleans()}),
        st.fixed_dictionaries({"do": st.just("shape"), "record": at, "array": at, "shape": st.sampled_from(SHAPES)}),
        st.fixed_dictionaries({"do": st.just("type"), "record": at, "array": at, "kind": st.sampled_from(KINDS)}),
        st.fixed_dictionaries({"do": st.just("drop"), "record": at, "array": at}),
        st.fixed_dictionaries({"do": st.just("name"), "record": at, "array": at, "name": st.sampled_from(NAMES)}),
        st.fixed_dictionaries({"do": st.just("twice"), "record": at, "array": at, "name": st.sampled_from(NAMES)}),
        st.fixed_dictionaries({"do": st.just("lose"), "record": at}),
        st.fixed_dictionaries({"do": st.just("other"), "name": st.sampled_from(RECORDS), "kind": st.integers(0, 6)}),
        st.fixed_dictionaries({"do": st.just("swap"), "record": at, "with": at}),
        st.fixed_dictionaries({"do": st.just("number"), "record": at, "key": at, "value": st.sampled_from(
            [-1, 0, 1, 2**62, 10**30, 1.5, "x", "\n\x1b[31m", True, [], [-1], [0, 0], [2**62], ["a"], [1.5]])}),
    )  # fmt: skip
    return st.lists(one, min_size=1, max_size=3)


def twisted(content: RecordDict, made: list[Twist]) -> RecordDict:
    """The content with these changes; one that does not apply changes nothing."""
    records = dict(content.items())
    for twist in made:
        _apply(records, twist)
    return RecordDict(records)


def _apply(records: dict[str, Any], twist: Twist) -> None:
    names = sorted(records)
    if twist["do"] == "other":
        records[twist["name"]] = _other(twist["kind"])
        return
    if not names:
        return
    name = names[twist["record"] % len(names)]
    record = records[name]
    match twist["do"]:
        case "lose":
            del records[name]
        case "swap":
            other = names[twist["with"] % len(names)]
            records[name], records[other] = records[other], records[name]
        case "number" if isinstance(record, ConfigRecord) and len(record):
            plain: dict[str, Any] = dict(record)
            plain[sorted(plain)[twist["key"] % len(plain)]] = twist["value"]
            try:
                sent = ConfigRecord(plain)
                sent.deflate()  # what cannot be sent never comes
            except (TypeError, ValueError):
                return
            records[name] = sent
        case "bytes" if _is_ours(record):
            made = [Change(*change) for change in twist["made"]]
            records[name] = _raw(changed(bytes(record[messages.ONE].data), made))
        case "fill" | "shape" | "type" | "drop" | "name" | "twice" if _is_ours(record):
            records[name] = _altered(RecordDict({name: record}), name, twist)


def _altered(content: RecordDict, name: str, twist: Twist) -> ArrayRecord:
    try:
        arrays = messages.arrays_in(content, name)
    except messages.Malformed:
        return content[name]  # type: ignore[return-value]  # it is broken already
    if not arrays:
        return content[name]  # type: ignore[return-value]
    which = sorted(arrays)[twist["array"] % len(arrays)]
    array = arrays[which].copy()
    match twist["do"]:
        case "fill":
            with np.errstate(all="ignore"):
                value = np.array(VALUES[twist["value"]]).astype(array.dtype, casting="unsafe")
            array.reshape(-1)[: None if twist["all"] else 1] = value
            arrays[which] = array
        case "shape" if twist["shape"] or array.dtype.kind != "V":  # a digest is no number
            arrays[which] = (
                np.resize(array, twist["shape"]) if array.size else np.ones(twist["shape"], array.dtype)
            )
        case "type":
            with np.errstate(all="ignore"):
                arrays[which] = array.astype(twist["kind"]) if array.dtype.kind != "V" else array
        case "drop":
            del arrays[which]
        case "name":
            arrays[twist["name"]] = arrays.pop(which)
        case "twice":
            arrays[twist["name"]] = array
    return messages.packed(arrays)


def _is_ours(record: object) -> bool:
    return isinstance(record, ArrayRecord) and messages.ONE in record


def _raw(data: bytes) -> ArrayRecord:
    return ArrayRecord({messages.ONE: Array("uint8", (len(data),), messages.STYPE, data)})


def _other(kind: int) -> Any:
    makers: list[Callable[[], Any]] = [
        ArrayRecord,
        lambda: ConfigRecord({"a": 1}),
        lambda: MetricRecord({"a": 1.0}),
        lambda: ArrayRecord({"b": Array("uint8", (1,), messages.STYPE, b"1")}),
        lambda: ArrayRecord({messages.ONE: Array("uint8", (1,), "pickle", b"cos\nsystem\n(S'x'\ntR.")}),
        lambda: ConfigRecord({"reason": "x" * 100_000 + "\n\x1b[2J"}),
        ConfigRecord,
    ]
    return makers[kind % len(makers)]()


def answers(question: Message, reply: Message, how: str, made: list[Twist]) -> list[Message]:
    """What a node that means no good sends."""
    if how == "silent":
        return []
    if how == "error":
        return [Message(Error(7, "\x1b[2Jx" * 500), reply_to=question)]
    if reply.has_error():
        return [reply]
    sent = Message(twisted(reply.content, made), reply_to=question)
    if how == "named":
        sent.metadata.__dict__["_src_node_id"] = 100
    elif how == "elsewhere":
        sent.metadata.__dict__["_reply_to_message_id"] = "f" * 64
    return [sent, reply] if how == "and again" else [sent]
