"""Secure aggregation over Flower messages: the server gets sums, and whoever asks for more nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict

import spreadout as so
from deployment import TOY
from memory_grid import MemoryGrid, Node, deployed, served
from spreadout.config.experiment import Experiment
from spreadout.config.sound import settled
from spreadout.core.errors import UserError
from spreadout.data.splits import Splits
from spreadout.flower import keys, messages, secure_messages
from spreadout.flower.access import fingerprint_of
from spreadout.flower.agreed import config_digest
from spreadout.flower.messages import CONFIRM, KEYS, REVEAL, SHARES, TRAIN
from spreadout.flower.questions import sub_model_in
from spreadout.flower.secure_grid import NOT_UNMASKED, TOO_FEW
from spreadout.flower.secure_node import SecureNode
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.ledger import Budget, NodeLedger, Refusal, Release
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.privacy.secure_party import Party
from spreadout.runs.result import Result
from toys import several_classes

QUICK = {**TOY, "deploy": {"timeout": 0.2, "wait": 1}, "eval": {"every": 1, "metrics": ["P@1"]}}
NODES = 4
LAST = (CONFIRM, REVEAL)  # after the numbers have come


def experiment(*overrides: str) -> Experiment:
    secure = ['privacy.model="distributed"', "privacy.clip=0.5", "privacy.noise=0", "method.prior=0"]
    return Experiment.of(QUICK, overrides=["method.name=fedaws", "rounds=2", *secure, *overrides])


def secure_nodes(
    folder: Path, e: Experiment, nodes: int = NODES, data: Splits | None = None
) -> MemoryGrid:
    """Nodes that know each other's keys, as their operators have exchanged them."""
    grid = deployed(data or several_classes(), e, folder / "project", nodes)
    peers = folder / "peers"
    peers.mkdir(exist_ok=True)
    for node in grid.nodes.values():
        own = folder / f"node{node.number}"
        if not own.exists():
            keys.make_node_key(own)
            keys.make_secret(folder / f"secret{node.number}")
            (peers / f"{own.name}.pub").write_bytes(keys.public_path(own).read_bytes())
        node.config |= {
            "node-key": str(own),
            "peers": str(peers),
            "ledger": str(folder / f"ledger{node.number}"),
        }
        if e.privacy is not None and e.privacy.noise:
            secret = {"secret-file": str(folder / f"secret{node.number}")}
            node.config |= {**secret, "epsilon": 1000.0}
        node.restart()
    return grid


def run(
    folder: Path, e: Experiment, grid: MemoryGrid, name: str = "run", data: Splits | None = None
) -> Result:
    return served(grid, data or several_classes(), e, folder / name)


def leaves_before(node: Node, kind: str, round: int = 0) -> None:
    """A node that is gone when it is asked for a step of a round."""

    def change(question: Message, reply: Message) -> list[Message]:
        asked = messages.numbers_in(question.content, "task").get("round")
        if question.metadata.message_type == kind and asked == round:
            node.alive = False
            return []
        return [reply]

    node.change = change


def asked(node: Node, kind: str, content: RecordDict) -> str:
    """What a node says to a message of a server that wants more; empty if it answers."""
    reply = node.app(Message(content, node.number, kind), node.context).content
    return str(messages.numbers_in(reply, "problem").get("reason", ""))


def heard(node: Node, kind: str, round: int = 0) -> RecordDict:
    """What a node was asked in a round."""
    return next(
        m.content
        for m in node.heard
        if m.metadata.message_type == kind
        and messages.numbers_in(m.content, "task").get("round") == round
    )


def assert_near(one: Result, other: Result) -> None:
    """The same, but for values cut to the grid's units."""
    torch.testing.assert_close(one.state.dense, other.state.dense, atol=3e-4, rtol=0)
    torch.testing.assert_close(one.state.tables, other.state.tables, atol=3e-4, rtol=0)


METHODS: dict[str, list[str]] = {
    "fedaws": [],
    "fedss": ["method.name=fedss", "method.negatives=2"],
    "fedmlh": ["method.name=fedmlh", "method.hash_tables=2", "method.buckets=3"],
    "all rows": ["method.name=fedavg"],
}


