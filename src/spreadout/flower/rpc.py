"""One question to each of several nodes, and their answers within a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from grpc import RpcError

NO_ANSWER = "no answer in time"
FAILED = "node failed"
TWICE = "answered twice"
IN_ANOTHERS_NAME = "answered in another's name"
UNREADABLE = "unreadable answer"
NOT_CONNECTED = "not connected"
_REASONS = {  # what the SuperLink says in a node's place
    ErrorCode.NODE_UNAVAILABLE: NOT_CONNECTED,
    ErrorCode.MESSAGE_UNAVAILABLE: NO_ANSWER,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: NO_ANSWER,
}
POLL = 0.2  # seconds between two looks at what has come


@dataclass
class Replies:
    """What came back, and what did not, by node."""

    content: dict[int, RecordDict] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)  # why there is no answer
    details: dict[int, str] = field(default_factory=dict)  # what a failing node says of it
    extra: list[tuple[int, str]] = field(default_factory=list)  # answers nobody asked for, and why not


Call = tuple[str, RecordDict]  # its kind, and what goes with it


def call(
    grid: Grid,
    questions: Mapping[int, Call],
    timeout: float,
    *,
    group: str = "",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Replies:
    """Send each node its question and wait for the answers, at most `timeout` seconds.

    An answer counts once, for the question it was given to. Which one that is, the SuperLink says: it is
    asked for the answer to each question by itself. What an answer says of its sender is the sender's
    own word, and where it is not so, the answer is refused.
    """
    answers = Replies()
    messages = [
        Message(content, node, kind, ttl=timeout, group_id=group)
        for node, (kind, content) in questions.items()
    ]
    sent = dict(zip(grid.push_messages(messages), questions, strict=False))
    sent = {message: node for message, node in sent.items() if message is not None}
    open_ids = set(sent)
    until = clock() + timeout
    while open_ids:
        for message in sorted(open_ids):
            try:
                replies = list(grid.pull_messages([message]))
            except (OSError, RpcError):  # the SuperLink's doing, not a node's
                raise
            except Exception as error:  # whatever a body that is no message makes of its reader
                answers.missing[sent[message]] = UNREADABLE
                answers.details[sent[message]] = f"{type(error).__name__}: {str(error)[:200]}"
                continue
            for reply in replies:
                _take(reply, message, sent[message], answers)
        open_ids = {
            m for m in open_ids if sent[m] not in answers.content.keys() | answers.missing.keys()
        }
        if not open_ids or clock() >= until:
            break
        sleep(POLL)
    for node in questions:
        if node not in answers.content:
            answers.missing.setdefault(node, NO_ANSWER)
    return answers


def _take(reply: Message, message: str, node: int, answers: Replies) -> None:
    """One of what came for a question that was asked of a node."""
    if node in answers.content or node in answers.missing:
        answers.extra.append((node, TWICE))
    elif reply.has_error():
        answers.missing[node] = _REASONS.get(reply.error.code, FAILED)
        answers.details[node] = str(reply.error.reason)
    elif (reply.metadata.reply_to_message_id, reply.metadata.src_node_id) != (message, node):
        answers.missing[node] = IN_ANOTHERS_NAME
    else:
        answers.content[node] = reply.content
