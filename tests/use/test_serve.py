"""The HTTP server: a real process under load, every kind of input, and requests that mean harm."""

import asyncio
import base64
import importlib.util
import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import spreadout as so
from command import invoke
from toys import HASHED, label_sets, label_sets_config, shop, shop_config, tagged, tagged_config

if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn", "httpx")):
    pytest.skip("fastapi, uvicorn and httpx are not installed (extra [serve])", allow_module_level=True)

import httpx
from starlette.testclient import TestClient

from spreadout.use.index import ClassIndex
from spreadout.use.serve.app import create_app
from spreadout.use.serve.batching import Batcher
from spreadout.use.serve.limits import Limits
from spreadout.use.serve.refused import Refused

QUICK = {"rounds": 2, "eval": {"references": False}, "method": {"name": "fedaws"}}


@pytest.fixture(scope="module")
def digits() -> so.Result:
    return so.run({**QUICK, "data": {"source": "digits"}})


def test_the_page_of_docs_loads_nothing_from_another_host(digits: so.Result) -> None:
    client = TestClient(create_app(digits.predictor))
    page = client.get("/docs").text
    for path in client.get("/openapi.json").json()["paths"]:
        assert f" {path}</h2>" in page
    assert "The best classes of every input" in page
    assert "://" not in page
    assert "src=" not in page
    assert client.get("/redoc").status_code == 404