@pytest.mark.parametrize("name", METHODS)
def test_the_model_is_the_one_of_updates_that_are_seen(name: str, tmp_path: Path) -> None:
    """Own rows, sampled rows padded to what the round requests, buckets without rows, all rows."""
    e = experiment(*METHODS[name])
    result = run(tmp_path, e, secure_nodes(tmp_path, e))
    assert result.state.refused == {}
    assert_near(result, so.run(e, data=several_classes(), device="cpu"))


@pytest.mark.parametrize("step", [KEYS, SHARES, TRAIN, CONFIRM, REVEAL])
def test_a_node_that_leaves_in_the_middle_of_a_round_is_taken_out(step: str, tmp_path: Path) -> None:
    """One of four: the sum is that of the others, or with what it sent before it left."""
    e = experiment()
    grid = secure_nodes(tmp_path, e)
    leaves_before(grid.nodes[103], step)
    result = run(tmp_path, e, grid)
    plain = Experiment.of({**e.model_dump(exclude={"privacy"}), "privacy": {"clip": 0.5, "noise": 0}})
    seen = deployed(several_classes(), plain, tmp_path / "plain", NODES)
    leaves_before(seen.nodes[103], TRAIN, 1 if step in LAST else 0)
    assert_near(result, run(tmp_path, plain, seen, "seen"))
    assert sum(result.state.refused.values()) == (1 if step in LAST else 2)


@pytest.mark.parametrize("step", [SHARES, TRAIN, CONFIRM, REVEAL])
def test_below_the_threshold_a_round_changes_nothing(step: str, tmp_path: Path) -> None:
    e = experiment("rounds=1")
    grid = secure_nodes(tmp_path, e)
    for number in (102, 103):
        leaves_before(grid.nodes[number], step)
    result = run(tmp_path, e, grid)
    assert sum(result.state.refused.values()) == several_classes().train.clients
    assert set(result.state.refused) & {TOO_FEW, NOT_UNMASKED}
    before = so.run(experiment("rounds=1", "clients.lr=1e-30"), data=several_classes(), device="cpu")
    torch.testing.assert_close(result.state.dense, before.state.dense, atol=1e-7, rtol=0)


def test_the_server_is_sent_no_single_update(tmp_path: Path) -> None:
    e = experiment("rounds=1")
    grid, replies = secure_nodes(tmp_path, e), []
    for node in grid.nodes.values():

        def change(question: Message, reply: Message) -> list[Message]:
            if question.metadata.message_type == TRAIN:
                replies.append(reply)
            return [reply]

        node.change = change
    run(tmp_path, e, grid)
    assert len(replies) == NODES
    for reply in replies:
        assert set(reply.content) <= {"masked", "requests"}
        numbers = messages.arrays_in(reply.content, "masked")["numbers"]
        # An update of half a clip is at most 2^16 units: masked, hardly a number is that small.
        assert (np.abs(numbers.view(np.int32).astype(np.int64)) < 2**16).mean() < 0.1


def test_no_step_is_answered_twice_whatever_was_kept_or_forgotten(tmp_path: Path) -> None:
    """Another list of who is there would give the other share of the same node: the classic attack."""
    e = experiment("rounds=1")
    grid = secure_nodes(tmp_path, e)
    node, kept = grid.nodes[100], {}

    def change(question: Message, reply: Message) -> list[Message]:
        state = node.context.state.get("secure sum")
        kept[question.metadata.message_type] = state  # as the node's memory is after each step
        return [reply]

    node.change = change
    run(tmp_path, e, grid)
    other = RecordDict(dict(heard(node, REVEAL)))
    leaves_out(other, fingerprint_of(tmp_path / "node100.pub"))
    for again in (heard(node, REVEAL), other):
        assert "revealed already" in asked(node, REVEAL, again)
        assert "revealed already" in asked(node, CONFIRM, again)
    # Two processes of one node at once, or one that was set back: its memory says that nothing was sent.
    for step, before in ((SHARES, KEYS), (TRAIN, SHARES), (CONFIRM, TRAIN), (REVEAL, CONFIRM)):
        node.context.state["secure sum"] = kept[before]
        question = other if step == CONFIRM else heard(node, step)
        assert "it has answered for" in asked(node, step, question)
    assert asked(node, KEYS, heard(node, KEYS)) == ""  # new keys are no secret of the old round
    assert "no keys" in asked(node, REVEAL, RecordDict({**other, "task": _round(other, 7)}))


