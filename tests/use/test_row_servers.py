"""Rows from two real servers that do not learn which: what one of them sees, and requests that mean harm."""

import importlib.util
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

if any(
    importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn", "httpx", "cryptography")
):
    pytest.skip(
        "fastapi, uvicorn, httpx and cryptography are not installed (extra [serve])",
        allow_module_level=True,
    )

import httpx
from scipy.stats import binomtest, chi2_contingency

import spreadout as so
from command import invoke
from row_servers import Tap, make_key, row_servers
from spreadout.privacy.retrieval import Layout
from spreadout.use.rows import client as client_module
from spreadout.use.rows.client import TwoServers
from spreadout.use.rows.link import Address
from spreadout.use.rows.server import table_of_run
from spreadout.use.rows.table import Form, Table, bytes_of, signature

ROWS, COUNT, FETCHES = 64, 16, 40  # of the table, of a request, of a client that is watched


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def key(folder: Path) -> bytes:
    return make_key(folder / "key").read_bytes()


@pytest.fixture(scope="module")
def addresses(folder: Path, key: bytes) -> Iterator[list[str]]:
    """Two real processes; tables of at most 4 MiB, 40 rows a request."""
    limits = ("--max-rows", "40", "--max-table-mb", "4")
    with row_servers(folder, "--key-file", str(folder / "key"), *limits) as found:
        yield found
    # Whatever was asked, by whomever, nothing of it was written down.
    assert [(folder / f"rows{i}.log").read_text() for i in range(2)] == ["", ""]


def table_of(rows: int = ROWS, width: int = 1, dtype: str = "float32", seed: int = 0) -> Table:
    table: Table = np.random.default_rng(seed).normal(size=(rows, width)).astype(dtype)
    return table


@pytest.mark.parametrize(
    ("rows", "width", "dtype"), [(10_000, 64, "float32"), (7, 3, "float64"), (1, 5, "float16")]
)
def test_what_two_processes_send_are_the_rows_of_the_table(
    rows: int, width: int, dtype: str, addresses: list[str], key: bytes
) -> None:
    table, servers = table_of(rows, width, dtype), TwoServers(addresses)
    version = servers.publish(table, key)
    wanted = np.random.default_rng(1).integers(0, rows, 20)
    np.testing.assert_array_equal(servers.fetch(wanted, 20), table[wanted])
    found = servers.fetch(wanted[:3], 20, version=version, form=Form.of(table))
    np.testing.assert_array_equal(found, table[wanted[:3]])
    assert found.dtype == table.dtype
    assert servers.fetch(wanted[:0], 20).shape == (0, width)


# ---------------------------------------------------------------- what one server sees


def queries_in(seen: bytes) -> np.ndarray | None:
    """The bits of the queries of a connection, (m, blocks); None if it was another question."""
    head, _, body = seen.partition(b"\r\n\r\n")
    if not head.startswith(b"POST"):
        return None
    raw = np.frombuffer(body, np.uint8).reshape(COUNT, -1)
    return np.unpackbits(raw, axis=1, bitorder="little")


def told_apart(views: list[np.ndarray], others: list[np.ndarray]) -> float:
    """How often a classifier that has seen half of the fetches of each client names whose the rest are.

    views, others: (m, blocks) bits of each fetch. Ridge regression on every bit, on how often each block
    is in a fetch's queries, or on how any two of its queries differ, whichever does best.
    """
    x = 2.0 * np.stack([*views, *others]) - 1
    y = np.repeat([1.0, -1.0], [len(views), len(others)])
    known = np.arange(len(y)) % 2 == 0
    pairs = (x @ x.transpose(0, 2, 1))[:, *np.triu_indices(COUNT, 1)]

    def share(features: np.ndarray) -> float:
        gram = features @ features[known].T
        weights = np.linalg.solve(gram[known] + features.shape[1] * np.eye(known.sum()), y[known])
        return float((np.sign(gram[~known] @ weights) == y[~known]).mean())

    return max(map(share, (x.reshape(len(x), -1), x.sum(1) / COUNT**0.5, pairs / ROWS**0.5)))


def seldom(share: float, tries: int) -> bool:
    """Whether guessing is right so often less than once in a million times."""
    return bool(binomtest(round(share * tries), tries, alternative="greater").pvalue < 1e-6)


def test_the_attack_finds_clients_whose_queries_are_not_drawn_evenly() -> None:
    """Of 64 blocks each has one that is in seven of eight queries: the classifier is no straw man."""
    rng = np.random.default_rng(0)

    def biased(block: int) -> list[np.ndarray]:
        made = rng.integers(0, 2, (FETCHES, COUNT, ROWS), dtype=np.uint8)
        made[..., block] |= rng.integers(0, 4, (FETCHES, COUNT)) > 0
        return list(made)

    assert seldom(told_apart(biased(3), biased(40)), FETCHES)


