"""Servers that try to see through a node's noise: each attack worked once, and none does now."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict

from deployment import TOY
from memory_grid import MemoryGrid, Node, deployed, served
from spreadout.config.experiment import Experiment
from spreadout.core import randomness
from spreadout.core.errors import UserError
from spreadout.core.rows import Rows
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits
from spreadout.federated.federation import Federation
from spreadout.flower import keys, messages
from spreadout.flower.client_app import FAILED, client_app
from spreadout.flower.messages import HELLO, REQUESTS, TRAIN
from spreadout.flower.node_settings import node_ledger
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.ledger import NodeLedger
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.privacy.release import Grid
from spreadout.runs.build import build_federation
from spreadout.runs.observer import Observer
from spreadout.runs.result import Result
from toys import several_classes, tagged

CLIP, NOISE = 0.5, 5.0
PRIVATE = [f"privacy.clip={CLIP}", f"privacy.noise={NOISE}", "method.prior=0"]
QUICK = {**TOY, "deploy": {"timeout": 0.2, "wait": 1}, "eval": {"every": 1, "metrics": ["P@1"]}}


def experiment(*overrides: str) -> Experiment:
    return Experiment.of(QUICK, overrides=["method.name=fedaws", *PRIVATE, *overrides])


def private_nodes(folder: Path, e: Experiment, nodes: int = 2, data: Splits | None = None) -> MemoryGrid:
    """Nodes with a secret, a ledger and a budget of their own, as an operator gives it to them."""
    grid = deployed(data or several_classes(), e, folder / "project", nodes)
    for node in grid.nodes.values():
        secret = folder / f"secret{node.number}"
        if not secret.exists():
            keys.make_secret(secret)
        node.config["secret-file"] = str(secret)
        node.config |= {"ledger": str(folder / f"ledger{node.number}"), "epsilon": 100.0}
        node.restart()
    return grid


def ledger_of(node: Node) -> NodeLedger:
    found = node_ledger(node.config, None)
    assert found is not None
    return found


def run(folder: Path, e: Experiment, grid: MemoryGrid, name: str = "run") -> Result:
    return served(grid, several_classes(), e, folder / name)


def asked(node: Node, kind: str, content: RecordDict) -> RecordDict:
    """What a node answers to a message that no honest server sends."""
    return node.app(Message(content, node.number, kind), node.context).content


def log_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What nodes write into their own logs from now on, with errors in full."""
    logged: list[str] = []

    def log(level: int, text: str, *parts: object, exc_info: BaseException | None = None) -> None:
        logged.append(f"{text % parts} {exc_info}\n")

    monkeypatch.setattr("spreadout.flower.client_app.log", log)
    return logged


def problem(content: RecordDict) -> str:
    return str(messages.numbers_in(content, "problem").get("reason", ""))


def flat(reply: Message, client: int) -> torch.Tensor:
    update = messages.update_of(messages.updates_in(reply.content)[client], private=True)
    values = (*update.dense.values(), *(rows.values for rows in update.tables.values()))
    return torch.cat([value.flatten() for value in values]).double()


def first_training(node: Node) -> Message:
    return next(m for m in node.heard if m.metadata.message_type == TRAIN)


def heard_updates(node: Node) -> list[Message]:
    """Collects what a node sends in answer to training."""
    found: list[Message] = []

    def change(question: Message, reply: Message) -> list[Message]:
        if question.metadata.message_type == TRAIN:
            found.append(reply)
        return [reply]

    node.change = change
    return found


