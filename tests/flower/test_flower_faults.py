"""Nodes that die, forget, lie or grab: the round ends with what is valid, and says what was not."""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save

import spreadout as so
from deployment import TOY, assert_same
from memory_grid import MemoryGrid, Node, deployed, form_of, served
from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.core.rows import nbytes
from spreadout.core.state import ServerState
from spreadout.federated.round import run_round
from spreadout.flower import keys, messages, rpc
from spreadout.flower.access import AccessControl, access_log, fingerprint_of, read_roster
from spreadout.flower.events import Events
from spreadout.flower.messages import HELLO, TRAIN, Malformed
from spreadout.runs.build import build_federation
from spreadout.runs.deployed import EVENTS, deployed_of
from spreadout.runs.observer import Interrupted, Observer
from spreadout.runs.result import Result
from toys import several_classes

QUICK = {**TOY, "deploy": {"timeout": 0.2, "wait": 1}, "eval": {"every": 1, "metrics": ["P@1"]}}


def experiment(*overrides: str) -> Experiment:
    return Experiment.of(QUICK, overrides=["method.name=baseline-1", *overrides])


def refusals(out: Path) -> list[dict[str, Any]]:
    path = out / "refusals.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class At(Observer):
    """Does something once a round is done."""

    def __init__(self, **then: Callable[[], None]) -> None:
        self.then = then

    def round_done(self, report: so.federated.round.RoundReport) -> None:  # type: ignore[name-defined]
        self.then.get(f"round_{report.round}", lambda: None)()


def changed(kind: str, change: Callable[[RecordDict], RecordDict]) -> Callable[..., Iterable[Message]]:
    """A node that answers one kind of question in its own way."""

    def answer(question: Message, reply: Message) -> Iterable[Message]:
        if question.metadata.message_type == kind:
            return [Message(change(reply.content), reply_to=question)]
        return [reply]

    return answer


def run(tmp_path: Path, e: Experiment, grid: MemoryGrid, **more: Any) -> Result:
    return served(grid, several_classes(), e, tmp_path / "run", **more)


def three_nodes(tmp_path: Path, e: Experiment) -> MemoryGrid:
    return deployed(several_classes(), e, tmp_path / "project", 3)


def assert_trained_without(result: Result, e: Experiment, *missing: int) -> None:
    """The model is that of a simulation in which these clients have nothing to say."""
    data = several_classes()
    keep = [c for c in range(data.train.clients) if c not in missing]
    alone = so.run(e, data=replace(data, train=data.train.part(torch.tensor(keep))), device="cpu")
    torch.testing.assert_close(result.state.dense, alone.state.dense, rtol=1e-4, atol=2e-6)


# Nodes that go away


def test_a_node_killed_in_mid_round_costs_its_own_clients_only(tmp_path: Path) -> None:
    e = experiment()
    grid = three_nodes(tmp_path, e)

    def die(question: Message, reply: Message) -> Iterable[Message]:
        return [] if question.metadata.message_type == TRAIN else [reply]

    grid.nodes[101].change = die  # clients 1 and 4
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"no answer in time": 2 * 3}
    assert {(r["client"], r["reason"]) for r in refusals(tmp_path / "run")} == {
        (1, "no answer in time"),
        (4, "no answer in time"),
    }
    assert_trained_without(result, e, 1, 4)


def test_a_node_that_comes_back_is_used_again(tmp_path: Path) -> None:
    e = experiment("rounds=4", "deploy.takeover=true")
    grid = three_nodes(tmp_path, e)
    gone: list[Node] = []

    def leave() -> None:
        gone.append(grid.nodes.pop(101))

    def come_back() -> None:  # without a key it has a new number, as an insecure SuperNode has
        grid.nodes[201] = Node(201, gone[0].app, gone[0].config)

    class Told(Events):
        def round_done(self, report: so.federated.round.RoundReport) -> None:  # type: ignore[name-defined]
            super().round_done(report)
            {1: leave, 2: come_back}.get(report.round, lambda: None)()

    (tmp_path / "run" / "deployment").mkdir(parents=True)
    result = run(tmp_path, e, grid, observer=Told(tmp_path / "run" / EVENTS))
    heard = deployed_of(tmp_path / "run")
    assert heard is not None
    there = [(one["nodes"], one["accepted"]) for one in heard.rounds.values()]
    assert there == [(3, 6), (2, 4), (3, 6), (3, 6)]
    moved = result.state.traffic
    assert (heard.total("down"), heard.total("up")) == (moved.down, moved.up - moved.once_up)
    assert result.state.refused == heard.refused == {"not connected": 2}  # in the second round
    assert [(r["round"], r["client"]) for r in refusals(tmp_path / "run")] == [(2, 1), (2, 4)]
    assert result.state.traffic.participations == 4 * 6


def test_a_late_answer_is_not_used(tmp_path: Path) -> None:
    """Flower drops answers to questions whose time is over; whatever still comes is nobody's."""
    e = experiment()
    grid = three_nodes(tmp_path, e)
    held: list[Message] = []

    def late(question: Message, reply: Message) -> Iterable[Message]:
        if question.metadata.message_type != TRAIN:
            return [reply]
        held.append(reply)
        return held[-2:-1]  # the answer to the round before

    grid.nodes[101].change = late
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"no answer in time": 2, "answered in another's name": 2 * 2}
    assert_trained_without(result, e, 1, 4)