def test_one_server_cannot_tell_clients_with_other_rows_apart(addresses: list[str], key: bytes) -> None:
    """One that always wants row 3, alone, and one that wants ten others: from all bytes at its line."""
    TwoServers(addresses).publish(table_of(), key)
    seen: tuple[list[list[bytes]], ...] = ([], [])  # by server, by client
    with Tap(addresses[0]) as one, Tap(addresses[1]) as other:
        servers = TwoServers([one.address, other.address])
        for rows in (np.array([3]), np.arange(40, 50)):
            for _ in range(FETCHES):
                servers.fetch(rows, COUNT)
            for tap, views in zip((one, other), seen, strict=True):
                views.append(tap.taken(2 * FETCHES))
    for clients in seen:
        # Heads and lengths are the same byte for byte: two connections a fetch, and no more.
        heads = [{said.partition(b"\r\n\r\n")[0] for said in client} for client in clients]
        assert heads[0] == heads[1]
        assert len(heads[0]) == 2
        assert sorted(map(len, clients[0])) == sorted(map(len, clients[1]))
        bits = [[it for said in client if (it := queries_in(said)) is not None] for client in clients]
        assert [len(client) for client in bits] == [FETCHES, FETCHES]
        every = [np.concatenate(client) for client in bits]  # (640, 64)
        assert chi2_contingency(np.stack([one.sum(0) for one in every])).pvalue > 1e-6
        assert len(np.unique(np.concatenate(every), axis=0)) == 2 * FETCHES * COUNT  # none comes twice
        assert not seldom(told_apart(*bits), FETCHES)


def test_more_rows_than_were_agreed_are_not_asked_for(addresses: list[str], key: bytes) -> None:
    servers = TwoServers(addresses, tries=1)
    servers.publish(table_of(), key)
    with pytest.raises(so.UserError, match="17 rows are wanted, and 16"):
        servers.fetch(np.arange(17), COUNT)
    with pytest.raises(so.UserError, match=r"longer than .* bytes; ask for fewer rows"):
        servers.fetch(np.arange(2), 41)


# ---------------------------------------------------------------- versions


def one_server(address: str, table: Table, key: bytes) -> None:
    """Hand a table to one of the two alone."""
    form, data = Form.of(table), bytes_of(table)
    version = form.version(data)
    path = f"/table/{version}?rows={form.rows}&width={form.width}&dtype={form.dtype}"
    shown = {"Authorization": signature(key, form, version)}
    Address.parse(address).ask("PUT", path, data, most=999, seconds=60, headers=shown)