def test_noise_cannot_be_guessed_from_the_bits_that_a_seed_keeps(tmp_path: Path) -> None:
    """An attacker tried all 2³² seeds of the generator; here the one that was used is tried."""
    e = experiment("rounds=1")
    grid = private_nodes(tmp_path, e)
    node = grid.nodes[100]
    sent = heard_updates(node)
    run(tmp_path, e, grid)
    question, update = (
        first_training(node),
        messages.update_of(messages.updates_in(sent[0].content)[0], private=True),
    )
    digest = hashlib.blake2b(Path(str(node.config["secret-file"])).read_bytes(), digest_size=16)
    for name in ("dense", "rows"):
        digest.update(question.content[name]["all"].data)  # type: ignore[index, union-attr]
    secret = int.from_bytes(digest.digest(), "big")
    guess = torch.Generator().manual_seed((randomness.key(secret, "noise", 0, 0) >> 1) & 0xFFFFFFFF)
    left = [
        value - NOISE * CLIP * torch.randn(value.shape, generator=guess)
        for value in (*update.dense.values(), *(rows.values for rows in update.tables.values()))
    ]
    length = float(torch.cat([value.flatten() for value in left]).norm())
    assert length > 10 * CLIP  # what is left is noise, not a clipped update


def test_two_runs_from_the_same_start_and_secret_share_no_noise(tmp_path: Path) -> None:
    """Their difference was the noise-free difference of what they learned."""
    found = []
    for name, rate in (("one", 0.3), ("other", 0.15)):
        e = experiment("rounds=1", f"clients.lr={rate}")
        grid = private_nodes(tmp_path, e)
        sent = heard_updates(grid.nodes[100])
        run(tmp_path, e, grid, name)
        found.append(flat(sent[0], 0))
    expected = (2 * len(found[0])) ** 0.5 * NOISE * CLIP
    assert float((found[0] - found[1]).norm()) == pytest.approx(expected, rel=0.4)


def test_all_that_is_sent_is_on_the_grid(tmp_path: Path) -> None:
    e = experiment("rounds=2")
    grid = private_nodes(tmp_path, e)
    sent = heard_updates(grid.nodes[101])
    run(tmp_path, e, grid)
    unit = Grid.of(GaussianMechanism(clip=CLIP, noise=NOISE)).unit
    for reply in sent:
        for client in messages.updates_in(reply.content):
            units = flat(reply, client) / unit
            assert torch.equal(units, units.round())
            assert len(torch.unique(units)) > 1


def test_a_node_without_a_secret_refuses_by_name(tmp_path: Path) -> None:
    e = experiment()
    grid = deployed(several_classes(), e, tmp_path / "project", 2)
    with pytest.raises(Exception, match="secret-file"):
        run(tmp_path, e, grid)


def test_neither_hello_nor_an_update_tells_more_than_noised_values(tmp_path: Path) -> None:
    e = experiment("rounds=1")
    grid = private_nodes(tmp_path, e)
    node = grid.nodes[100]
    said: list[Message] = []
    node.change = lambda question, reply: [said.append(reply) or reply]  # type: ignore[func-returns-value]
    run(tmp_path, e, grid)
    greeting, training = said[0].content, said[-1].content
    assert set(messages.tensors_in(greeting, "clients")["sizes"].tolist()) == {1}
    assert "setup" not in greeting
    for client, arrays in messages.updates_in(training).items():
        assert arrays.keys() == {
            "about",
            *(k for k in arrays if k.startswith(("dense.", "ids.", "values."))),
        }
        assert arrays["about"].tolist() == [client, 0, 1]


def test_dummies_cannot_be_told_from_sizes_or_guessed(tmp_path: Path) -> None:
    """hello gave n_k, and n_k less the digests that others have is how many labels stand alone."""
    method = {"name": "fedalc", "dummies": 20}
    e = Experiment.of({**QUICK, "rounds": 1, "method": method, "model": {"hidden": [8], "dim": 5}})
    data = tagged()
    grid = deployed(data, e, tmp_path / "project", 2)
    node = grid.nodes[100]
    said: list[Message] = []
    node.change = lambda question, reply: [said.append(reply) or reply]  # type: ignore[func-returns-value]
    result = served(grid, data, e, tmp_path / "run")
    assert result.state.refused == {}
    assert set(messages.tensors_in(said[0].content, "clients")["sizes"].tolist()) == {1}
    entries = [len(one["instances"]) for one in messages.setup_in(said[0].content).values()]
    assert entries != data.train.sizes[::2].tolist()
    updates = messages.updates_in(said[-1].content)
    assert {arrays["about"].tolist()[2] for arrays in updates.values()} == {1}