def test_a_stranger_that_never_answers_is_waited_for_less_and_less(tmp_path: Path) -> None:
    e = experiment("rounds=8", "deploy.timeout=0.05")
    grid = three_nodes(tmp_path, e)
    mute = Node(999, grid.nodes[101].app, grid.nodes[101].config, alive=False)
    result = run(tmp_path, e, grid, observer=At(round_1=lambda: grid.nodes.update({999: mute})))
    assert result.state.refused == {}
    asked = [messages.numbers_in(m.content, "task")["round"] for m in mute.heard]
    assert asked == [1, 2, 4]  # of the seven rounds it was there


def test_a_node_that_says_nothing_more_is_left_alone_and_no_round_waits_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = experiment("rounds=8", "deploy.timeout=0.4")
    grid = three_nodes(tmp_path, e)
    grid.nodes[101].change = lambda q, reply: [reply] if q.metadata.message_type == HELLO else []
    limits: Counter[str] = Counter()
    call = rpc.call

    def noted(grid: Any, calls: Any, timeout: float, *, group: str, **more: Any) -> rpc.Replies:
        limits[group] += timeout
        return call(grid, calls, timeout, group=group, **more)

    monkeypatch.setattr(rpc, "call", noted)
    result = run(tmp_path, e, grid)
    asked = [m for m in grid.nodes[101].heard if m.metadata.message_type != HELLO]
    assert 1 <= len(asked) <= 6  # in eight rounds
    assert max(limits.values()) <= 1.5 * 0.4 + 1e-9
    assert_trained_without(result, e, 1, 4)


class SlowGrid(MemoryGrid):
    """Gives a node's reply to a greeting only when it has been looked for so many times."""

    slow, looks = 101, 6

    def __init__(self, nodes: Iterable[Node]) -> None:
        super().__init__(nodes)
        self.looked: Counter[str] = Counter()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        for number in message_ids:
            for reply in self.replies.get(number, []):
                is_slow = reply.metadata.src_node_id == self.slow
                if is_slow and reply.metadata.message_type == HELLO:
                    self.looked[number] += 1
                    if self.looked[number] < self.looks:
                        return []
        return super().pull_messages(message_ids)


def test_a_run_that_lacks_nodes_waits_for_a_slow_one_and_asks_it_once(tmp_path: Path) -> None:
    """Looks are 0.2 s apart, and greetings have 0.1 s of a round: it answers long after that."""
    e = experiment("deploy.nodes=3", "deploy.timeout=0.2", "deploy.wait=600")
    grid = three_nodes(tmp_path, e)
    slow = SlowGrid(grid.nodes.values())
    assert run(tmp_path, e, slow).state.refused == {}
    assert [m.metadata.message_type for m in grid.nodes[101].heard].count(HELLO) == 1


def test_waiting_for_a_mute_node_does_not_keep_others_from_coming(tmp_path: Path) -> None:
    """If it did, nobody else would have come when the time for coming is over."""
    e = experiment("deploy.nodes=3", "deploy.wait=20")
    grid = three_nodes(tmp_path, e)
    mute = Node(999, grid.nodes[101].app, grid.nodes[101].config, alive=False)
    late, grid.nodes = grid.nodes, {999: mute}
    get_nodes, looks = grid.get_nodes, iter(range(1000))

    def coming() -> Iterable[Any]:
        if next(looks) == 4:
            grid.nodes |= late
        return get_nodes()

    grid.get_nodes = coming  # type: ignore[method-assign]
    assert run(tmp_path, e, grid).state.traffic.participations == 3 * 6


def test_messages_outlive_the_wait_for_their_answers(tmp_path: Path) -> None:
    """The SuperLink drops answers to a message whose time is over, though the round still waits."""
    e = experiment("rounds=2")
    grid = three_nodes(tmp_path, e)
    run(tmp_path, e, grid)
    heard = [message for node in grid.nodes.values() for message in node.heard]
    assert {message.metadata.message_type for message in heard} == {HELLO, TRAIN}
    assert min(message.metadata.ttl for message in heard) >= e.deploy.timeout + rpc.GRACE - 1


def test_a_node_that_says_hello_wrongly_is_not_counted_and_is_asked_again(tmp_path: Path) -> None:
    e = experiment("deploy.nodes=3", "deploy.wait=4")
    grid = three_nodes(tmp_path, e)
    said: list[int] = []

    def at_first_wrong(content: RecordDict) -> RecordDict:
        said.append(1)
        if len(said) == 1:
            content["about"] = ConfigRecord({"classes": 77})
        return content

    grid.nodes[101].change = changed(HELLO, at_first_wrong)
    result = run(tmp_path, e, grid)
    assert len(said) == 2
    assert result.state.refused == {}
    assert result.state.traffic.participations == 3 * 6
    assert [(r["node"], r["reason"]) for r in refusals(tmp_path / "run")] == [(101, "malformed")]


def test_a_mute_node_does_not_keep_a_run_from_beginning(tmp_path: Path) -> None:
    e = experiment("deploy.nodes=3", "deploy.wait=3", "deploy.timeout=3")
    grid = three_nodes(tmp_path, e)
    grid.nodes[999] = Node(999, grid.nodes[101].app, grid.nodes[101].config, alive=False)
    assert run(tmp_path, e, grid).state.traffic.participations == 3 * 6