def test_two_versions_are_never_combined(
    addresses: list[str], key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, old, new = TwoServers(addresses), table_of(seed=1), table_of(seed=2)
    servers.publish(old, key)
    one_server(addresses[0], new, key)
    pauses: list[float] = []
    monkeypatch.setattr(client_module.time, "sleep", pauses.append)
    with pytest.raises(so.UserError, match=r"has table .* tried 5 times"):
        servers.fetch(np.arange(3), COUNT)
    assert len(pauses) == 4

    def catch_up(_: float) -> None:  # the other server gets it between two tries
        one_server(addresses[1], new, key)

    monkeypatch.setattr(client_module.time, "sleep", catch_up)
    np.testing.assert_array_equal(servers.fetch(np.arange(3), COUNT), new[:3])
    with pytest.raises(so.UserError, match="is wanted"):  # the round's table, and no other
        servers.fetch(np.arange(3), COUNT, version=Form.of(old).version(bytes_of(old)))
    with pytest.raises(so.UserError, match="has a table of"):
        servers.fetch(np.arange(3), COUNT, form=Form(ROWS, 2, "float32"))


def test_a_table_that_changes_between_two_questions_is_asked_for_anew(
    addresses: list[str], key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With queries that owe nothing to the first: one server has answered those when the other refuses."""
    old, new = table_of(seed=1), table_of(seed=2)
    TwoServers(addresses).publish(old, key)
    honest, tried = client_module._asked, []

    def asked(layout: Layout, rows: np.ndarray) -> object:
        tried.append(honest(layout, rows))
        if len(tried) == 1:  # both have said that they have the old one
            one_server(addresses[1], new, key)
        return tried[-1]

    monkeypatch.setattr(client_module, "_asked", asked)
    monkeypatch.setattr(client_module.time, "sleep", lambda _: one_server(addresses[0], new, key))
    np.testing.assert_array_equal(TwoServers(addresses).fetch(np.arange(3), COUNT), new[:3])
    (first, _), (second, _) = tried
    assert not (first == second).all(axis=1).any()


def test_one_server_under_two_names_is_refused(addresses: list[str], key: bytes) -> None:
    TwoServers(addresses).publish(table_of(), key)
    other_name = addresses[0].replace("127.0.0.1", "localhost")
    with pytest.raises(so.UserError, match="lead to one server"):
        TwoServers([addresses[0], other_name]).fetch(np.arange(3), COUNT)
    with pytest.raises(so.UserError, match="is named twice"):
        TwoServers([addresses[0], addresses[0] + "/"])
    with pytest.raises(so.UserError, match="two are needed"):
        TwoServers(addresses[:1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://rows.example:8100", "is not encrypted"),
        ("http://192.168.0.7", "is not encrypted"),
        ("ftp://127.0.0.1", "is no row server's address"),
        ("127.0.0.1:8100", "is no row server's address"),
        ("https://rows.example/prefix?x=1", "is no row server's address"),
        ("https://user:word@rows.example", "is no row server's address"),
        ("https://rows.example:99999", "is no row server's address"),
        ("", "is no row server's address"),
    ],
)
def test_addresses_that_are_none_or_not_encrypted(text: str, said: str) -> None:
    with pytest.raises(so.UserError, match=said):
        Address.parse(text)
    assert str(Address.parse("https://rows.example")) == "https://rows.example:443"


# ---------------------------------------------------------------- what means harm


def test_requests_that_mean_harm_get_one_line(addresses: list[str], key: bytes) -> None:
    table = table_of()
    form, version = Form.of(table), TwoServers(addresses).publish(table, key)
    asked, put = f"/answers/{version}", f"/table/{version}"
    signed = {"authorization": signature(key, form, version)}
    right = f"{put}?rows=64&width=1&dtype=float32"
    large = Form(2**22, 1, "float32")
    hostile: list[tuple[str, str, bytes, dict[str, str], int, str]] = [
        ("POST", asked, b"", {}, 422, "no queries"),
        ("POST", asked, b"x" * 7, {}, 422, "7 bytes are no queries: each has 8"),
        ("POST", asked, b"x" * 9, {}, 422, "no queries"),
        ("POST", asked, b"x" * 328, {}, 413, "longer than 320 bytes"),
        ("POST", "/answers/" + "0" * 64, b"x" * 8, {}, 409, "another version"),
        ("POST", "/answers/" + "G" * 64, b"x" * 8, {}, 422, "no version"),
        ("POST", "/answers/..%2f..%2fetc", b"x" * 8, {}, 404, "Not Found"),
        ("POST", "/answers/abc", b"x" * 8, {}, 422, "no version"),
        ("GET", asked, b"", {}, 405, "Method"),
        ("PUT", right, bytes(256), {}, 403, "has the key"),
        ("PUT", right, bytes(256), {"authorization": "0" * 64}, 403, "has the key"),
        ("PUT", put, b"", {}, 422, "a table has rows"),
        ("PUT", f"{put}?rows=-1&width=1&dtype=float32", b"", {}, 422, "a table has rows"),
        ("PUT", f"{put}?rows=64&width=1&dtype=object", b"", {}, 422, "a table has rows"),
        ("PUT", f"{put}?rows={'9' * 5000}&width=1&dtype=float32", b"", {}, 422, "a table has rows"),
        (
            "PUT",
            right,
            bytes(256),
            signed,
            422,
            "is not the table",
        ),
        (
            "PUT",
            right,
            bytes(255),
            signed,
            422,
            "is not the table",
        ),
        ("PUT", right, bytes(257), {"authorization": signature(key, form, version)}, 413, "256 bytes"),
        (
            "PUT",
            f"{put}?rows={2**22}&width=1&dtype=float32",
            b"",
            {"authorization": signature(key, large, version)},
            413,
            "the table is longer than 4,194,304 bytes",
        ),
        ("GET", "/nowhere", b"", {}, 404, "Not Found"),
        ("GET", "/table", b"", {"host": "example.org"}, 400, "Invalid host"),
    ]
    with httpx.Client(base_url=addresses[0], timeout=60) as client:
        for method, path, body, headers, status, said in hostile:
            found = client.request(method, path, content=body, headers=headers)
            assert (found.status_code, said in found.text) == (status, True), (path[:60], found.text)
            assert found.text.count("\n") == 0
            assert len(found.text) < 300

        def endless() -> Iterator[bytes]:  # says nothing of its length
            for _ in range(100):
                yield bytes(2**16)

        with httpx.Client(base_url=addresses[0], timeout=60) as other, suppress(httpx.TransportError):
            assert other.post(asked, content=endless()).status_code == 413
        assert client.get("/health").json() == {"status": "ok", "waiting": 0}
    # A body that ends early, with a length that it does not keep: nobody waits for the rest.
    host, port = addresses[0].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as short:
        short.sendall(
            f"POST {asked} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 64\r\n\r\nabc".encode()
        )
    np.testing.assert_array_equal(TwoServers(addresses).fetch(np.arange(5), COUNT), table[:5])


@contextmanager
def saying(answer: bytes | Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that answers every question with the same bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    asker, _ = listener.accept()
                except OSError:
                    return
                with asker, suppress(OSError):
                    asker.recv(1 << 16)
                    if isinstance(answer, bytes):
                        asker.sendall(answer)
                    else:
                        answer(asker)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def drip(asker: socket.socket) -> None:
    asker.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(200):
        asker.sendall(b"x")
        time.sleep(0.02)


def said_in_http(body: bytes, length: int | None = None, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {length or len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "does not answer"),
        (b"", "does not answer"),
        (said_in_http(b"[" * 4000), "is no row server"),
        (said_in_http(b"{}"), "is no row server"),
        (said_in_http(b'{"server": 1, "version": "x", "rows": 1, "width": 1}'), "is no row server"),
        (said_in_http(b"x" * 5000), "more than the 4,096 bytes"),
        (said_in_http(b"{}", 4000), "does not answer"),
        (said_in_http(b'{"error": "a\x1b[31mb"}', status="418 no"), "no row server's answer"),
        (said_in_http(b'{"error": "never"}', status="500 no"), r"never \(500\)"),
        (said_in_http(b"", status="302 Found"), r"\(302\)"),
        (drip, "does not answer"),
    ],
)
def test_a_server_that_means_harm_is_one_line_too(
    answer: bytes | Callable[[socket.socket], None], said: str, addresses: list[str]
) -> None:
    with saying(answer) as address:
        servers = TwoServers([addresses[0], address], tries=1, seconds=0.3 if answer is drip else 10)
        with pytest.raises(so.UserError, match=said) as found:
            servers.fetch(np.arange(2), COUNT)
        assert len(str(found.value)) < 400


# ---------------------------------------------------------------- the command


def test_a_finished_run_has_a_table_to_serve(tmp_path: Path) -> None:
    result = so.run({"rounds": 1, "data": {"source": "digits"}, "eval": {"references": False}})
    table = table_of_run(result.save(tmp_path / "run"))
    np.testing.assert_array_equal(table, result.state.tables["classes"])


def test_what_cannot_be_served_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_key(tmp_path / "key")
    (tmp_path / "short").touch(0o600)
    (tmp_path / "open").write_bytes(bytes(32))
    (tmp_path / "open").chmod(0o644)
    good = ["--key-file", str(tmp_path / "key")]
    for options, complaint in (
        ([], "rows-server: has no table"),
        ([str(tmp_path)], "not a run folder"),
        (["--key-file", str(tmp_path / "nothing")], "No such file"),
        (["--key-file", str(tmp_path / "short")], "is shorter than 16 bytes"),
        (["--key-file", str(tmp_path / "open")], "others can read it"),
        ([*good, "--port", "99999"], "--port 99999: must lie between"),
        ([*good, "--tls-cert", "x"], "give both, or neither"),
        ([*good, "--tls-cert", "x", "--tls-key", "y"], "x: no such file"),
        (
            [*good, "--tls-cert", str(tmp_path / "key"), "--tls-key", str(tmp_path / "key")],
            "no certificate",
        ),
    ):
        assert invoke(monkeypatch, "rows-server", *options) == 2, complaint
        said = capsys.readouterr().err
        assert complaint in said
        assert said.count("\n") == 1


def test_serving_closes_no_log_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Log(logging.Handler):
        closed = False

        def close(self) -> None:
            self.closed = True
            super().close()

    log = Log()
    make_key(tmp_path / "key")
    key = str(tmp_path / "key")
    no_certificate = ["--key-file", key, "--tls-cert", key, "--tls-key", key]
    assert invoke(monkeypatch, "rows-server", *no_certificate) == 2
    assert not log.closed


def test_over_tls_and_only_with_a_certificate_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = pytest.importorskip("spreadout.flower.keys")
    keys.make_authority(tmp_path)
    keys.make_certificate(tmp_path, ["127.0.0.1"])
    key = make_key(tmp_path / "key")
    tls = ("--tls-cert", str(tmp_path / "server.crt"), "--tls-key", str(tmp_path / "server.key"))
    with row_servers(tmp_path, "--key-file", str(key), *tls) as found:
        assert found[0].startswith("https://127.0.0.1:")
        with pytest.raises(so.UserError, match="no TLS that can be trusted"):
            TwoServers(found).publish(table_of(), key.read_bytes())
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
        TwoServers(found).publish(table_of(), key.read_bytes())
        np.testing.assert_array_equal(TwoServers(found).fetch(np.arange(4), COUNT), table_of()[:4])