def leaves_out(content: RecordDict, own: str) -> None:
    """Let a list of who is in the sum lack one node that is not this one."""
    names = secure_messages.names_in(content, "there")
    without = min(name for name in names if name != own)
    fewer = (name for name in names if name != without)
    content["there"] = secure_messages.put_bytes(dict.fromkeys(fewer, b""))


@pytest.mark.parametrize("told_otherwise", [[100], [100, 101]])
def test_a_server_that_tells_nodes_different_lists_gets_nothing_for_it(
    told_otherwise: list[int], tmp_path: Path
) -> None:
    """One of four told another list gives no share; two of four, and nobody gives any."""
    e = experiment("rounds=1")
    grid, reasons = secure_nodes(tmp_path, e), []
    for number in grid.nodes:
        own = fingerprint_of(tmp_path / f"node{number}.pub")
        lies = (lambda content, own=own: leaves_out(content, own)) if number in told_otherwise else None
        reasons.append(answering_changed(grid.nodes[number], lies or (lambda content: None), CONFIRM))
    result = run(tmp_path, e, grid)
    if len(told_otherwise) == 1:
        assert "another list of nodes than this node has signed" in reasons[0][0]
        assert result.state.refused == {}  # three have signed the same list: their sum is exact
        assert reasons[1:] == [[], [], []]
    else:
        assert all("another list of nodes" in why[0] for why in reasons[:2])
        assert all("that 2 nodes have signed: it takes 3" in why[0] for why in reasons[2:])
        assert set(result.state.refused) == {NOT_UNMASKED}


def _round(content: RecordDict, round: int) -> ConfigRecord:
    return ConfigRecord({**messages.numbers_in(content, "task"), "round": round})


def test_a_sum_over_rows_that_leaves_out_a_clients_own_is_refused(tmp_path: Path) -> None:
    """Which rows are missing would tell whose they are."""
    e = experiment("rounds=1")
    grid = secure_nodes(tmp_path, e)
    node, reasons = grid.nodes[100], []
    honest = node.answers

    def answers(question: Message) -> object:
        if question.metadata.message_type == TRAIN:
            none = {"classes": torch.empty(0, dtype=torch.int64)}
            question.content["sum"] = secure_messages.put_public_rows(none)
        found = list(honest(question))
        reasons.extend(messages.numbers_in(reply.content, "problem").get("reason") for reply in found)
        return found

    node.answers = answers  # type: ignore[method-assign]
    result = run(tmp_path, e, grid)
    assert any("not in the sum's public set" in str(reason) for reason in reasons)
    assert result.state.refused == {"node failed": 2}


@pytest.mark.parametrize("part", ["dense", "rows"])
def test_nodes_that_were_sent_other_models_sum_nothing(part: str, tmp_path: Path) -> None:
    """A model from which all but one learn nothing would make the sum that one's (Pasquini 2022)."""
    e = experiment("rounds=1", *METHODS["all rows"])
    grid = secure_nodes(tmp_path, e)
    node = grid.nodes[100]
    honest = node.answers

    def answers(question: Message) -> object:
        if question.metadata.message_type == TRAIN:
            sent = messages.tensors_in(question.content, part)
            zeros = {name: v * 0 if v.is_floating_point() else v for name, v in sent.items()}
            question.content[part] = messages.packed(zeros)
        return honest(question)

    node.answers = answers  # type: ignore[method-assign]
    result = run(tmp_path, e, grid)
    moved = result.state.dense["1.bias"].abs().max()
    assert float(moved) > 100  # masks that do not cancel: random numbers, and nobody's update


