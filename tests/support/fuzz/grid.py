"""Targets: a server whose nodes answer anything, and a node that is told anything."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from flwr.app import Message
from hypothesis import strategies as st

from fuzz.prop import folder, outcome
from fuzz.target import Target
from fuzz.twist import answers, twisted, twists
from memory_grid import MemoryGrid, deployed, over_the_wire, served
from spreadout.config.experiment import Experiment
from spreadout.data.splits import Splits
from toys import several_classes

logging.getLogger("flwr").setLevel(logging.CRITICAL)
METHODS = {
    "fedaws": {"name": "fedaws"},
    "fedss": {"name": "fedss", "negatives": 2},
    "fedalc": {"name": "fedalc"},
    "fedalc-fixed": {"name": "fedalc-fixed", "table_steps": 2},
    "fedavg": {"name": "fedavg"},
    "scaffold": {"name": "fedaws"},
}
HOW = ("once", "once", "once", "once", "and again", "named", "elsewhere", "silent", "error")
NODES = 3


def experiment(method: str) -> Experiment:
    return Experiment.of(
        {
            "rounds": 2,
            "chosen": [],
            "model": {"hidden": [5], "dim": 4},
            "method": METHODS[method],
            "clients": {
                "batch": 3,
                "lr": 0.1,
                "local_steps": 2,
                **({"drift": "scaffold"} if method == "scaffold" else {}),
            },
            "eval": {"every": 2, "metrics": ["P@1"]},
            "deploy": {"timeout": 0.05, "wait": 1, "nodes": 1},
        }
    )


@cache
def data() -> Splits:
    return several_classes()


def serve_case(case: dict[str, Any]) -> str:
    """A run of two rounds in which two of three nodes answer as the case says, in turn."""
    e, turn = experiment(case["method"]), 0

    def hostile(question: Message, reply: Message) -> list[Message]:
        nonlocal turn
        turn += 1
        how, made = case["answers"][turn % len(case["answers"])]
        return answers(question, reply, how, made)

    def work() -> None:
        with folder() as home:
            grid = deployed(data(), e, home / "project", NODES)
            for node in (101, 102):
                grid.nodes[node].change = hostile
            result = served(grid, data(), e, home / "run")
            values = [*result.state.dense.values(), *result.state.tables.values()]
            assert all(bool(value.isfinite().all()) for value in values), "a model that is not finite"

    return outcome(work)


@cache
def questions(method: str) -> list[tuple[int, Message]]:
    """What an honest server says to its nodes, as it came over the wire."""
    with folder() as home:
        grid = deployed(data(), experiment(method), home / "project", NODES)
        served(grid, data(), experiment(method), home / "run")
        return [(number, message) for number, node in grid.nodes.items() for message in node.heard]


def node_case(case: dict[str, Any]) -> str:
    """A node that hears a changed question, after the honest ones before it."""
    heard = questions(case["method"])
    number, question = heard[case["which"] % len(heard)]

    def work() -> None:
        with folder() as home:
            grid = deployed(data(), experiment(case["method"]), home / "project", NODES)
            node = grid.nodes[number]
            for other, before in heard:
                if before is question:
                    break
                if other == number:
                    assert list(node.answers(before))
            changed = Message(
                twisted(question.content, case["made"]), number, question.metadata.message_type
            )
            (reply,) = node.answers(_as_sent(changed, question))
            MemoryGrid([])  # back to the server's side
            over_the_wire(reply)

    return outcome(work)


def _as_sent(changed: Message, question: Message) -> Message:
    changed.metadata.__dict__.update(question.metadata.__dict__)
    return changed


def _cases(**more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"method": st.sampled_from(sorted(METHODS)), **more})


TARGETS = [
    Target(
        "messages-to-the-server",
        _cases(answers=st.lists(st.tuples(st.sampled_from(HOW), twists()), min_size=1, max_size=4)),
        serve_case,
        slow=True,
    ),
    Target("messages-to-a-node", _cases(which=st.integers(0, 40), made=twists()), node_case, slow=True),
]