def test_nobody_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    e = experiment("deploy.nodes=4")
    with pytest.raises(UserError, match=r"deploy.nodes = 4: 3 nodes came within deploy.wait = 1 s"):
        run(tmp_path, e, three_nodes(tmp_path, e))


def test_what_a_node_said_is_the_reason_and_not_its_later_silence(tmp_path: Path) -> None:
    e = experiment("deploy.nodes=3", "deploy.wait=3", "deploy.timeout=1")
    grid = three_nodes(tmp_path, e)

    def says_why_and_falls_silent(content: RecordDict) -> RecordDict:
        grid.nodes[101].alive = False
        return RecordDict({"problem": ConfigRecord({"reason": "mine.csv:9: kind is 'oak'"})})

    grid.nodes[101].change = changed(HELLO, says_why_and_falls_silent)
    why = (
        r"3: 2 nodes came within deploy\.wait = 3 s; one that came failed: .*mine\.csv:9: kind is 'oak'"
    )
    with pytest.raises(UserError, match=why):
        run(tmp_path, e, grid)


# Nodes that lie


def with_update(change: Callable[[dict[str, Any]], None]) -> Callable[..., Any]:
    """Its answer with the arrays of client 1's update changed."""

    def altered(content: RecordDict) -> RecordDict:
        arrays = messages.tensors_in(content, "updates")
        own = {name[2:]: value for name, value in arrays.items() if name.startswith("1/")}
        change(own)
        rest = {name: value for name, value in arrays.items() if not name.startswith("1/")}
        content["updates"] = messages.packed({**rest, **{f"1/{n}": v for n, v in own.items()}})
        return content

    return changed(TRAIN, altered)


def said(place: int, value: int) -> Callable[[dict[str, Any]], None]:
    """Another client, round or number of examples in it."""

    def change(arrays: dict[str, Any]) -> None:
        arrays["about"][place] = value

    return change


LIES: dict[str, tuple[Callable[..., Any], str]] = {
    "nan": (with_update(lambda a: a["dense.1.weight"].fill_(float("nan"))), "not finite"),
    "nan loss": (with_update(lambda a: a["loss"].fill_(float("nan"))), "not finite"),
    "another's rows": (with_update(lambda a: a["ids.classes"].fill_(7)), "unrequested rows"),
    "no such rows": (with_update(lambda a: a["ids.classes"].fill_(99)), "unknown rows"),
    "another client": (with_update(said(0, 2)), "wrong client"),
    "another round": (with_update(said(1, 7)), "wrong round"),
    "more weight": (with_update(said(2, 10**6)), "too many examples"),
    "no number": (with_update(lambda a: a.update(about=torch.zeros(3))), "malformed"),
    "no loss": (with_update(lambda a: a.pop("loss")), "malformed"),
    "half of it": (with_update(lambda a: a.pop("dense.1.weight")), "wrong parts"),
    "another shape": (
        with_update(lambda a: a.update({"dense.1.weight": torch.zeros(2, 2)})),
        "wrong shape",
    ),
    "another type": (
        with_update(lambda a: a.update({"dense.1.bias": torch.zeros(5, dtype=torch.int64)})),
        "wrong dtype",
    ),
    "rows without values": (with_update(lambda a: a.pop("values.classes")), "malformed"),
    "values without rows": (with_update(lambda a: a.update({"values.x": torch.ones(1)})), "malformed"),
    "an unknown array": (with_update(lambda a: a.update(junk=torch.ones(1))), "malformed"),
    "an array without a name": (with_update(lambda a: a.update({"": torch.ones(1)})), "malformed"),
}


@pytest.mark.parametrize(("lie", "reason"), LIES.values(), ids=LIES.keys())
def test_a_lie_is_refused_by_its_name_and_the_rest_is_used(
    lie: Callable[..., Any], reason: str, tmp_path: Path
) -> None:
    e = experiment()
    grid = three_nodes(tmp_path, e)
    grid.nodes[101].change = lie
    result = run(tmp_path, e, grid)
    assert result.state.refused == {reason: 3}  # in every round, and client 4 of the same node is not
    assert {r["client"] for r in refusals(tmp_path / "run")} == {1}
    assert_trained_without(result, e, 1)


def instead(record: ArrayRecord | ConfigRecord) -> Callable[[RecordDict], RecordDict]:
    return lambda content: RecordDict({**content, "updates": record})


def raw(data: bytes, stype: str = "safetensors", name: str = "all") -> ArrayRecord:
    return ArrayRecord({name: Array("uint8", (len(data),), stype, data)})


HUGE = b'{"0 1/loss":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
GARBAGE: dict[str, tuple[Callable[[RecordDict], RecordDict], str]] = {
    "nothing": (lambda content: RecordDict(), "no update"),
    "numbers for arrays": (instead(ConfigRecord({"a": 1})), "malformed"),
    "no array": (instead(ArrayRecord()), "malformed"),
    "noise": (instead(raw(bytes(range(256)))), "malformed"),
    "a pickle": (instead(raw(b"cos\nsystem\n(S'true'\ntR.", "pickle")), "malformed"),
    "a huge claim": (instead(raw(len(HUGE).to_bytes(8, "little") + HUGE + b"abcd")), "malformed"),
    "of client 007": (instead(messages.packed({"007/loss": torch.zeros(1)})), "malformed"),
    "nobody's": (instead(messages.packed({"x/loss": torch.zeros(1)})), "malformed"),
}


