"""Nodes that claim, invent and flood: no client counts for more than its share, no reply costs much."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict

import spreadout as so
from deployment import TOY
from memory_grid import MemoryGrid, deployed, served
from spreadout.config.experiment import Experiment
from spreadout.core.ragged import Ragged
from spreadout.core.rows import sub_model
from spreadout.core.state import ServerState
from spreadout.flower import bounds, messages
from spreadout.flower.messages import HELLO, TRAIN, Malformed
from spreadout.flower.refusals import NAMED, Refusals
from spreadout.runs.build import build_federation
from spreadout.runs.observer import Observer
from spreadout.runs.result import Result
from spreadout.runtime.sequential import train_client
from toys import several_classes

MANY = 2**31 - 1
FEDAVG = ["method.name=fedavg", "method.scale=5"]


def experiment(*overrides: str) -> Experiment:
    wary = {name: value for name, value in TOY.items() if name != "server"}
    settings = {**wary, "deploy": {"timeout": 0.2, "wait": 1}}
    return Experiment.of(settings, overrides=["rounds=1", *FEDAVG, *overrides])


def three_nodes(tmp_path: Path, e: Experiment) -> MemoryGrid:
    return deployed(several_classes(), e, tmp_path / "project", 3)


def run(tmp_path: Path, e: Experiment, grid: MemoryGrid, **more: Any) -> Result:
    return served(grid, several_classes(), e, tmp_path / "run", **more)


def refusals(tmp_path: Path) -> list[dict[str, Any]]:
    lines = (tmp_path / "run" / "refusals.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def answering(**changes: Callable[[RecordDict], None]) -> Callable[..., Iterable[Message]]:
    """A node that changes its reply to a hello, or to a model, before it is sent."""

    def answer(question: Message, reply: Message) -> Iterable[Message]:
        kind = {HELLO: "hello", TRAIN: "train"}.get(question.metadata.message_type, "")
        if kind in changes:
            content = RecordDict(dict(reply.content.items()))
            changes[kind](content)
            return [Message(content, reply_to=question)]
        return [reply]

    return answer


class Warnings(Observer):
    def __init__(self) -> None:
        self.said: list[str] = []

    def warned(self, text: str) -> None:
        self.said.append(text)


# Claims


def claim_many_clients_examples(content: RecordDict) -> None:
    told = messages.tensors_in(content, "clients")
    every = torch.full_like(told["sizes"], 2**62)
    content["clients"] = messages.packed({"numbers": told["numbers"], "sizes": every})


def claim_in_updates(content: RecordDict) -> None:
    arrays = messages.tensors_in(content, "updates")
    for name, value in arrays.items():
        if name.endswith("/about"):
            value[2] = MANY
    content["updates"] = messages.packed(arrays)


def test_a_deployment_limits_updates_and_claims_unless_it_is_told_not_to(tmp_path: Path) -> None:
    e = experiment("rounds=3")
    guarded = run(tmp_path, e, three_nodes(tmp_path, e))
    assert guarded.summary["robust"]["name"] == "norm_clipping"
    said = experiment("rounds=3", "server.robust=norm_clipping", f"server.claim_quantile={2 / 3}")
    simulated = so.run(said, data=several_classes(), device="cpu").state
    torch.testing.assert_close(guarded.state.dense, simulated.dense, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(guarded.state.tables, simulated.tables, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(guarded.state.robust, simulated.robust, rtol=1e-4, atol=2e-6)
    plain = experiment("rounds=3", "server.robust=mean", "server.claim_quantile=1")
    over_grid = served(
        three_nodes(tmp_path / "plain", plain), several_classes(), plain, tmp_path / "plain" / "run"
    )
    assert over_grid.summary["robust"] is None
    averaged = so.run(plain, data=several_classes(), device="cpu").state
    torch.testing.assert_close(over_grid.state.dense, averaged.dense, rtol=1e-4, atol=2e-6)


def test_a_control_that_no_rule_guards_is_said(tmp_path: Path) -> None:
    e, heard = experiment("clients.drift=scaffold", "server.claim_quantile=1"), Warnings()
    result = run(tmp_path, e, three_nodes(tmp_path, e), observer=heard)
    assert result.summary["robust"] is None
    assert heard.said == [
        "clients.drift = 'scaffold': its control takes what clients send; no update is limited"
    ]


@pytest.mark.parametrize("rule", ["norm_clipping", "median", "geometric_median"])
def test_a_node_that_sends_huge_updates_moves_the_model_little(rule: str, tmp_path: Path) -> None:
    def huge(content: RecordDict) -> None:
        arrays = messages.tensors_in(content, "updates")
        for name, value in arrays.items():
            if "/dense." in name:
                value.fill_(-1e6)
        content["updates"] = messages.packed(arrays)

    def trained(where: str, hostile: bool, **settings: Any) -> dict[str, torch.Tensor]:
        e = experiment(f"server.robust={settings.get('rule', 'mean')}")
        grid = three_nodes(tmp_path / where, e)
        if hostile:
            grid.nodes[101].change = answering(train=huge)
        return served(grid, several_classes(), e, tmp_path / where / "run").state.dense

    def apart(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
        return max(float((a[name] - b[name]).norm()) for name in a)

    honest = trained("honest", False)
    assert apart(trained("mean", True), honest) > 1e4
    assert apart(trained(rule, True, rule=rule), honest) < 3.0  # a third of the clients are hostile


def mean_of_updates(e: Experiment, weights: list[int]) -> dict[str, torch.Tensor]:
    """The dense part after one round, each client's update made alone and averaged by hand."""
    data = several_classes()
    f = build_federation(e, data, torch.device("cpu"))
    state = ServerState(0, *f.model.initial(f.seed, f.device))
    rows = {"classes": torch.arange(8)}
    sent = sub_model(0, state.dense, state.tables, rows)
    updates = []
    for client in range(6):
        alone = build_federation(
            e, so.Splits("one", data.train.part(torch.tensor([client])), data.test), f.device
        )
        updates.append(train_client(alone, sent, {})[0])
    share = np.array(weights) / sum(weights)
    return {
        name: value
        + sum(float(s) * update.dense[name] for s, update in zip(share, updates, strict=True))
        for name, value in state.dense.items()
    }