def answering_changed(node: Node, change: Callable[[RecordDict], None], step: str = TRAIN) -> list[str]:
    """Let a server ask a node for its numbers otherwise than it should; why the node refuses."""
    honest, reasons = node.answers, []

    def answers(question: Message) -> list[Message]:
        if question.metadata.message_type == step:
            change(question.content)
        found = list(honest(question))
        reasons.extend(
            str(messages.numbers_in(reply.content, "problem").get("reason"))
            for reply in found
            if "problem" in reply.content
        )
        return found

    node.answers = answers  # type: ignore[method-assign, assignment]
    return reasons


def asks_only(content: RecordDict, clients: list[int]) -> None:
    task = messages.numbers_in(content, "task")
    content["task"] = ConfigRecord({**task, "clients": clients})


def test_nodes_that_would_train_nobody_leave_no_one_alone_in_a_sum(tmp_path: Path) -> None:
    """A server that asks one node for a client and the others for none would unmask that client."""
    e = experiment("rounds=1", *METHODS["all rows"])
    grid = secure_nodes(tmp_path, e)
    reasons = {
        number: answering_changed(grid.nodes[number], lambda content: asks_only(content, []))
        for number in (101, 102, 103)
    }
    result = run(tmp_path, e, grid)
    assert all("none of this node's clients is trained" in why[0] for why in reasons.values())
    assert TOO_FEW in result.state.refused
    for number in reasons:  # and they help nobody to unmask what the one has sent
        there = secure_messages.names_in(heard(grid.nodes[number], SHARES), "keys")
        task = messages.numbers_in(heard(grid.nodes[number], KEYS), "task")
        question = RecordDict(
            {
                "task": ConfigRecord(task),
                "there": secure_messages.put_bytes(dict.fromkeys(there, b"")),
            }
        )
        assert "no numbers of this round were sent" in asked(grid.nodes[number], CONFIRM, question)


def test_a_node_whose_clients_have_nothing_to_add_sends_no_numbers(tmp_path: Path) -> None:
    e = experiment("rounds=1")
    grid = secure_nodes(tmp_path, e)
    run(tmp_path, e, grid)
    node = SecureNode(
        GaussianMechanism(model="distributed", clip=1, noise=0),
        grid.nodes[100].config,
        RecordDict(),
        NodeLedger(tmp_path / "ledger100", Budget()),
    )
    f = so.run(e, data=several_classes(), device="cpu").federation
    content = heard(grid.nodes[100], TRAIN)
    party = Party("a", b"", b"", b"", threshold=2, others={"b": (b"", b""), "c": (b"", b"")})
    with pytest.raises(Refusal, match="none of this node's clients is trained"):
        node.masked(f, party, content, sub_model_in(content, 0, f.model), [])


def test_nodes_of_which_one_is_asked_for_fewer_clients_sum_nothing(tmp_path: Path) -> None:
    """The list of all clients is part of the masks, and a node looks for its own in it."""
    e = experiment("rounds=1", *METHODS["all rows"])
    grid = secure_nodes(tmp_path, e)
    reasons = answering_changed(grid.nodes[100], lambda content: asks_only(content, [0]))

    def one_less(content: RecordDict) -> None:
        asks_only(content, [1])
        content["members"] = secure_messages.put_members([0, 1, 2, 3, 4])

    answering_changed(grid.nodes[101], one_less)
    result = run(tmp_path, e, grid)
    assert "has others of this node than are asked" in reasons[0]
    assert float(result.state.dense["1.bias"].abs().max()) > 100  # masks that do not cancel


def test_a_node_adds_all_clients_that_the_list_names_or_none(tmp_path: Path) -> None:
    """One whose client had spent its budget added the other alone, and nobody else knew."""
    e = experiment("rounds=1", "privacy.noise=5.0")
    grid = secure_nodes(tmp_path, e)
    node = grid.nodes[100]
    ledger = NodeLedger(tmp_path / "ledger100", Budget())
    ledger.spend(Release("earlier", 0, 0.003), [0])  # all of client 0's budget, none of client 4's
    reasons = answering_changed(node, lambda content: None)
    result = run(tmp_path, e, grid)
    assert ["client 0 is on its list" in reason for reason in reasons] == [True]
    assert result.state.refused == {"node failed": 2}
    assert 4 not in ledger.accounts()  # it paid nothing for a round that it is not in