@pytest.fixture(scope="module")
def address(digits: so.Result, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`spreadout serve` in a process of its own, on a free port."""
    folder = digits.save(tmp_path_factory.mktemp("serve") / "run")
    command = [sys.executable, "-m", "spreadout", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        try:
            assert said.startswith("listening on http://127.0.0.1:"), said
            yield said.split()[2]
        finally:
            process.terminate()


def test_many_clients_at_once_get_the_answers_of_the_model(address: str, digits: so.Result) -> None:
    x = np.random.default_rng(0).normal(size=(120, 64)).astype(np.float32)
    right = digits.predict(x, top=3)
    local = threading.local()

    def ask(i: int) -> list[dict[str, Any]]:
        if not hasattr(local, "client"):
            local.client = httpx.Client(base_url=address, timeout=30)
        answer = local.client.post("/predict", json={"inputs": [x[i].tolist()], "top": 3})
        assert answer.status_code == 200, answer.text
        (found,) = answer.json()["results"]
        return list(found)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(len(x))))
    assert [[g["id"] for g in each] for each in found] == [[g.id for g in each] for each in right]
    assert found[7][0]["score"] == pytest.approx(right[7][0].score, abs=1e-5)
    whole = httpx.post(f"{address}/predict", json={"inputs": x[:100].tolist(), "top": 1}).json()
    assert [each[0]["id"] for each in whole["results"]] == [each[0].id for each in right[:100]]
    vectors = httpx.post(f"{address}/embed", json={"inputs": x[:2].tolist()}).json()["embeddings"]
    assert np.allclose(vectors, digits.embed(x[:2]).numpy(), atol=1e-5)


def test_it_says_that_it_is_well_and_what_it_is(address: str, digits: so.Result) -> None:
    assert httpx.get(f"{address}/health").json() == {"status": "ok", "waiting": 0}
    about = httpx.get(f"{address}/model").json()
    assert (about["classes"], about["takes"]) == (10, "64 numbers an example")
    assert about["run"]["metrics"] == digits.metrics
    described = httpx.get(f"{address}/openapi.json").json()
    body = described["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"inputs", "top", "unseen"}
    assert "422" in described["paths"]["/predict"]["post"]["responses"]


HOSTILE: list[tuple[bytes, int, str]] = [
    (b"", 400, "no JSON"),
    (b"{", 400, "no JSON"),
    (b"\xff\xfe", 400, "no JSON"),
    (b"[" * 100_000, 400, "recursion limit"),
    (b'{"inputs":' + b"[" * 100_000, 400, "recursion limit"),
    (b'{"inputs":' + b"[" * 90 + b"1" + b"]" * 90 + b"}", 422, "this run takes 64 numbers"),
    (b'{"inputs":[[NaN]]}', 400, "no JSON"),
    (b'{"inputs":[[Infinity]]}', 400, "no JSON"),
    (b'{"inputs":[[' + b"1e999," * 63 + b"1]]}", 422, "not finite"),
    (b'{"inputs":[[' + b"1e39," * 63 + b"1]]}", 422, "not finite"),
    (b'{"inputs":[[' + b"1," * 63 + b"1" * 4000 + b"]]}", 422, "64 numbers"),
    (b"[]", 422, "inputs"),
    (b"3", 422, "inputs"),
    (b'{"inputs":{}}', 422, "give a list"),
    (b'{"inputs":[]}', 422, "at least one"),
    (b'{"inputs":[[]]}', 422, "64 numbers"),
    (b'{"inputs":[[1],[1,2]]}', 422, "different lengths"),
    (b'{"inputs":["a"]}', 422, "inputs: are lists"),
    (b'{"inputs":[null]}', 422, "64 numbers"),
    (b'{"inputs":[[' + b"null," * 63 + b"null]]}", 422, "64 numbers"),
    (b'{"inputs":[1,2]}', 422, "64 numbers"),
    (b'{"inputs":[{"x":1}]}', 422, "an object has"),
    (b'{"inputs":[{"picture":"!"}]}', 422, "base64"),
    (b'{"inputs":[{"picture":"aGk="}]}', 422, "and no pictures"),
    (b'{"inputs":[{"ids":[64],"values":[1]}]}', 422, "from 0 to 63"),
    (b'{"inputs":[{"ids":[-1],"values":[1]}]}', 422, "from 0 to 63"),
    (b'{"inputs":[{"ids":[1],"values":[]}]}', 422, "1 ids, but 0 values"),
    (b'{"inputs":[{"ids":1,"values":2}]}', 422, "are lists"),
    (b'{"inputs":[{"ids":[1],"values":["a"]}]}', 422, "give numbers"),
    (b'{"inputs":[{"ids":[1],"values":[1' + b"0" * 400 + b"]}]}", 422, "too large"),
    (b'{"inputs":[[1]],"top":0}', 422, "top: give"),
    (b'{"inputs":[[1]],"top":101}', 422, "from 1 to 100"),
    (b'{"inputs":[[1]],"top":true}', 422, "top: give"),
    (b'{"inputs":[[1]],"unseen":1}', 422, "unseen: give"),
    (b'{"inputs":[[' + b"1," * 63 + b'1]],"unseen":true}', 422, "is for histories"),
    (b'{"inputs":[[1]],"k":3}', 422, "'k': unknown"),
    (b'{"inputs":[' + b"[1]," * 256 + b"[1]]}", 413, "more than the 256"),
    (b" " * (8 * 2**20 + 1), 413, "longer than 8,388,608 bytes"),
]


def test_requests_that_mean_harm_get_one_line(address: str) -> None:
    with httpx.Client(base_url=address, timeout=30) as client:
        for body, status, said in HOSTILE:
            found = client.post("/predict", content=body)
            assert (found.status_code, said in found.text) == (status, True), (body[:60], found.text)
            assert found.json()["error"].count("\n") == 0
            assert len(found.text) < 400

        def endless() -> Iterator[bytes]:  # says nothing of its length
            for _ in range(20):
                yield b" " * 2**20

        # It may hang up before all is sent.
        with httpx.Client(base_url=address, timeout=30) as other, suppress(httpx.TransportError):
            assert other.post("/predict", content=endless()).status_code == 413
        assert client.get("/nowhere").status_code == 404
        assert client.get("/predict").status_code == 405
        assert client.get("/health", headers={"host": "example.org"}).status_code == 400
        assert client.get("/health").json()["status"] == "ok"  # it is still there


def client_of(result: so.Result, limits: Limits | None = None) -> TestClient:
    return TestClient(create_app(result.predictor, limits), raise_server_exceptions=False)


def ids(answer: httpx.Response) -> list[list[str]]:
    assert answer.status_code == 200, answer.text
    return [[guess["id"] for guess in each] for each in answer.json()["results"]]


def test_histories_sparse_features_and_pictures(tmp_path: Path) -> None:
    ring = so.run(shop_config(rounds=2), data=shop())
    with client_of(ring) as client:
        found = ids(client.post("/predict", json={"inputs": [["1", 2], [7]], "top": 3, "unseen": True}))
        right = ring.predict([[1, 2], [7]], top=3, unseen=True)
        assert found == [[guess.id for guess in each] for each in right]
        for odd in ([[1.5]], [[None]], [3], ["12"], [[]], [["nothing"]], [{"ids": [1], "values": [1]}]):
            assert client.post("/predict", json={"inputs": odd}).status_code == 422
    words = so.run(tagged_config({"name": "fedaws"}, rounds=2), data=tagged())
    with client_of(words) as client:
        sparse = [{"ids": [1, 5], "values": [1.0, 2]}, {"ids": [], "values": []}]
        x = torch.zeros(2, 24)
        x[0, 1], x[0, 5] = 1.0, 2.0
        found = ids(client.post("/predict", json={"inputs": sparse, "top": 6}))
        assert found[0] == [guess.id for guess in words.predict(x, top=6)[0]]
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", x=pixels, y=np.arange(12) % 3)
    seen = so.run({**QUICK, "data": {"source": "npz", "path": str(tmp_path / "x.npz")}})
    with client_of(seen) as client:
        file = io.BytesIO()
        Image.fromarray(pixels[0]).save(file, format="png")
        picture = {"picture": base64.b64encode(file.getvalue()).decode()}
        found = ids(client.post("/predict", json={"inputs": [picture], "top": 3}))
        assert found[0] == [guess.id for guess in seen.predict(pixels[:1], top=3)[0]]
        assert client.post("/predict", json={"inputs": [{"picture": "AAAA"}]}).status_code == 422


def test_a_model_over_buckets_has_no_embeddings() -> None:
    data = label_sets()
    result = so.run(label_sets_config(HASHED, rounds=2), data=data)
    x = data.test.inputs["x"].take(torch.arange(2)).tolist()
    with client_of(result) as client:
        assert len(ids(client.post("/predict", json={"inputs": x, "top": 20}))[0]) == 20
        refused = client.post("/embed", json={"inputs": x})
        assert (refused.status_code, "buckets" in refused.text) == (422, True)


def test_a_server_that_fails_says_so_and_no_more(digits: so.Result) -> None:
    broken = replace(digits.predictor, index=object())  # type: ignore[arg-type]
    with TestClient(create_app(broken), raise_server_exceptions=False) as client:
        found = client.post("/predict", json={"inputs": [[0.0] * 64]})
        assert found.status_code == 500
        assert found.json() == {"error": "the server failed; its log says why"}


def test_what_comes_while_the_model_is_busy_is_one_batch() -> None:
    opened = threading.Event()
    seen: list[list[int]] = []

    def work(questions: Any) -> list[int]:
        if not seen:
            opened.wait(10)
        seen.append(list(questions))
        return [2 * question for question in questions]

    async def scenario() -> list[int]:
        batcher: Batcher[int, int] = Batcher(work, lambda _: 1, batch=4, waiting=100)
        asked = [asyncio.create_task(batcher.ask(i)) for i in range(1)]
        while batcher.batches == 0:  # the first is with the model now
            await asyncio.sleep(0)
        asked += [asyncio.create_task(batcher.ask(i)) for i in range(1, 8)]
        await asyncio.sleep(0)
        asked[3].cancel()  # whoever goes is not waited for
        await asyncio.sleep(0)
        opened.set()
        found = [await one for i, one in enumerate(asked) if i != 3]
        batcher.close()
        return found

    assert asyncio.run(scenario()) == [0, 2, 4, 8, 10, 12, 14]
    assert seen == [[0], [1, 2, 4, 5], [6, 7]]


def test_one_bad_question_spoils_no_other_and_too_many_are_sent_away() -> None:
    def work(questions: Any) -> list[int]:
        if -1 in questions:
            raise ValueError("no")
        return list(questions)

    async def scenario() -> list[Any]:
        batcher: Batcher[int, int] = Batcher(work, lambda _: 1, batch=10, waiting=3)
        asked = [asyncio.create_task(batcher.ask(i)) for i in (1, -1, 2, 3)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        batcher.close()
        return found

    first, bad, second, refused = asyncio.run(scenario())
    assert (first, second) == (1, 2)
    assert isinstance(bad, ValueError)
    assert isinstance(refused, Refused)
    assert refused.status == 503


@pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="faiss is not installed")
def test_an_index_that_searches_every_list_answers_as_the_model_does(digits: so.Result) -> None:
    x = np.random.default_rng(1).normal(size=(20, 64)).astype(np.float32)
    right = digits.predict(x, top=10)
    for kind, probes in (("flat", None), ("ivf", 10**6)):
        index = ClassIndex.of(digits.predictor, kind, probes)  # type: ignore[arg-type]
        found = replace(digits.predictor, index=index).predict(x, top=10)
        assert [[g.id for g in each] for each in found] == [[g.id for g in each] for each in right]
        assert found[0][0].score == pytest.approx(right[0][0].score, abs=1e-5)
    ring = so.run(shop_config(rounds=2), data=shop())
    found = replace(ring.predictor, index=ClassIndex.of(ring.predictor, "flat")).predict(
        [[1, 2]], top=12, unseen=True
    )
    assert [g.id for g in found[0]] == [g.id for g in ring.predict([[1, 2]], top=12, unseen=True)[0]]


def test_what_cannot_be_served_is_one_line(
    digits: so.Result,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = str(digits.save(tmp_path / "run"))
    for options, complaint in (
        (["--port", "99999"], "--port 99999: must lie between"),
        (["--index", "tree"], "--index tree: unknown; known: auto, exact, ivf"),
        (["--probes", "3"], "--probes: is for --index ivf"),
        (["--host", "no.such.host.invalid"], "cannot listen on"),
    ):
        assert invoke(monkeypatch, "serve", folder, *options) == 2
        said = capsys.readouterr().err
        assert complaint in said
        assert said.count("\n") == 1
    assert invoke(monkeypatch, "serve", str(tmp_path)) == 2
    assert "not a run folder" in capsys.readouterr().err


def test_vectors_wait_in_the_same_queue_as_classes_and_are_refused_where_it_is_full(
    digits: so.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is held up by a first question; behind it there is place for one input, of either kind."""
    busy, opened = threading.Event(), threading.Event()
    answer = so.Predictor.answer

    def slow(self: so.Predictor, questions: Any) -> Any:
        busy.set()
        opened.wait(20)
        return answer(self, questions)

    monkeypatch.setattr(so.Predictor, "answer", slow)
    row = {"inputs": [[0.5] * 64]}
    with (
        TestClient(create_app(digits.predictor, Limits(waiting=1))) as client,
        ThreadPoolExecutor(2) as others,
    ):
        first = others.submit(client.post, "/predict", json=row)
        assert busy.wait(20)
        second = others.submit(client.post, "/embed", json=row)
        while client.get("/health").json()["waiting"] == 0 and not second.done():
            pass
        refused = [client.post(path, json=row).status_code for path in ("/embed", "/predict")]
        opened.set()
        assert refused == [503, 503]
        assert first.result().status_code == 200
        found = torch.tensor(second.result().json()["embeddings"])
    torch.testing.assert_close(found, digits.embed(row["inputs"]))


def test_rows_of_a_table_are_objects_by_the_names_of_columns() -> None:
    table: dict[str, list[Any]] = {"a": [0.0, 9.0] * 10, "b": [9.0, 0.0] * 10, "label": ["x", "y"] * 10}
    train = so.FederatedDataset.from_frame(table, label="label")
    test = so.Examples.from_frame(table, label="label", like=train)
    result = so.run({**QUICK, "rounds": 30}, data=so.Splits("table", train, test))
    with TestClient(create_app(result.predictor)) as client:

        def ask(*rows: Any) -> Any:
            return client.post("/predict", json={"inputs": rows, "top": 1})

        found = ask({"b": 9, "a": 0}, {"a": 9, "b": 0, "label": "?"}).json()
        assert "not in both" in found["error"]
        found = ask({"b": 9, "a": 0}, {"a": 9, "b": 0}).json()["results"]
        assert [one[0]["id"] for one in found] == ["x", "y"]
        more = ask({"a": 0, "c": "new", "b": 9, "label": None}).json()
        assert more["results"][0][0]["id"] == "x"
        assert more["notes"] == ["c: was not in the training data and is left out"]
        for row, said in (
            ({"b": 9}, "no column 'a'"),
            ({"a": None, "b": 2}, "row 1: a is empty"),
            ({"a": "q", "b": 2}, "row 1: a is 'q', which is no number"),
            ({"a": [1], "b": 2}, "which is no number"),
            ({"z": 1}, "no column 'a'"),
        ):
            refused = ask(row)
            assert (refused.status_code, said in refused.json()["error"]) == (422, True), refused.text