def test_a_claim_counts_for_no_more_than_most_clients_claim(tmp_path: Path) -> None:
    """Sizes are 7, 4, 12, 5, 6, 3; those of clients 1 and 4 claim 2³¹ − 1 each."""
    e, heard = experiment("server.robust=mean"), Warnings()
    grid = three_nodes(tmp_path, e)
    grid.nodes[101].change = answering(hello=claim_many_clients_examples, train=claim_in_updates)
    result = run(tmp_path, e, grid, observer=heard)
    assert result.state.refused == {}
    by_hand = mean_of_updates(e, [7, 12, 12, 5, 12, 3])
    torch.testing.assert_close(result.state.dense, by_hand, rtol=1e-4, atol=2e-6)
    bite = "2 of 6 clients claim more than 12 examples (the most: 2,147,483,647) and count for 12"
    assert [text for text in heard.said if text.startswith(bite)] == heard.said != []


def test_where_clients_weigh_alike_nothing_is_said_of_claims(tmp_path: Path) -> None:
    e, heard = experiment("method.weighting=uniform", "method.merge=mean"), Warnings()
    run(tmp_path, e, three_nodes(tmp_path, e), observer=heard)
    assert heard.said == []


def test_a_claim_does_not_get_a_client_chosen_more_often(tmp_path: Path) -> None:
    e = experiment("clients.selection=weighted", "clients.per_round=1", "rounds=12")
    grid = three_nodes(tmp_path, e)
    grid.nodes[101].change = answering(hello=claim_many_clients_examples)
    run(tmp_path, e, grid)
    heard = [message for node in grid.nodes.values() for message in node.heard]
    tasks = [messages.numbers_in(m.content, "task") for m in heard if m.metadata.message_type == TRAIN]
    chosen = [client for task in tasks for client in task["clients"]]
    assert len(chosen) == 12
    assert {0, 2} & set(chosen)  # by what they claim, 1 and 4 would be all there is