@pytest.mark.parametrize(("garbage", "reason"), GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_refused(
    garbage: Callable[[RecordDict], RecordDict], reason: str, tmp_path: Path
) -> None:
    e = experiment()
    grid = three_nodes(tmp_path, e)
    grid.nodes[101].change = changed(TRAIN, garbage)
    result = run(tmp_path, e, grid)
    assert result.state.refused == {reason: 3 * 2}  # both clients of that node
    assert_trained_without(result, e, 1, 4)


def test_an_update_of_a_client_that_was_not_asked_of_the_node_is_refused_by_name(tmp_path: Path) -> None:
    e = experiment("rounds=1")
    grid = three_nodes(tmp_path, e)

    def more(content: RecordDict) -> RecordDict:
        came = messages.updates_in(content)
        extra = {f"2/{name}": value for name, value in came[1].items()}
        mine = {f"{c}/{name}": value for c, arrays in came.items() for name, value in arrays.items()}
        content["updates"] = messages.packed({**mine, **extra})
        return content

    grid.nodes[101].change = changed(TRAIN, more)
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"update of a client that was not asked": 1}
    assert [(r["client"], r["node"]) for r in refusals(tmp_path / "run")] == [(2, 101)]
    torch.testing.assert_close(
        result.state.dense, so.run(e, data=several_classes(), device="cpu").state.dense
    )


def test_an_answer_in_anothers_name_is_not_taken_for_the_others(tmp_path: Path) -> None:
    e = experiment("rounds=1")
    grid = three_nodes(tmp_path, e)

    def forged(question: Message, reply: Message) -> Iterable[Message]:
        if question.metadata.message_type == TRAIN:
            reply.metadata.__dict__["_src_node_id"] = 102
        return [reply]

    grid.nodes[101].change = forged
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"answered in another's name": 2}
    assert {r["client"] for r in refusals(tmp_path / "run")} == {1, 4}


def test_a_body_that_is_no_message_costs_its_own_node_only(tmp_path: Path) -> None:
    e = experiment("rounds=2")
    grid = three_nodes(tmp_path, e)
    real = grid.pull_messages

    def pull(ids: Iterable[str]) -> Iterable[Message]:
        replies = list(real(ids))
        if any(r.metadata.src_node_id == 101 and r.metadata.message_type == TRAIN for r in replies):
            raise ValueError("no such child object")
        return replies

    grid.pull_messages = pull  # type: ignore[method-assign]
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"unreadable answer": 2 * 2}


def test_a_second_run_into_the_same_folder_leaves_the_first_as_it_is(tmp_path: Path) -> None:
    e = experiment()
    run(tmp_path, e, three_nodes(tmp_path, e))
    granted = tmp_path / "run" / "deployment" / "access.jsonl"
    before = granted.read_bytes()
    with pytest.raises(UserError, match="exists"):
        run(tmp_path, e, three_nodes(tmp_path, e))
    assert granted.read_bytes() == before


def test_an_answer_counts_once(tmp_path: Path) -> None:
    e = experiment()
    grid = three_nodes(tmp_path, e)

    def twice(question: Message, reply: Message) -> Iterable[Message]:
        return [reply, Message(reply.content, reply_to=question)]

    grid.nodes[101].change = twice
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"answered twice": 3}
    assert {(r["node"], r["reason"]) for r in refusals(tmp_path / "run")} == {(101, "answered twice")}
    assert_trained_without(result, e)


def test_a_node_that_raises_is_left_out_of_that_round(tmp_path: Path) -> None:
    e = experiment()
    grid = three_nodes(tmp_path, e)
    broken = tmp_path / "broken.toml"
    broken.write_text("rounds = 'three'")
    from spreadout.flower.client_app import client_app

    good = grid.nodes[101].app
    result = run(
        tmp_path, e, grid,
        observer=At(
            round_1=lambda: setattr(grid.nodes[101], "app", client_app(broken)),
            round_2=lambda: setattr(grid.nodes[101], "app", good),
        ),
    )  # fmt: skip
    assert result.state.refused == {"node failed": 2}
    assert {r["round"] for r in refusals(tmp_path / "run")} == {2}


# Nodes that grab


def rows_sent(node: Node) -> set[int]:
    """Every class row a node was ever sent."""
    found = [messages.rows_in(m.content, "rows") for m in node.heard if "rows" in m.content]
    return {int(row) for rows in found for row in rows["classes"].ids}


def grabbing(rows: list[int], after: int = 0) -> Callable[..., Any]:
    """A node whose client 1 asks for these rows, from some round on."""

    def ask(content: RecordDict, round: int) -> RecordDict:
        if "requests" in content and round >= after:
            asked = messages.requests_in(content)
            clients = sorted(asked)
            lists = [torch.tensor(rows) if c == 1 else asked[c]["classes"] for c in clients]
            content["requests"] = messages.put_requests(
                clients,
                {"classes": Ragged.from_lists(lists)},  # type: ignore[attr-defined]
            )
        return content

    def answer(question: Message, reply: Message) -> Iterable[Message]:
        round = int(messages.numbers_in(question.content, "task")["round"])
        ahead = question.metadata.message_type == TRAIN
        return [Message(ask(reply.content, round + ahead), reply_to=question)]

    return answer