def test_clients_without_examples_are_not_named(tmp_path: Path, toy: Splits) -> None:
    """That client 4 of six holds nothing would be a size too."""
    e = experiment("rounds=1")
    grid = private_nodes(tmp_path, e, 1, toy)
    result = served(grid, toy, e, tmp_path / "run")
    assert result.state.refused == {}
    assert result.summary["clients"] == 5


@pytest.mark.parametrize("private", [True, False])
def test_batches_of_chosen_sizes_do_not_measure_clients(tmp_path: Path, private: bool) -> None:
    """hello named the clients that have a whole batch, so eight configs told every n_k."""
    named: dict[int, set[int]] = {}
    for batch in (3, 5, 13):
        for drop in ("true", "false"):
            asks = [f"clients.batch={batch}", f"clients.drop_remainder={drop}", "method.name=fedaws"]
            e = experiment(*asks) if private else Experiment.of(QUICK, overrides=asks)
            node = private_nodes(tmp_path / f"{batch}{drop}", e, 1).nodes[100]
            task = RecordDict({"task": ConfigRecord({"run": "1", "round": 0})})
            answer = asked(node, HELLO, task)
            if drop == "true":
                assert "clients.drop_remainder = true" in problem(answer)
                continue
            found = messages.tensors_in(answer, "clients")
            assert set(found["sizes"].tolist()) == {1}
            named[batch] = set(found["numbers"].tolist())
    assert set(map(frozenset, named.values())) == {frozenset(range(6))}


def test_a_round_is_answered_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    """One node answered 400 messages of a round, and their mean had no noise left."""
    e = experiment("rounds=2")
    grid = private_nodes(tmp_path, e)
    node = grid.nodes[100]
    run(tmp_path, e, grid)
    question = first_training(node)
    for i in range(5):
        content = RecordDict(dict(question.content))
        dense = messages.tensors_in(content, "dense")
        content["dense"] = messages.packed(
            {name: value + 1e-6 * (i + 1) for name, value in dense.items()}
        )
        answer = asked(node, TRAIN, content)
        assert "updates" not in answer
        assert "round 0 of this run: it has answered round 1 already" in problem(answer)
    assert {own.releases for own in ledger_of(node).accounts().values()} == {2}


def test_another_runs_name_costs_what_it_costs_until_nothing_is_left(tmp_path: Path) -> None:
    e = experiment("rounds=1")
    grid = private_nodes(tmp_path, e)
    node = grid.nodes[100]
    node.config["epsilon"] = 4.0
    node.restart()
    run(tmp_path, e, grid)
    question, answers = first_training(node), 1
    for i in range(20):
        content = RecordDict(dict(question.content))
        task = dict(messages.numbers_in(content, "task"))
        content["task"] = ConfigRecord({**task, "run": f"another {i}"})
        answer = asked(node, TRAIN, content)
        if "updates" not in answer:
            break
        answers += 1
    assert "its budget is ε = 4 at δ = 1e-06" in problem(answer)
    spent = [own.epsilon(1e-6) for own in ledger_of(node).accounts().values()]
    assert spent == [epsilon_of(NOISE, answers, 1e-6)] * 3
    assert spent[0] <= 4.0 < epsilon_of(NOISE, answers + 1, 1e-6)