def test_keys_asked_for_again_lead_nowhere_with_what_was_sent_for_the_old_ones(tmp_path: Path) -> None:
    """Step 1 is answered every time, with other keys; the steps that use the old ones are not."""
    e = experiment("rounds=1")
    grid = secure_nodes(tmp_path, e)
    node, reasons, found = grid.nodes[100], [], []

    def change(question: Message, reply: Message) -> list[Message]:
        kind = question.metadata.message_type
        if kind == KEYS:
            found.append(secure_messages.keys_in(reply.content))
        if kind == SHARES:  # between steps 2 and 3
            keys_again = RecordDict({"task": question.content["task"]})
            again = node.app(Message(keys_again, 100, KEYS), node.context).content
            found.append(secure_messages.keys_in(again))
            reasons.append(asked(node, SHARES, question.content))
            ((name, other),) = found[1].items()
            everyone = secure_messages.keys_in(question.content) | {name: other}
            lists = {**question.content, "keys": secure_messages.put_keys(everyone)}
            reasons.append(asked(node, SHARES, RecordDict(lists)))
        if kind == TRAIN:
            reasons.append(str(messages.numbers_in(reply.content, "problem").get("reason")))
        return [reply]

    node.change = change
    result = run(tmp_path, e, grid)
    assert found[0] != found[1]
    assert len(reasons) == 3
    assert "it has answered for shares already" in reasons[1]  # of the new keys
    assert all("None" not in reason and reason for reason in reasons)
    assert result.state.refused == {"node failed": 2}  # the others sum without it


@pytest.mark.parametrize(
    "other", ["privacy.clip=0.4999", "privacy.threshold=0.7", "clients.lr=0.01", "seed=3"]
)
def test_nodes_of_other_settings_sum_nothing(other: str, tmp_path: Path) -> None:
    """Nodes with less noise, say, would leave the others' too small."""
    e = experiment("rounds=1", *METHODS["all rows"])
    grid = secure_nodes(tmp_path, e)
    elsewhere = deployed(
        several_classes(), experiment("rounds=1", *METHODS["all rows"], other), tmp_path / "other", NODES
    )
    grid.nodes[103].app = elsewhere.nodes[103].app
    result = run(tmp_path, e, grid)
    assert float(result.state.dense["1.bias"].abs().max()) > 100


def test_a_config_read_on_another_machine_is_the_same() -> None:
    e = settled(experiment())
    there = settled(experiment("run.checkpoint_every=1", 'deploy.roster="/elsewhere/roster.csv"'))
    assert config_digest(e) == config_digest(there)
    assert config_digest(e) != config_digest(settled(experiment("privacy.noise=1")))


def test_nodes_that_do_not_know_each_other_sum_nothing(tmp_path: Path) -> None:
    """A server that makes up nodes could sum one real one with its own."""
    e = experiment("rounds=1")
    grid = secure_nodes(tmp_path, e)
    (tmp_path / "peers" / "node103.pub").unlink()
    result = run(tmp_path, e, grid)
    assert sum(result.state.refused.values()) == several_classes().train.clients
    again = asked(grid.nodes[100], SHARES, heard(grid.nodes[100], SHARES))
    assert "are not signed by a node that this one knows" in again


@pytest.mark.parametrize(
    ("missing", "said"),
    [("node-key", "its private key"), ("peers", "public keys"), ("ledger", "has no ledger")],
)
def test_a_node_without_what_a_secure_sum_takes_says_so(missing: str, said: str, tmp_path: Path) -> None:
    e = experiment("rounds=1")
    grid = secure_nodes(tmp_path, e)
    run(tmp_path, e, grid)
    node = grid.nodes[100]
    del node.config[missing]
    node.restart()
    assert said in asked(node, KEYS, heard(node, KEYS))