def test_a_client_that_asks_for_anothers_row_gets_nothing(tmp_path: Path) -> None:
    data, e = several_classes(), experiment("method.name=fedaws")
    grid = deployed(data, e, tmp_path / "project", 6)
    own = set(data.train.rows_of(torch.tensor([1]))["classes"].values.tolist())
    grid.nodes[101].change = grabbing(list(range(8)), after=1)  # honest once, greedy ever after
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"rows not allowed": 2}
    assert rows_sent(grid.nodes[101]) == own
    assert own != set(range(8))


def naming(rows: Callable[[list[int]], list[int]], after: int) -> Callable[..., Any]:
    """A node whose client 1 moves other rows than its own, from some round on. rows: of its own."""
    told = iter(range(1000))

    def change(arrays: dict[str, Any]) -> None:
        if next(told) >= after:
            arrays["ids.classes"] = torch.tensor(rows(arrays["ids.classes"].tolist()))
            arrays["values.classes"] = torch.ones(len(arrays["ids.classes"]), 4)

    return with_update(change)


def test_a_client_that_moves_a_row_that_it_only_sees_is_refused(tmp_path: Path) -> None:
    """All eight rows are sent to it, and its first update has said which of them are its own."""
    data = several_classes()
    own = data.train.rows_of(torch.tensor([1]))["classes"].values.tolist()
    e = experiment("method.name=fedaws", "method.negatives=7")
    grid = deployed(data, e, tmp_path / "project", 6)
    grid.nodes[101].change = naming(lambda rows: sorted({0, *rows}), after=1)
    assert 0 not in own
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"rows not allowed": 2}
    assert {r["client"] for r in refusals(tmp_path / "run")} == {1}
    assert rows_sent(grid.nodes[101]) == set(range(8))
    log = [json.loads(line) for line in (tmp_path / "run/deployment/access.jsonl").open()]
    assert [line["rows"] for line in log if line.get("client") == 1 and line.get("rows")] == [
        {"classes": own}
    ]


def test_a_roster_says_which_rows_an_update_may_move(tmp_path: Path) -> None:
    data = several_classes()
    every = [data.train.rows_of(torch.tensor([c]))["classes"].values.tolist() for c in range(6)]
    roster = tmp_path / "roster.toml"
    roster.write_text("".join(f"[clients.{c}]\nclasses = {rows}\n" for c, rows in enumerate(every)))
    e = experiment("method.name=fedaws", "method.negatives=7", f"deploy.roster={roster}")
    grid = deployed(data, e, tmp_path / "project", 6)
    grid.nodes[101].change = naming(lambda rows: sorted({0, *rows}), after=0)
    assert run(tmp_path, e, grid).state.refused == {"rows not allowed": 3}


def test_a_stopped_server_remembers_whose_rows_updates_have_named(tmp_path: Path) -> None:
    data = several_classes()
    e = experiment("method.name=fedaws", "method.negatives=7", "rounds=4")
    whole = served(deployed(data, e, tmp_path / "a", 6), data, e, tmp_path / "whole")
    stops = iter([False, True])
    grid = deployed(data, e, tmp_path / "b", 6)
    with pytest.raises(Interrupted):
        run(tmp_path, e, grid, stop=lambda: next(stops))
    grid.nodes[101].change = naming(lambda rows: [0], after=0)
    result = run(tmp_path, e, grid, resume=True)
    assert result.state.refused == {"rows not allowed": 2}
    assert whole.state.refused == {}


def test_a_roster_says_what_is_a_clients_own_from_the_start(tmp_path: Path) -> None:
    data = several_classes()
    every = [data.train.rows_of(torch.tensor([c]))["classes"].values.tolist() for c in range(6)]
    roster = tmp_path / "roster.toml"
    roster.write_text("".join(f"[clients.{c}]\nclasses = {rows}\n" for c, rows in enumerate(every)))
    e = experiment("method.name=fedaws", f"deploy.roster={roster}")
    grid = deployed(data, e, tmp_path / "project", 6)
    grid.nodes[101].change = grabbing(list(range(8)))
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"rows not allowed": 3}
    assert rows_sent(grid.nodes[101]) == set()
    assert rows_sent(grid.nodes[102]) == set(every[2])


def test_where_clients_sample_rows_only_their_number_can_be_bounded(tmp_path: Path) -> None:
    e = experiment("method.name=fedss", "method.negatives=2", "deploy.max_rows=6")
    grid = deployed(several_classes(), e, tmp_path / "project", 6)
    grid.nodes[101].change = grabbing(list(range(8)))
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"rows not allowed": 3}
    assert rows_sent(grid.nodes[101]) == set()


@pytest.mark.parametrize("rows", [[3, 3], [5, 2], [-1, 2], [2, 800]], ids=str)
def test_rows_that_are_no_rows_are_not_looked_up(rows: list[int], tmp_path: Path) -> None:
    e = experiment("method.name=fedavg")  # even where any row may be asked for
    grid = deployed(several_classes(), e, tmp_path / "project", 6)
    grid.nodes[101].change = grabbing(rows)
    assert run(tmp_path, e, grid).state.refused == {"rows not allowed": 3}


def test_a_client_belongs_to_the_first_node_that_claims_it(tmp_path: Path) -> None:
    e = experiment()
    grid = three_nodes(tmp_path, e)
    thief = Node(999, grid.nodes[101].app, grid.nodes[101].config)
    result = run(tmp_path, e, grid, observer=At(round_1=lambda: grid.nodes.update({999: thief})))
    assert result.state.refused == {}  # the run goes on with the nodes it has
    assert rows_sent(thief) == set()
    assert {(r["node"], r["client"], r["reason"]) for r in refusals(tmp_path / "run")} == {
        (999, 1, "another node's client"),
        (999, 4, "another node's client"),
    }