def hidden_classes(folder: Path, *overrides: str) -> tuple[Node, list[set[int]], Federation]:
    """A node of ten FedSS clients, each with five of 200 classes among 25, and what they hide."""
    rng = np.random.default_rng(0)
    own = [np.sort(rng.choice(200, 5, replace=False)) for _ in range(10)]
    y = np.concatenate([np.repeat(classes, 2) for classes in own])
    x = rng.normal(size=(len(y), 6)).astype(np.float32)
    train = FederatedDataset.from_arrays(x, y, np.repeat(np.arange(10), 10), classes=200)
    data = Splits("toy", train, Examples.from_arrays(x, y))
    e = Experiment.of(
        QUICK,
        overrides=[
            *PRIVATE,
            "method.name=fedss",
            "rounds=1",
            *(overrides or ("method.sampled_rows=25",)),
        ],
    )
    secret = folder / "secret100"  # which draws are lucky is not left to chance
    secret.write_bytes(bytes(range(32)))
    secret.chmod(0o600)
    node = private_nodes(folder, e, 1, data).nodes[100]
    federation = build_federation(e, data, torch.device("cpu"))
    return node, [set(classes.tolist()) for classes in own], federation


def test_requests_without_training_do_not_name_the_classes(tmp_path: Path) -> None:
    """Eight of them named the classes of ten out of ten clients."""
    node, own, _ = hidden_classes(tmp_path)
    greeting = asked(node, HELLO, RecordDict({"task": ConfigRecord({"run": "a", "round": 0})}))
    assert "requests" not in greeting  # those of clients who are not drawn would be seen too
    left: dict[int, set[int]] = {}
    answered = 0
    for round in range(8):
        task = ConfigRecord({"run": f"run {round}", "round": round, "clients": list(range(10))})
        answer = asked(node, REQUESTS, RecordDict({"task": task}))
        answered += "requests" in answer
        for client, rows in messages.requests_in(answer).items():
            seen = set(rows["classes"].tolist())
            left[client] = left.get(client, seen) & seen
    assert answered == 2
    named = sum(left[client] == own[client] for client in range(10))
    assert named <= 4
    again = ConfigRecord({"run": "again", "round": 1, "clients": list(range(10))})
    assert "requests" in asked(node, REQUESTS, RecordDict({"task": again}))  # the same as before
    assert {len(one.looks) for one in ledger_of(node).accounts().values()} == {2}


@pytest.mark.parametrize("how", ["method.draw=fresh", "method.draw=fixed", "method.draw=cover"])
def test_other_configs_do_not_name_the_classes_either(tmp_path: Path, how: str) -> None:
    """Round 0 with other numbers of negatives was one look, and with fixed ones none at all."""
    answered, left = 0, set(range(200))
    for size in (60, 20, 5, 10):
        key = "cover" if how.endswith("cover") else "negatives"
        asks = [f"method.{key}={size}", how]
        node, own, _ = hidden_classes(tmp_path, *asks)
        task = ConfigRecord({"run": f"run {size}", "round": 0, "clients": [0]})
        assert "requests" not in asked(node, HELLO, RecordDict({"task": task}))
        for _again in range(2):  # the same answer is free
            answer = asked(node, REQUESTS, RecordDict({"task": task}))
        answered += "requests" in answer
        for rows in messages.requests_in(answer).values():
            left &= set(rows["classes"].tolist())
    assert answered == 2
    assert left > own[0]
    assert len(ledger_of(node).accounts()[0].looks) == 2


def test_honest_runs_of_several_configs_are_answered_to_the_end(tmp_path: Path) -> None:
    """Every look is followed by training; rows that stay the same are one look, of all rounds."""
    for name, draw, size in (("a", "fixed", 2), ("b", "fresh", 1), ("c", "fresh", 2), ("d", "fixed", 1)):
        e = experiment(
            "rounds=3", "method.name=fedss", f"method.negatives={size}", f"method.draw={draw}"
        )
        grid = private_nodes(tmp_path, e)
        for node in grid.nodes.values():
            node.config |= {"epsilon": 1000.0, "spare-requests": 0}
            node.restart()
        assert run(tmp_path, e, grid, name).state.refused == {}
    accounts = ledger_of(grid.nodes[100]).accounts().values()
    assert all(own.looks == own.trained for own in accounts)
    assert {own.releases for own in accounts} == {12}
    assert max(len(own.looks) for own in accounts) <= 8  # 1 + 3 + 3 + 1


