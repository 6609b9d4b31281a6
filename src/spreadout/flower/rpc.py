"""One message to each of several nodes, and their replies within a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from grpc import RpcError

from spreadout.flower import bounds

NO_ANSWER = "no answer in time"
FAILED = "node failed"
TWICE = "answered twice"
IN_ANOTHERS_NAME = "answered in another's name"
UNREADABLE = "unreadable answer"
NOT_CONNECTED = "not connected"
TOO_LONG = "answer longer than asked for"
_REASONS = {  # what the SuperLink says in a node's place
    ErrorCode.NODE_UNAVAILABLE: NOT_CONNECTED,
    ErrorCode.MESSAGE_UNAVAILABLE: NO_ANSWER,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: NO_ANSWER,
}
POLL = 0.2  # seconds between two looks at what has come
GRACE = 300.0  # seconds a message outlives the wait for it: sending takes time, and clocks differ


@dataclass
class Replies:
    """What came back, and what did not, by node."""

    content: dict[int, RecordDict] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)  # why there is no answer
    details: dict[int, str] = field(default_factory=dict)  # what a failing node says of it
    extra: list[tuple[int, str]] = field(default_factory=list)  # replies that do not count, and why


class Call(NamedTuple):
    """A message to a node."""

    kind: str
    content: RecordDict
    most: int  # bytes its reply may have


def call(
    grid: Grid,
    calls: Mapping[int, Call],
    timeout: float,
    *,
    group: str = "",
    longer: Callable[[Replies], bool] = lambda so_far: False,
    longest: float = 0.0,
) -> Replies:
    """Send each node its message and wait for the replies: `timeout` seconds, and then while `longer`.

    A reply counts once, for the message that the SuperLink returns it for. A reply that names another
    sender or another message is refused. The SuperLink drops replies to a message whose time to live is
    over, so that is longer than anybody waits (`longest`: an end to `longer`).
    """
    result = Replies()
    lives = max(timeout, longest) + GRACE
    messages = [
        Message(one.content, node, one.kind, ttl=lives, group_id=group) for node, one in calls.items()
    ]
    sent = dict(zip(grid.push_messages(messages), calls, strict=False))
    sent = {message: node for message, node in sent.items() if message is not None}
    open_ids = set(sent)
    start = time.monotonic()
    while open_ids:
        for message in sorted(open_ids):
            try:
                replies = list(grid.pull_messages([message]))
            except (OSError, RpcError):  # the SuperLink's doing, not a node's
                raise
            except Exception as error:  # whatever a body that is no message makes of its reader
                result.missing[sent[message]] = UNREADABLE
                result.details[sent[message]] = f"{type(error).__name__}: {str(error)[:200]}"
                continue
            for reply in replies:
                _take(reply, message, sent[message], calls[sent[message]].most, result)
        open_ids = {m for m in open_ids if sent[m] not in result.content.keys() | result.missing.keys()}
        waited = time.monotonic() - start
        patient = waited < timeout or (waited < longest and longer(result))
        if not open_ids or not patient:
            break
        time.sleep(POLL)
    for node in calls:
        if node not in result.content:
            result.missing.setdefault(node, NO_ANSWER)
    return result


def _take(reply: Message, message: str, node: int, most: int, result: Replies) -> None:
    """One reply to the message that was sent to a node. most: bytes it may have."""
    if node in result.content or node in result.missing:
        result.extra.append((node, TWICE))
    elif reply.has_error():
        result.missing[node] = _REASONS.get(reply.error.code, FAILED)
        result.details[node] = str(reply.error.reason)
    elif (reply.metadata.reply_to_message_id, reply.metadata.src_node_id) != (message, node):
        result.missing[node] = IN_ANOTHERS_NAME
    elif (long := bounds.length(reply.content)) > most:
        result.missing[node] = TOO_LONG
        result.details[node] = f"{TOO_LONG}: {long:,} bytes, at most {most:,} are"
    else:
        result.content[node] = reply.content