@pytest.mark.parametrize(
    ("executor", "merge", "steps"),
    [
        ("simulator", "weighted-mean", 1),
        ("simulator", "sum", 3),
        ("sequential", "weighted-mean", 3),
        ("sequential", "mean", 1),
    ],
)
def test_a_cap_in_a_simulation_is_the_cap_of_a_deployment(
    executor: str, merge: str, steps: int, tmp_path: Path
) -> None:
    e = experiment(
        f"run.executor={executor}", f"method.merge={merge}", f"clients.local_steps={steps}",
        "server.claim_quantile=0.5", "rounds=2", "server.robust=mean",
    )  # fmt: skip
    deployed_model = run(tmp_path, e, three_nodes(tmp_path, e)).state
    simulated = so.run(e, data=several_classes(), device="cpu").state
    torch.testing.assert_close(deployed_model.dense, simulated.dense, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(deployed_model.tables, simulated.tables, rtol=1e-4, atol=2e-6)
    plain = so.run(e.model_copy(update={"server": type(e.server)()}), data=several_classes()).state
    moved = max(float((simulated.dense[n] - plain.dense[n]).abs().max()) for n in plain.dense)
    assert moved > 1e-4  # the cap does bite


# Client numbers


def named(extra: torch.Tensor) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        told = messages.tensors_in(content, "clients")
        sizes = torch.cat([told["sizes"], torch.full((len(extra),), 2**62)])
        content["clients"] = messages.packed(
            {"numbers": torch.cat([told["numbers"], extra]), "sizes": sizes}
        )

    return change


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (torch.arange(1000, 21_000), "too many clients"),
        (torch.tensor([-1]), "malformed"),
        (torch.tensor([2**62]), "malformed"),
        (torch.tensor([-(2**63)]), "malformed"),
        (torch.tensor([1]), "malformed"),  # once more
    ],
    ids=["20,000 invented", "negative", "nobody can name it", "the least number", "named twice"],
)
def test_a_node_registers_no_invented_numbers(extra: torch.Tensor, reason: str, tmp_path: Path) -> None:
    e = experiment()
    grid = three_nodes(tmp_path, e)
    grid.nodes[101].change = answering(hello=named(extra))
    result = run(tmp_path, e, grid)
    assert result.summary["clients"] == 4  # those of the other two nodes
    told = {(r["client"], r["node"], r["reason"]) for r in refusals(tmp_path)}
    assert told == {(-1, 101, reason)}
    assert len(refusals(tmp_path)) <= 2  # it is asked again in the first round


def test_the_limit_of_clients_a_node_is_said_with_its_key(tmp_path: Path) -> None:
    e = experiment("deploy.max_clients=1", "deploy.wait=0.1")
    with pytest.raises(so.UserError, match=r"it names 2 clients; deploy.max_clients = 1 a node"):
        run(tmp_path, e, three_nodes(tmp_path, e))


def test_claims_of_anothers_clients_are_counted_and_not_each_written(tmp_path: Path) -> None:
    roster = tmp_path / "roster.toml"
    roster.write_text("".join(f"[clients.{c}]\n" for c in range(6)))
    e = experiment(f"deploy.roster={roster}")
    grid = three_nodes(tmp_path, e)
    grid.nodes[101].change = answering(hello=named(torch.arange(100, 900)))
    result = run(tmp_path, e, grid)
    assert result.summary["clients"] == 6
    lines = refusals(tmp_path)
    assert len(lines) == NAMED + 1
    assert sum(r.get("count", 1) for r in lines) == 800
    assert {r["reason"] for r in lines} == {"another node's client"}


# Replies