def test_a_clients_node_is_known_by_its_key(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        keys.make_node_key(tmp_path / name)
    roster = tmp_path / "roster.toml"
    roster.write_text("".join(f'[clients.{c}]\nkey = "good.pub"\n' for c in range(6)))
    e = experiment(f"deploy.roster={roster}")
    grid = three_nodes(tmp_path, e)
    for number, name in ((100, "good"), (101, "bad"), (102, "good")):
        grid.nodes[number].key = (tmp_path / f"{name}.pub").read_bytes()
    result = run(tmp_path, e, grid)
    assert result.summary["clients"] == 4  # those of the two good nodes
    assert rows_sent(grid.nodes[101]) == set()


def test_a_grant_outlives_the_server(tmp_path: Path) -> None:
    access = AccessControl("own", {"classes": 8}, log=access_log(tmp_path / "access.jsonl"))
    assert access.claim(3, 12, "one", {"one"}) is None
    assert access.denial(3, {"classes": torch.tensor([4])}) is None
    access.close()
    again = AccessControl(
        "own", {"classes": 8}, log=access_log(tmp_path / "access.jsonl"), takeover=True
    )
    again.recall()
    assert again.denial(3, {"classes": torch.tensor([5])}) == "rows not allowed"
    assert again.denial(3, {"classes": torch.tensor([4])}) is None
    assert again.claim(3, 12, "two", {"one", "two"}) == "another node's client"
    assert again.claim(3, 99, "two", {"two"}) is None  # its node is gone, and others may take over
    assert again.sizes == {3: 12}  # it weighs what it weighed
    assert again.claim(5, 1, "two", {"two"}) == "not a client of this run"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("clients = 3", "is no roster"),
        ("[clients.0]\nkey = 'missing.pub'", "missing.pub: No such file"),
        ("[clients.0]\nkey = 'roster.toml'", "is no public key"),
        ("[clients.0]\nclasses = [1, inf]", "clients.0.classes: must be a list of classes' numbers"),
        ("[clients.0]\nkey = 3", "clients.0.key: must be the name of a key file"),
        ("[clients.007]\nclasses = [1]", "clients.007: is no client's number, as clients.7 is"),
        ("[clients.0]\nclass = [1]", "clients.0.class: unknown; known: key, classes"),
    ],
)
def test_a_wrong_roster_is_named(text: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "roster.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=word):
        read_roster(path)


def test_a_key_is_the_same_from_a_file_and_from_the_superlink(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    from spreadout.flower.access import fingerprint

    keys.make_node_key(tmp_path / "node")
    key = load_ssh_public_key((tmp_path / "node.pub").read_bytes())
    assert fingerprint(public_key_to_bytes(key)) == fingerprint_of(tmp_path / "node.pub")  # type: ignore[arg-type]
    assert (tmp_path / "node").stat().st_mode & 0o077 == 0


# Nodes that keep, and forget


def test_fixed_rows_are_sent_once_and_again_to_a_node_that_forgot(tmp_path: Path) -> None:
    data, e = several_classes(), experiment("method.name=baseline-2", "rounds=4")
    grid = deployed(data, e, tmp_path / "project", 6)
    result = run(tmp_path, e, grid, observer=At(round_2=grid.nodes[101].restart))
    every = data.train.rows_of(torch.arange(6))["classes"]
    row = nbytes([result.state.tables["classes"][:1], torch.zeros(1, dtype=torch.int64)])
    again = int(every.lengths[1])
    # It says in round 3 that it has lost them, asks, and has them in round 4.
    assert result.state.refused == {"node failed": 1}
    assert refusals(tmp_path / "run")[0]["round"] == 3
    assert result.state.traffic.rows_down == row * (int(every.lengths.sum()) + again)


def test_a_restarted_node_is_told_again_what_all_must_know(tmp_path: Path) -> None:
    e = experiment("method.name=fedss", "method.negatives=2", "method.draw=popular", "rounds=4")
    grid = deployed(several_classes(), e, tmp_path / "project", 6)
    result = run(tmp_path, e, grid, observer=At(round_2=grid.nodes[101].restart))
    assert result.state.refused == {"node failed": 1}
    assert result.state.traffic.once_down == 4 * 8 * (6 + 1)


def test_a_stopped_server_goes_on_to_the_same_end(tmp_path: Path) -> None:
    data, e = several_classes(), experiment("method.name=fedaws", "rounds=5", "clients.per_round=4")
    whole = served(deployed(data, e, tmp_path / "a", 3), data, e, tmp_path / "whole")
    stops = iter([False, True])
    grid = deployed(data, e, tmp_path / "b", 3)
    with pytest.raises(Interrupted):
        run(tmp_path, e, grid, stop=lambda: next(stops))
    for node in grid.nodes.values():
        node.restart()
    result = run(tmp_path, e, grid, resume=True)
    for name, value in whole.state.dense.items():
        assert torch.equal(value, result.state.dense[name])
    assert torch.equal(whole.state.tables["classes"], result.state.tables["classes"])
    assert result.state.traffic == whole.state.traffic


@pytest.mark.parametrize("drift", ["scaffold", "feddyn"])
def test_a_resumed_deployment_starts_its_drift_correction_anew(drift: str, tmp_path: Path) -> None:
    """The nodes' states belong to the run before: a control without them would be nobody's mean."""
    data, e = several_classes(), experiment("method.name=fedaws", "rounds=4", f"clients.drift={drift}")
    stops = iter([False, True])
    grid = deployed(data, e, tmp_path / "project", 3)
    with pytest.raises(Interrupted):
        run(tmp_path, e, grid, stop=lambda: next(stops))
    for node in grid.nodes.values():
        node.restart()
    result = run(tmp_path, e, grid, resume=True)
    f = build_federation(e, data, torch.device("cpu"))
    twin = ServerState(0, *f.model.initial(f.seed, f.device))
    for round in range(4):
        if round == 2:
            assert any(bool(control.any()) for control in twin.control.values())
            twin.control.clear()
            twin.clients.clear()
        run_round(f, twin)
    torch.testing.assert_close(result.state.dense, twin.dense, rtol=1e-4, atol=2e-6)


def test_a_collection_is_not_asked_for_again(tmp_path: Path) -> None:
    from toys import tagged

    data = tagged()
    values = {**QUICK, "rounds": 3, "model": {"hidden": [8], "dim": 5}, "method": {"name": "fedalc"}}
    e = Experiment.of(values)
    stops = iter([True])
    grid = deployed(data, e, tmp_path / "project", 3)
    with pytest.raises(Interrupted):
        served(grid, data, e, tmp_path / "run", stop=lambda: next(stops))
    hellos = len([m for m in grid.nodes[100].heard if "hello" in m.metadata.message_type])
    result = served(grid, data, e, tmp_path / "run", resume=True)
    asked = [m for m in grid.nodes[100].heard if "hello" in m.metadata.message_type][hellos:]
    assert [messages.numbers_in(m.content, "task")["setup"] for m in asked] == [False]
    assert_same(so.run(e, data=data, device="cpu"), result)


def test_only_an_unfinished_run_of_the_same_config_is_resumed(tmp_path: Path) -> None:
    e = experiment("rounds=1")
    grid = three_nodes(tmp_path, e)
    run(tmp_path, e, grid)
    with pytest.raises(UserError, match="is finished"):
        run(tmp_path, e, grid, resume=True)
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(UserError, match="is not the deployed config"):
        run(tmp_path, experiment("rounds=2"), grid, resume=True)


def test_a_run_whose_nodes_all_started_anew_without_keys_is_resumed_once_they_may_take_over(
    tmp_path: Path,
) -> None:
    e = experiment("rounds=4", "deploy.nodes=3", "deploy.wait=1", "run.checkpoint_every=1")
    grid, stops = three_nodes(tmp_path, e), iter([False, True])
    with pytest.raises(Interrupted):
        run(tmp_path, e, grid, stop=lambda: next(stops))
    grid.nodes = {n + 100: Node(n + 100, one.app, one.config) for n, one in grid.nodes.items()}
    said = "of its clients are another node's; a node without a key .* set deploy.takeover = true"
    with pytest.raises(UserError, match=said):
        run(tmp_path, e, grid, resume=True)
    other = e.model_copy(update={"deploy": e.deploy.model_copy(update={"takeover": True, "wait": 9.0})})
    result = run(tmp_path, other, grid, resume=True)
    assert_same(so.run(e, data=several_classes(), device="cpu"), result)
    strict = other.model_copy(update={"deploy": other.deploy.model_copy(update={"max_clients": 2})})
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(UserError, match="is not the deployed config"):
        run(tmp_path, strict, grid, resume=True)


# Secrets


def test_with_a_secret_of_its_own_a_nodes_draws_cannot_be_worked_out(tmp_path: Path) -> None:
    data = several_classes()
    e = experiment("method.name=fedss", "method.negatives=2", "run.log_requests=true")

    def drawn(out: str, secret: str | None) -> list[str]:
        grid = deployed(data, e, tmp_path / f"project-{out}", 6)
        if secret is not None:
            for node in grid.nodes.values():
                path = tmp_path / f"{secret}-{node.number}"
                keys.make_secret(path)
                node.config["secret-file"] = str(path)
                node.restart()
        served(grid, data, e, tmp_path / out)
        return (tmp_path / out / "requests.jsonl").read_text().splitlines()

    assert drawn("a", None) == drawn("b", None)  # a rehearsal draws as the simulation does
    assert drawn("c", "x") != drawn("d", "y") != drawn("e", None)


def test_a_collection_without_the_shared_key_says_what_is_missing(tmp_path: Path) -> None:
    from toys import tagged

    data = tagged()
    e = Experiment.of({**QUICK, "model": {"hidden": [8], "dim": 5}, "method": {"name": "fedalc"}})
    grid = deployed(data, e, tmp_path / "project", 1)
    del grid.nodes[100].config["label-key-file"]
    grid.nodes[100].restart()
    with pytest.raises(UserError, match="0 nodes came"):
        served(grid, data, e, tmp_path / "run")


def test_label_messages_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    from toys import tagged

    data = tagged()
    e = Experiment.of({**QUICK, "model": {"hidden": [8], "dim": 5}, "method": {"name": "fedalc"}})
    grid = deployed(data, e, tmp_path / "project", 3)

    def garble(content: RecordDict) -> RecordDict:
        told = messages.setup_in(content)
        messages.put_setup(content, {**told, 1: {"rows": np.ones((1, 1))}})
        return content

    grid.nodes[101].change = changed("query.hello", garble)
    result = served(grid, data, e, tmp_path / "run")
    assert result.state.refused == {"label message: malformed": 1}


def test_a_client_names_no_labels_but_the_rosters(tmp_path: Path) -> None:
    from toys import tagged

    data = tagged()
    rows = data.train.rows_of(torch.arange(data.train.clients))["classes"]
    lines = [f"[clients.{c}]\nclasses = {rows[c].tolist()}" for c in range(data.train.clients)]
    lines[1] = "[clients.1]\nclasses = []"
    (tmp_path / "roster.toml").write_text("\n".join(lines))
    chosen = {**QUICK, "deploy": {**QUICK["deploy"], "roster": str(tmp_path / "roster.toml")}}
    e = Experiment.of(
        {**chosen, "rounds": 1, "model": {"hidden": [8], "dim": 5}, "method": {"name": "fedalc"}}
    )
    served(deployed(data, e, tmp_path / "project", 3), data, e, tmp_path / "run")
    refused = [(r["client"], r["round"], r["reason"]) for r in refusals(tmp_path / "run")]
    assert refused[0] == (1, 0, "rows not allowed")  # its digests; then its request
    assert {client for client, _, _ in refused} == {1}


# What crosses the network


@given(
    st.lists(
        hnp.arrays(
            st.sampled_from([np.float32, np.int64, np.uint8]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
        )
        | st.binary(max_size=5).map(lambda text: np.array([text] * len(text), "V8")),
        max_size=4,
    )
)
def test_arrays_come_back_bit_for_bit_and_in_their_order(arrays: list[np.ndarray]) -> None:
    named = {f"x{9 - i}": array for i, array in enumerate(arrays)}
    content = RecordDict({"a": messages.packed(named)})
    found = messages.arrays_in(content, "a")
    assert list(found) == list(named)
    for name, array in named.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


@given(st.binary(max_size=64), st.sampled_from([b"", b"\x02\0\0\0\0\0\0\0{}"]))
def test_whatever_bytes_come_they_are_read_or_refused(data: bytes, head: bytes) -> None:
    content = RecordDict({"updates": raw(head + data)})
    with contextlib.suppress(Malformed):
        assert messages.updates_in(content) == {}


NAMES = st.sampled_from(
    "clients numbers sizes offsets.classes rows.classes ids.classes values.classes 1/about 1/loss "
    f"1/ids.classes 1/values.classes ²/about {'9' * 5000}/about x".split()
)


@given(
    st.dictionaries(
        NAMES,
        hnp.arrays(
            st.sampled_from([np.float32, np.int64, np.uint8, np.bool_, np.float64]),
            hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4),
        ),
        max_size=5,
    )
)
def test_whatever_arrays_come_they_are_read_or_refused(arrays: dict[str, np.ndarray]) -> None:
    kinds = ("requests", "updates", "setup", "rows")
    content = RecordDict({name: messages.packed(arrays) for name in kinds})
    nobodys = any(not name.startswith("1/") for name in arrays)
    for read in (messages.updates_in, messages.setup_in):
        if nobodys:
            with pytest.raises(Malformed):
                read(content)
        else:
            assert read(content).keys() <= {1}
    with contextlib.suppress(Malformed):
        for request in messages.requests_in(content).values():
            assert all(rows.dtype == torch.int64 and rows.dim() == 1 for rows in request.values())
    with contextlib.suppress(Malformed):
        assert messages.rows_in(content, "rows").keys() <= {"classes"}
    if not nobodys:
        with contextlib.suppress(Malformed):
            update = messages.update_of(messages.updates_in(content).get(1, {}))
            assert isinstance(update.loss, float)
            assert isinstance(update.examples, int)


@pytest.mark.parametrize(
    "arrays",
    [
        {"clients": torch.tensor([1, 2]), "offsets.classes": torch.tensor([0, 1]), "rows.classes": torch.tensor([4])},
        {"clients": torch.tensor([1]), "offsets.classes": torch.tensor([0, 5]), "rows.classes": torch.tensor([4])},
        {"clients": torch.tensor([1, 2]), "offsets.classes": torch.tensor([0, 2, 1]), "rows.classes": torch.tensor([4])},
        {"clients": torch.tensor([1.0])},
        {"offsets.classes": torch.tensor([0])},
        {"clients": torch.tensor([1]), "offsets.classes": torch.tensor([0, 0])},
        {"clients": torch.tensor([1]), "rows.classes": torch.tensor([4])},
        {"clients": torch.tensor([1]), "junk": torch.tensor([4])},
    ],
    ids=["too few offsets", "beyond the end", "backwards", "no whole numbers", "no clients", "no rows",
         "no offsets", "an unknown array"],
)  # fmt: skip
def test_requests_that_do_not_fit_together_are_malformed(arrays: dict[str, torch.Tensor]) -> None:
    with pytest.raises(Malformed):
        messages.requests_in(RecordDict({"requests": messages.packed(arrays)}))


def test_two_arrays_of_one_name_are_malformed() -> None:
    data = save({"0 1/loss": np.zeros(1), "1 1/loss": np.ones(1)})
    with pytest.raises(Malformed, match="two arrays of one name"):
        messages.updates_in(RecordDict({"updates": raw(data)}))


def test_the_server_is_given_no_example() -> None:
    held = form_of(several_classes())
    assert (held.train.clients, held.train.examples) == (0, 0)
    assert all(column.nbytes == 0 for column in held.train.columns.values())