def test_a_node_of_another_config_takes_no_part_in_secure_sums(tmp_path: Path) -> None:
    e = Experiment.of(QUICK, overrides=["method.name=fedaws", "rounds=1"])
    grid = deployed(several_classes(), e, tmp_path / "project")
    task = ConfigRecord({"run": "x", "round": 0, "clients": []})
    assert "a step of a secure sum" in asked(grid.nodes[100], KEYS, RecordDict({"task": task}))


def test_noise_of_all_nodes_together_is_the_claim_and_budgets_count_it(tmp_path: Path) -> None:
    """Nothing is learned, so what moves is noise: that of a sum, over the clients that are in it."""
    e = experiment("privacy.noise=2", "clients.lr=1e-30", "model.hidden=[40]", "server.lr=1.0")
    grid = secure_nodes(tmp_path, e)
    start = so.run(experiment("clients.lr=1e-30", "model.hidden=[40]"), data=several_classes())
    result = run(tmp_path, e, grid)
    moved = torch.cat(
        [(value - start.state.dense[name]).flatten() for name, value in result.state.dense.items()]
    )
    clients, rounds = several_classes().train.clients, 2
    # The noise of three nodes is enough for the claim, and four have added theirs.
    expected = 2 * 0.5 / clients * (rounds * NODES / 3) ** 0.5
    assert float(moved.std()) == pytest.approx(expected, rel=0.2)
    assert result.summary["privacy"]["epsilon"] == pytest.approx(epsilon_of(2.0, rounds, 1e-6))
    ledger = NodeLedger(tmp_path / "ledger100", Budget())
    assert ledger.accounts()[0].epsilon(1e-6) == pytest.approx(epsilon_of(2.0, rounds, 1e-6))


def test_a_simulation_has_as_much_noise_as_the_nodes_on_every_row_too() -> None:
    """Six clients are six nodes: threshold 5, and any sum has the noise of so many or more."""
    quiet = ["clients.lr=1e-30", "clients.row_lr=1e-30", "model.hidden=[40]", "model.dim=40", "rounds=1"]
    noisy = ["privacy.noise=2", "privacy.clip=0.01", "method.merge=mean", "method.strength=1e-30"]
    found = {}
    for executor in ("simulator", "sequential"):
        run_by = f"run.executor={executor}"
        start = so.run(experiment(*quiet, *noisy, "privacy.noise=0", run_by), data=several_classes())
        moved = so.run(experiment(*quiet, *noisy, run_by), data=several_classes())
        assert moved.summary["privacy"]["guarantee"] == "simulated: no guarantee"
        change = torch.cat([(moved.state.dense[n] - v).flatten() for n, v in start.state.dense.items()])
        assert float(change.std()) == pytest.approx(2 * 0.01 * (6 / 5) ** 0.5 / 6, rel=0.1)
        rows = (moved.state.tables["classes"] - start.state.tables["classes"]).norm(dim=1)
        held = torch.bincount(several_classes().train.rows_of(torch.arange(6))["classes"].values)
        expected = 2 * 0.01 * (6 / 5) ** 0.5 * 40**0.5 / held
        torch.testing.assert_close(rows, expected.float(), rtol=0.5, atol=0)
        found[executor] = moved.state.dense
    torch.testing.assert_close(found["simulator"], found["sequential"])


def test_what_a_server_can_no_longer_check_is_refused_with_the_reason() -> None:
    data = several_classes()
    with pytest.raises(UserError, match="sums and no single update"):
        so.run(experiment('server.robust="median"'), data=data)
    with pytest.raises(UserError, match="sees no single update to measure"):
        so.run(experiment("clients.max_update_norm=1"), data=data)
    with pytest.raises(UserError, match='is for model = "distributed"'):
        Experiment.of(QUICK, overrides=["privacy.clip=1", "privacy.noise=1", "privacy.threshold=0.7"])


def test_the_evidence_says_that_sums_alone_are_seen(tmp_path: Path) -> None:
    e = experiment("rounds=1", "privacy.noise=2")
    run(tmp_path, e, secure_nodes(tmp_path, e))
    told = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert told["channels"]["values"]["status"] == "protected"
    assert "sum" in told["channels"]["values"]["what"]
    assert told["guarantee"].startswith("distributed")
    assert "noise on the sum" in told["mechanism"]["name"]