def flooded(count: int) -> Callable[[RecordDict], None]:
    """Updates of clients that do not exist, beside those that were asked for."""

    def change(content: RecordDict) -> None:
        arrays = messages.tensors_in(content, "updates")
        extra = {f"{100_000 + i}/x": torch.zeros(0) for i in range(count)}
        content["updates"] = messages.packed({**arrays, **extra})

    return change


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every opening of the file of refusals to write to it."""
    real, found = os.open, []

    def counting(path: Any, flags: int, *args: Any, **more: Any) -> int:
        if str(path).endswith("refusals.jsonl") and flags & os.O_APPEND:
            found.append(str(path))
        return real(path, flags, *args, **more)

    monkeypatch.setattr(os, "open", counting)
    return found


def test_a_flood_of_updates_is_not_read(opened: list[str], tmp_path: Path) -> None:
    e = experiment("rounds=2")
    grid = three_nodes(tmp_path, e)
    grid.nodes[101].change = answering(train=flooded(20_000))  # 1.4 MB
    result = run(tmp_path, e, grid)
    assert len(opened) == 2  # once a round
    assert result.state.refused == {"answer longer than asked for": 2 * 2}
    assert {r["client"] for r in refusals(tmp_path)} == {1, 4}
    assert result.state.traffic.participations == 2 * 6  # the other nodes' rounds go on


def test_what_nobody_asked_for_is_counted_in_one_write(opened: list[str], tmp_path: Path) -> None:
    e = experiment()
    grid = three_nodes(tmp_path, e)
    grid.nodes[101].change = answering(train=flooded(25))  # short enough to be read
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"update of a client that was not asked": 25}
    lines = refusals(tmp_path)
    assert [r["client"] for r in lines] == [*range(100_000, 100_000 + NAMED), -1]
    assert lines[-1]["count"] == 25 - NAMED
    assert len(opened) == 1


def test_many_refusals_are_one_write() -> None:
    written: list[int] = []
    noted = Refusals(lambda records: written.append(len(records)) is None)
    assert noted.add_unasked(3, range(50_000), 7, "flood") == 50_000
    noted.add(3, 5, 7, "no update")
    assert written == []
    noted.flush()
    noted.flush()
    assert written == [NAMED + 2]


def test_refusals_wait_until_they_can_be_written() -> None:
    written: list[dict[str, Any]] = []
    ready = False

    def write(records: Any) -> bool:
        written.extend(records if ready else [])
        return ready

    noted = Refusals(write)
    noted.add(0, 1, 101, "malformed")
    noted.flush()
    ready = True
    noted.flush()
    assert written == [{"round": 0, "client": 1, "node": 101, "reason": "malformed"}]


def with_junk(record: str) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content[record] = messages.packed({"junk": torch.zeros(300_000)})

    return change


def test_a_reply_is_no_longer_than_what_was_asked_for(tmp_path: Path) -> None:
    e = experiment("deploy.max_hello_mb=0.1")
    grid = three_nodes(tmp_path, e)
    grid.nodes[100].change = answering(train=with_junk("anything"))
    grid.nodes[101].change = answering(hello=with_junk("setup"))
    result = run(tmp_path, e, grid)
    assert result.summary["clients"] == 4  # 101 is never met
    assert result.state.refused == {"answer longer than asked for": 2}
    assert {(r["node"], r["client"]) for r in refusals(tmp_path)} == {(101, -1), (100, 0), (100, 3)}


def test_the_length_of_a_reply_is_that_of_all_it_holds() -> None:
    content = RecordDict({"about": ConfigRecord({"text": "x" * 500})})
    content["more"] = messages.packed({"a": torch.zeros(1000)})
    assert 4500 < bounds.length(content) < 5000


def test_wrong_numbers_are_named() -> None:
    with pytest.raises(Malformed, match="-5 is no client's number"):
        messages.refuse_wrong_numbers(torch.tensor([3, -5]))
    messages.refuse_wrong_numbers(torch.tensor([3, 10**18 - 1]))
    messages.refuse_wrong_numbers(torch.tensor([], dtype=torch.int64))


def test_names_of_arrays_count_as_bytes() -> None:
    content = RecordDict({"x": messages.packed({"n" * 5000: torch.zeros(1)})})
    assert bounds.length(content) > 5000


def test_a_request_that_is_no_list_of_rows_is_not_logged(tmp_path: Path) -> None:
    experiment = Experiment.of(
        TOY, overrides=["method.name=fedss", "method.negatives=2", "run.log_requests=true"]
    )
    grid = deployed(several_classes(), experiment, tmp_path / "project", 2)

    def forged(question: Message, reply: Message) -> list[Message]:
        asked = messages.requests_in(reply.content)
        if asked:
            junk = Ragged.from_lists([[2**62] * 50 for _ in asked])
            reply.content["requests"] = messages.put_requests(list(asked), {"classes": junk})
        return [reply]

    grid.nodes[101].change = forged
    served(grid, several_classes(), experiment, tmp_path / "run")
    assert "4611686018427387904" not in (tmp_path / "run" / "requests.jsonl").read_text()