def test_requests_that_hide_nothing_are_no_looks(tmp_path: Path) -> None:
    """Updates of FedAwS have own rows alone, whatever was requested: a ledger counts them, not requests."""
    e = experiment("rounds=3", "method.name=fedaws", "method.negatives=2")
    grid = private_nodes(tmp_path, e)
    for node in grid.nodes.values():
        node.config |= {"epsilon": 1000.0, "spare-requests": 0}
        node.restart()
    assert run(tmp_path, e, grid).state.refused == {}
    accounts = ledger_of(grid.nodes[100]).accounts().values()
    assert {own.releases for own in accounts} == {3}
    assert not any(own.looks for own in accounts)


def test_rows_left_out_of_a_model_do_not_name_them_either(tmp_path: Path) -> None:
    """A node that lacks rows says so, which tells whether it asked for them: that is a look too."""
    node, _, f = hidden_classes(tmp_path)
    dense, tables = f.model.initial(0, f.device)
    answers = []
    for round in range(8):
        some = Rows(torch.arange(100), tables["classes"][:100])  # type: ignore[index]
        task = ConfigRecord({"run": f"run {round}", "round": round, "clients": [0], "next": []})
        content = {
            "task": task,
            "dense": messages.packed(dense),
            "rows": messages.put_rows({"classes": some}),
        }
        answers.append(problem(asked(node, TRAIN, RecordDict(content))))
    assert answers[:2] == ["restarted"] * 2
    assert all("2 of its requests were seen" in answer for answer in answers[2:])


def test_a_release_is_written_down_before_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = experiment("rounds=1")
    grid = private_nodes(tmp_path, e)
    node = grid.nodes[100]

    def dies(*given: object) -> None:
        raise SystemExit("killed")

    monkeypatch.setattr("spreadout.flower.messages.put_updates", dies)
    with pytest.raises(SystemExit, match="killed"):
        run(tmp_path, e, grid)
    assert {own.releases for own in ledger_of(node).accounts().values()} == {1}


def test_a_crash_between_checkpoints_forgets_no_release(tmp_path: Path) -> None:
    e = experiment("rounds=4", "eval.every=4")
    grid = private_nodes(tmp_path, e)

    class Dies(Observer):
        def round_done(self, report: object) -> None:
            if report.round == 2:  # type: ignore[attr-defined]
                raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        served(grid, several_classes(), e, tmp_path / "run", observer=Dies())
    result = served(grid, several_classes(), e, tmp_path / "run", resume=True)
    told = result.summary["privacy"]
    assert told["most_releases_by_a_client"] == 5  # the second round was asked for twice …
    assert told["epsilon"] == pytest.approx(epsilon_of(NOISE, 5, 1e-6))
    assert result.state.refused == {"node failed": 6}  # … and answered once
    ledger = ledger_of(grid.nodes[100])
    assert {own.releases for own in ledger.accounts().values()} == {4}
    assert told["guarantee"].startswith("local: ")
    assert "for this run only" in told["guarantee"]


@pytest.mark.parametrize("noise", [NOISE, 0.0])
def test_no_error_of_what_reads_the_data_reaches_the_server(
    tmp_path: Path, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower sends the text of any error, and a reader's text has the cell that it could not read."""
    logged = log_of(monkeypatch)
    config = tmp_path / "experiment.toml"
    config.write_text(experiment(f"privacy.noise={noise}").to_toml())

    def node_data(e: Experiment, node: object) -> FederatedDataset:
        raise ValueError("could not convert string to float: 'HIV positive'")

    keys.make_secret(tmp_path / "secret")
    told = {"secret-file": str(tmp_path / "secret"), "device": "cpu"}
    if noise:  # without any it is private too, and counts nothing
        told |= {"ledger": str(tmp_path / "ledger"), "epsilon": "100.0"}
    node = Node(100, client_app(config, node_data), told)
    MemoryGrid([node])
    greeting = RecordDict({"task": ConfigRecord({"run": "a", "round": 0})})
    assert problem(asked(node, HELLO, greeting)) == FAILED
    assert "HIV positive" in "".join(logged)  # the node's own log
    config.write_text(Experiment.of(QUICK).to_toml())
    plain = Node(101, client_app(config, node_data), {"device": "cpu"})
    with pytest.raises(ValueError, match="HIV positive"):  # nobody asked to be protected
        asked(plain, HELLO, greeting)


def test_a_node_without_a_ledger_reads_no_data(tmp_path: Path) -> None:
    config = tmp_path / "experiment.toml"
    config.write_text(experiment().to_toml())
    read: list[object] = []
    keys.make_secret(tmp_path / "secret")
    told = {"secret-file": str(tmp_path / "secret"), "device": "cpu"}
    node = Node(100, client_app(config, lambda e, node: read.append(node)), told)  # type: ignore[arg-type, func-returns-value]
    MemoryGrid([node])
    greeting = RecordDict({"task": ConfigRecord({"run": "a", "round": 0})})
    assert "has no ledger" in problem(asked(node, HELLO, greeting))
    assert read == []


def test_a_refusal_does_not_tell_where_the_ledger_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = log_of(monkeypatch)
    e = experiment("rounds=1")
    grid = private_nodes(tmp_path, e)
    node = grid.nodes[100]
    run(tmp_path, e, grid)
    answer = problem(asked(node, TRAIN, first_training(node).content))
    assert answer.startswith("client 0: round 0 of this run")
    assert str(tmp_path) not in answer
    assert f"{node.config['ledger']}: client 0: round 0" in "".join(logged)


def test_what_an_operator_must_say_is_asked_for_by_name(tmp_path: Path) -> None:
    mechanism = GaussianMechanism(clip=CLIP, noise=NOISE)
    folder = str(tmp_path / "ledger")
    for config, word in (
        ({}, "has no ledger"),
        ({"epsilon": 3.0}, "has no ledger"),
        ({"ledger": folder}, "has no epsilon"),
        ({"ledger": folder, "epsilon": "much"}, "is no number"),
        ({"ledger": folder, "epsilon": -1}, "must be above 0"),
        ({"ledger": folder, "epsilon": 1, "delta": 2}, "between 0 and 1"),
        ({"ledger": folder, "epsilon": 1, "spare-requests": -1}, "must not be below 0"),
    ):
        with pytest.raises(UserError, match=word):
            node_ledger(config, mechanism)
    assert node_ledger({}, None) is None
    assert node_ledger({"ledger": folder, "epsilon": 2.5}, mechanism) is not None


def test_a_node_with_a_budget_sends_nothing_without_noise(tmp_path: Path) -> None:
    e = Experiment.of(QUICK, overrides=["method.name=fedaws", "rounds=1"])  # no [privacy] at all
    grid = private_nodes(tmp_path, e)
    result = run(tmp_path, e, grid)
    assert result.state.refused == {"node failed": 6}
    reply = asked(grid.nodes[100], TRAIN, first_training(grid.nodes[100]).content)
    assert "everything, without noise" in problem(reply)
    task = RecordDict({"task": ConfigRecord({"run": "a", "round": 0, "setup": True})})
    greeting = asked(grid.nodes[100], HELLO, task)
    assert "setup" not in greeting  # its classes, counts or feature means
    assert set(messages.tensors_in(greeting, "clients")["sizes"].tolist()) == {1}
    free = deployed(several_classes(), e, tmp_path / "free", 1)
    greeting = asked(next(iter(free.nodes.values())), HELLO, task)
    assert "setup" in greeting
    assert len(set(messages.tensors_in(greeting, "clients")["sizes"].tolist())) > 1


def test_the_audits_log_has_every_request_that_was_heard(tmp_path: Path) -> None:
    """Those of hello were not in it: twelve heard, four logged."""
    e = Experiment.of(
        QUICK,
        overrides=[
            "method.name=fedss",
            "method.negatives=2",
            "clients.per_round=2",
            "run.log_requests=true",
        ],
    )
    grid = deployed(several_classes(), e, tmp_path / "project", 2)
    heard = 0

    def count(question: Message, reply: Message) -> list[Message]:
        nonlocal heard
        heard += len(messages.requests_in(reply.content))
        return [reply]

    for node in grid.nodes.values():
        node.change = count
    grid.nodes[101].change = lambda question, reply: (
        [] if question.metadata.message_type == TRAIN else count(question, reply)
    )  # its clients are asked, and never heard of again
    run(tmp_path, e, grid)
    logged = (tmp_path / "run" / "requests.jsonl").read_text().splitlines()
    assert len(logged) == heard > 0


def test_what_is_wrong_with_a_nodes_data_is_not_told(tmp_path: Path) -> None:
    """Labels beyond the classes, say: the message would name one."""
    e = experiment("rounds=1")
    grid = private_nodes(tmp_path, e)
    node = grid.nodes[100]
    node.config["secret-file"] = str(tmp_path / "no such file")
    node.restart()
    task = RecordDict({"task": ConfigRecord({"run": "a", "round": 0})})
    assert problem(asked(node, HELLO, task)) == "it failed; its own log says why"


def said(reply: Message) -> dict[str, object]:
    """All that a reply says but the noised values of updates, of which it is how many there are."""
    found: dict[str, object] = {"kind": reply.metadata.message_type, "error": reply.has_error()}
    for name, record in reply.content.items():
        if isinstance(record, ConfigRecord):
            found[name] = dict(record)
            continue
        for key, value in messages.tensors_in(reply.content, name).items():
            noised = name == "updates" and key.partition("/")[2].startswith(("dense.", "values."))
            found[f"{name}.{key}"] = tuple(value.shape) if noised else value.tolist()
    return found


def told_in(folder: Path, data: Splits, *, private: bool) -> list[dict[str, object]]:
    """What the nodes of a run say in it, message by message."""
    asks, found = ["rounds=2", "method.name=fedavg"], list[dict[str, object]]()
    if private:
        e = experiment(*asks)
        grid = private_nodes(folder, e, data=data)
    else:
        e = Experiment.of(QUICK, overrides=asks)
        grid = deployed(data, e, folder / "project", 2)

    def change(question: Message, reply: Message) -> list[Message]:
        found.append(said(reply))
        return [reply]

    for node in grid.nodes.values():
        node.change = change
    served(grid, data, e, folder / "run")
    return found


@pytest.mark.parametrize("private", [True, False])
def test_messages_say_the_same_whatever_one_client_has(tmp_path: Path, private: bool) -> None:
    """Where everybody requests every row: beside noised values nothing tells two worlds apart."""
    one, rng, many = several_classes(), np.random.default_rng(0), 200
    train = one.train
    x, y = (train.columns[name].take(torch.arange(train.examples)).numpy() for name in ("x", "y"))
    client = np.repeat(np.arange(train.clients), train.sizes)
    kept = client != 2
    other = FederatedDataset.from_arrays(
        np.concatenate([x[kept], 9 * rng.normal(size=(many, x.shape[1]))]),
        np.concatenate([y[kept], np.zeros(many, dtype=int)]),
        np.concatenate([client[kept], np.full(many, 2)]),
        classes=train.classes,
    )
    worlds = one, replace(one, train=other)
    first, second = (told_in(tmp_path / str(i), data, private=private) for i, data in enumerate(worlds))
    assert [reply["kind"] for reply in first].count(TRAIN) == 4  # two nodes, two rounds
    assert not any(reply["error"] for reply in first)
    assert (first == second) == private
