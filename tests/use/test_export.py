"""Exported models, loaded again by the libraries they are for: the scores are those of the run."""

import copy
import importlib.util
import json
import unicodedata
import warnings
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import spreadout as so
from command import invoke
from spreadout.use.scorer import Scorer
from toys import HASHED, label_sets, label_sets_config, shop, shop_config, tagged, tagged_config

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="onnx, onnxscript and onnxruntime are not installed (extra [export])",
)
needs_faiss = pytest.mark.skipif(
    importlib.util.find_spec("faiss") is None, reason="faiss is not installed (extra [export])"
)


def own_encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))


def rows(seed: int = 0) -> so.Splits:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(6), [30, 20, 15, 10, 5, 5])
    x = (100 * rng.normal(size=(len(y), 8)) + 300 * np.eye(6, 8)[y]).astype(np.float32)
    train = so.FederatedDataset.from_arrays(x, y, client=y)
    names = tuple(f"class {i}" for i in range(6))
    return so.Splits("rows", train, so.Examples.from_arrays(x, y), class_names=names)


def images() -> so.Splits:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 6)
    pixels = torch.from_numpy(rng.integers(0, 256, (len(y), 1, 8, 8), dtype=np.uint8))
    column = so.Dense(pixels, scale=2 / 255, shift=-1.0)
    train = so.FederatedDataset.by_owner(
        {"x": column, "y": so.Dense(torch.from_numpy(y))}, torch.from_numpy(y), 4
    )
    labels = so.Ragged.from_lists([[int(one)] for one in y])
    return so.Splits("images", train, so.Examples({"x": column}, labels))


QUICK = {"rounds": 2, "eval": {"references": False}}


def trained(kind: str) -> so.Result:
    if kind == "own encoder":
        return so.run({**QUICK, "method": {"name": "fedaws"}}, data=rows(), encoder=own_encoder())
    if kind == "scaled features":  # the scaling of inputs is part of the model, and so is the prior
        model = {"encoder": "mlp", "hidden": [8], "dim": 6, "input_scaling": "standard"}
        return so.run({**QUICK, "method": {"name": "fedaws", "prior": 0.1}, "model": model}, data=rows())
    if kind == "long tails":
        model = {"encoder": "mlp", "hidden": [8], "dim": 6, "input_scaling": "roots"}
        data = rows()
        x = data.train.columns["x"]
        assert isinstance(x, so.Dense)
        tailed = {**data.train.columns, "x": so.Dense((x.values / 100) ** 5)}
        data = replace(data, train=replace(data.train, columns=tailed))
        result = so.run({**QUICK, "method": {"name": "fedaws"}, "model": model}, data=data)
        assert result.state.dense["0.power"].min() < 1
        return result
    if kind == "pixels":
        model = {"encoder": "convnet", "width": 8, "dim": 6}
        return so.run({**QUICK, "method": {"name": "fedaws"}, "model": model}, data=images())
    if kind == "lookup":
        return so.run(tagged_config({"name": "fedaws"}, rounds=2), data=tagged())
    if kind == "histories":
        return so.run(shop_config(rounds=2, model={"item": "dense"}), data=shop())
    if kind == "attention":
        return so.run(shop_config(rounds=2, model={"encoder": "attention"}), data=shop())
    if kind == "buckets":
        return so.run(label_sets_config(HASHED, rounds=2), data=label_sets())
    assert kind == "all outputs"
    return so.run(label_sets_config({"name": "fedavg-bce"}, rounds=2), data=label_sets())


KINDS = (
    "own encoder",
    "scaled features",
    "long tails",
    "pixels",
    "lookup",
    "histories",
    "attention",
    "buckets",
    "all outputs",
)
RESULTS: dict[str, so.Result] = {}


def result_of(kind: str) -> so.Result:
    if kind not in RESULTS:
        RESULTS[kind] = trained(kind)
    return RESULTS[kind]


def asked(kind: str, result: so.Result) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Three inputs as the graph takes them, and the scores that the run itself has for them."""
    rng, predictor = np.random.default_rng(7), result.predictor
    if kind in ("histories", "attention"):
        histories = [[3, 4, 5, 6], [1], [12, 2]]  # by id; a place is one less
        places = torch.tensor([[2, 3, 4, 5], [0, -1, -1, -1], [11, 1, -1, -1]])
        return (places,), predictor.scores(histories)
    if kind == "lookup":
        ids = torch.tensor([[1, 5], [7, 0], [3, 20]])
        values = torch.tensor([[1.0, 2.0], [0.5, 0.0], [1.0, -1.0]])
        dense = torch.zeros(3, 24).scatter_(1, ids, values)
        return (ids, values), predictor.scores(dense)
    if kind == "pixels":
        pixels = torch.from_numpy(rng.integers(0, 256, (3, 1, 8, 8), dtype=np.uint8))
        return (pixels,), predictor.scores(pixels)
    width = predictor.shape.features
    assert width is not None
    x = torch.from_numpy(rng.normal(0, 100 if width == 8 else 1, (3, width)).astype(np.float32))
    return (x,), predictor.scores(x)


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_is_the_model(kind: str) -> None:
    result = result_of(kind)
    given, right = asked(kind, result)
    found = Scorer(result.predictor)(*given)
    scores = found if isinstance(found, torch.Tensor) else found[1]
    assert torch.allclose(scores, right, atol=1e-5)
    assert right.std() > 1e-3


@pytest.mark.parametrize("kind", ["own encoder", "pixels", "lookup", "attention", "buckets"])
def test_torch_loads_it_and_the_code_on_the_card_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of(kind)
    given, right = asked(kind, result)
    folder = so.export(result, "torch-export", tmp_path / "x")
    model = torch.export.load(folder / "model.pt2").module()
    for count in (3, 1):  # any batch
        found = model(*(part[:count] for part in given))
        scores = found if isinstance(found, torch.Tensor) else found[1]
        assert torch.allclose(scores, right[:count], atol=1e-5)
        if kind in ("own encoder", "pixels"):
            assert torch.allclose(found[0], result.embed(given[0])[:count], atol=1e-5)
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    names = [port["name"] for port in json.loads((folder / "model.json").read_text())["inputs"]]
    monkeypatch.chdir(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        exec(compile(code, "README.md", "exec"), dict(zip(names, given, strict=True)))
    best = capsys.readouterr().out.splitlines()[0].rpartition(" ")
    assert float(best[2]) == pytest.approx(float(right[0].max()), abs=1e-5)
    row = int(right[0].argmax()) + result.predictor.shape.first_class
    assert best[0] == result.predictor.classes.called(row)[1]


@needs_onnx
@pytest.mark.parametrize("kind", ["scaled features", "lookup", "attention"])
def test_onnxruntime_gives_the_same_scores(kind: str, tmp_path: Path) -> None:
    import onnxruntime

    result = result_of(kind)
    given, right = asked(kind, result)
    folder = so.export(result, "onnx", tmp_path / "x")
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    about = json.loads((folder / "model.json").read_text())
    assert [one.name for one in session.get_inputs()] == [port["name"] for port in about["inputs"]]
    assert [one.name for one in session.get_outputs()] == about["outputs"]
    for count in (3, 1):
        named = {
            port["name"]: part[:count].numpy() for port, part in zip(about["inputs"], given, strict=True)
        }
        found = dict(zip(about["outputs"], session.run(None, named), strict=True))
        assert np.allclose(found["scores"], right[:count].numpy(), atol=1e-5)


@needs_faiss
@pytest.mark.parametrize(("kind", "index"), [("scaled features", "ivf"), ("histories", "flat")])
def test_faiss_ranks_classes_as_the_run_does(kind: str, index: Any, tmp_path: Path) -> None:
    import faiss

    result = result_of(kind)
    given, right = asked(kind, result)
    folder = so.export(result, "faiss", tmp_path / "x", index=index)
    found = faiss.read_index(str(folder / "index.faiss"))
    query = torch.export.load(folder / "encoder.pt2").module()(*given)
    count = right.shape[1]
    assert found.ntotal == count
    scores, places = found.search(query.numpy(), count)
    assert np.allclose(scores, right.sort(descending=True).values.numpy(), atol=1e-5)
    assert np.allclose(right.gather(1, torch.from_numpy(places)).numpy(), scores, atol=1e-5)


def test_tensors_go_into_an_encoder_of_ones_own(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    result = result_of("own encoder")
    (x,), right = asked("own encoder", result)
    folder = so.export(result, "safetensors", tmp_path / "x")
    tensors = load_file(folder / "model.safetensors")
    fresh = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    fresh.load_state_dict(
        {name.removeprefix("encoder."): t for name, t in tensors.items() if name.startswith("encoder.")}
    )
    with torch.no_grad():
        scores = F.normalize(fresh(x)) @ tensors["classes"].T + tensors["prior"]
    assert torch.allclose(scores, right, atol=1e-5)


def test_classes_have_their_ids_and_names_and_the_card_its_figures(tmp_path: Path) -> None:
    result = result_of("scaled features")
    folder = so.export(result, "safetensors", tmp_path / "x")
    classes = json.loads((folder / "classes.json").read_text())
    assert classes == {"ids": list("012345"), "names": [f"class {i}" for i in range(6)]}
    card = (folder / "README.md").read_text()
    for said in ("`fedaws`", "`rows`", f"| this model | {result.metrics['P@1']:.2f} |", "## Privacy"):
        assert said in card
    items = json.loads(
        (so.export(result_of("attention"), "safetensors", tmp_path / "y") / "classes.json").read_text()
    )
    assert items["ids"][0] == "1"  # the padding is no class
    assert len(items["ids"]) == 12


def test_what_cannot_be_exported_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(so.UserError, match="this method scores classes by buckets; export to torch-ex"):
        so.export(result_of("buckets"), "faiss", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    with pytest.raises(so.UserError, match="to = 'onx': unknown; known: torch-export, onnx, faiss"):
        so.export(result_of("buckets"), "onx", tmp_path / "x")  # type: ignore[arg-type]
    with pytest.raises(so.UserError, match='only with to = "faiss"'):
        so.export(result_of("buckets"), "onnx", tmp_path / "x", index="flat")
    with pytest.raises(so.UserError, match="cannot export a int"):
        so.export(3, "onnx", tmp_path / "x")  # type: ignore[arg-type]

    class ByValue(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.one(x)
            return -found if float(found.sum()) > 1e9 else found

    one_by_one = {**QUICK, "method": {"name": "fedaws"}, "run": {"executor": "sequential"}}
    result = so.run(one_by_one, data=rows(), encoder=ByValue())
    with pytest.raises(so.UserError, match=r"the encoder cannot be exported .* take --to safetensors"):
        so.export(result, "torch-export", tmp_path / "x")
    if importlib.util.find_spec("onnxscript") is not None:
        with pytest.raises(
            so.UserError, match=r"the encoder cannot be exported \(.+\); take --to"
        ) as said:
            so.export(result, "onnx", tmp_path / "x")
        assert "\n" not in str(said.value)
    assert list(tmp_path.iterdir()) == []


def test_an_onnx_file_that_computes_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("onnxruntime", "onnxscript"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    whole = torch.onnx.export

    def spoiled(scorer: Any, *args: Any, **options: Any) -> Any:
        other = copy.deepcopy(scorer)
        other.classes.neg_()
        return whole(other, *args, **options)

    monkeypatch.setattr(torch.onnx, "export", spoiled)
    with pytest.raises(so.UserError, match="gives other scores than the trained one"):
        so.export(result_of("scaled features"), "onnx", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_the_command_exports_a_run_and_replaces_only_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = result_of("scaled features").save(tmp_path / "run")
    (tmp_path / "run-safetensors").mkdir()
    assert invoke(monkeypatch, "export", str(run), "--to", "safetensors", "--force") == 2
    assert "was not made by `spreadout export`" in capsys.readouterr().err
    (tmp_path / "run-safetensors").rmdir()
    assert invoke(monkeypatch, "export", str(run), "--to", "safetensors") == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "run-safetensors")
    assert invoke(monkeypatch, "export", str(run), "--to", "safetensors") == 2
    assert "exists; choose another --out" in capsys.readouterr().err
    assert invoke(monkeypatch, "export", str(run), "--to", "safetensors", "--force") == 0


def test_the_command_takes_the_runs_own_encoder_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = result_of("own encoder").save(tmp_path / "run")
    (tmp_path / "my_parts_of_export.py").write_text(
        "from torch import nn\n"
        "def encoder(): return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))\n"
        "small = nn.Linear(8, 8)\nnumber = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", asked("own encoder", result_of("own encoder"))[0][0].numpy())
    ask = ["predict", str(run), "--input", "x.npy", "--top", "2", "--json"]
    assert invoke(monkeypatch, *ask) == 2
    assert "--encoder MODULE:NAME" in capsys.readouterr().err
    assert invoke(monkeypatch, *ask, "--encoder", "my_parts_of_export:encoder") == 0
    found = json.loads(capsys.readouterr().out)
    right = result_of("own encoder").predict(Path("x.npy"), top=2)
    assert [[one["id"] for one in each] for each in found] == [[g.id for g in each] for each in right]
    named = {"small": "has no parameter", "number": "is a int", "nothing": "is nothing"}
    for name, complaint in named.items():
        assert invoke(monkeypatch, *ask, "--encoder", f"my_parts_of_export:{name}") == 2
        assert complaint in capsys.readouterr().err
    assert invoke(monkeypatch, *ask, "--encoder", "my_parts_of_export") == 2
    assert "write it as MODULE:NAME" in capsys.readouterr().err


def by_the_rule(text: str, rule: dict[str, Any]) -> np.ndarray:
    """What another program makes of a text that knows `model.json` alone."""
    assert (rule["normalization"], rule["letters"], rule["join"]) == ("NFKC", "full case folding", " ")
    plain = unicodedata.normalize("NFKC", text).casefold()
    alone = [range(int(first, 16), int(last, 16) + 1) for first, last in rule["words_of_one_letter"]]
    first, last = (int(side, 16) for side in rule["marks"])
    words, word, begun_alone = list[str](), "", False
    for c in plain:
        kind = unicodedata.category(c)
        by_itself = any(ord(c) in some for some in alone)
        mark = kind[0] == "M" and first <= ord(c) <= last
        if word and mark and (begun_alone or not by_itself):
            word += c
            continue
        if by_itself or begun_alone or not (c == "_" or kind[0] in "LN"):
            words += [word] if word else []
            word, begun_alone = "", False
        if c == "_" or kind[0] in "LN":
            word, begun_alone = word + c, by_itself
    words += [word] if word else []
    grams = [
        rule["join"].join(words[i : i + n]) for n in rule["ngrams"] for i in range(len(words) - n + 1)
    ]
    assert (rule["hash"], rule["encoding"]) == ("CRC-32", "UTF-8")
    counts = np.zeros(rule["buckets"])
    for gram in grams:
        counts[zlib.crc32(gram.encode("utf-8")) % rule["buckets"]] += 1
    assert (rule["value"], rule["norm"]) == ("1 + ln(count)", "L2")
    values = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0)
    return values / max(float(np.linalg.norm(values)), 1e-12)


TEXTS = [
    "", "Lost CARD, lost card!", "ｆｕｌｌ ﬁne straße_9 x²", "我的卡 丢了", "नमस्ते दुनिया", "မြန်မာစာ၊ ခို card",
    "สวัสดี 5 ครับ", "العَرَبِيَّة", "a\u0301b \u0301c \U0001f600 d", "カードをﾅくした",
    "a\u0e31b ก\u0301ข", "၊\u1036 x", "\U00011000\U00011001 y",
]  # fmt: skip


def test_a_model_of_texts_says_how_words_are_hashed(tmp_path: Path) -> None:
    frame = {"text": [f"{word} {i}" for i in range(6) for word in ("card", "cash")], "kind": [0, 1] * 6}
    train = so.FederatedDataset.from_frame(frame, label="kind")
    data = so.Splits("texts", train, so.Examples.from_frame(frame, label="kind", like=train))
    result = so.run(so.Experiment.of(QUICK), data=data, device="cpu")
    folder = so.export(result, "safetensors", tmp_path / "x")
    rule = json.loads((folder / "model.json").read_text())["hashed_words"]
    columns = result.predictor.columns
    assert columns is not None
    ours = columns.encode_texts(TEXTS).dense().values.numpy()
    for text, own in zip(TEXTS, ours, strict=True):
        np.testing.assert_allclose(by_the_rule(text, rule), own, atol=1e-6, err_msg=text)
    card = (folder / "README.md").read_text()
    for said in ("CRC-32", "8,192", "pair of neighbours", "NFKC", "1 + ln"):
        assert said in card, said


def test_a_model_of_hashed_features_says_by_which_function(tmp_path: Path) -> None:
    source = {"name": "synthetic", "classes": 6, "features": 300, "examples": 60, "test_examples": 20}
    data = {"source": source, "hash_features": 32, "hash_signs": True, "targets": "one"}
    result = so.run(so.Experiment.of({**QUICK, "data": data}), device="cpu")
    folder = so.export(result, "safetensors", tmp_path / "x")
    about = json.loads((folder / "model.json").read_text())
    rule = about["feature_hash"]
    raw = np.random.default_rng(0).normal(size=300)
    want = np.zeros(32)
    for i, value in enumerate(raw):
        bucket, sign = (
            (f["a"] * i + f["b"]) % rule["prime"] % f["buckets"] for f in (rule["bucket"], rule["sign"])
        )
        want[bucket] += (2 * sign - 1) * value
    ours = result.predictor.inputs.of([raw.tolist()]).examples.inputs["x"].take(torch.tensor([0]))
    np.testing.assert_allclose(ours[0].numpy(), want, atol=1e-5)
    card = (folder / "README.md").read_text()
    for number in (rule["bucket"]["a"], rule["bucket"]["b"], rule["sign"]["a"], rule["prime"], 32):
        assert str(number) in card
    plain = so.export(result_of("own encoder"), "safetensors", tmp_path / "y")
    found = json.loads((plain / "model.json").read_text())
    assert (found["hashed_words"], found["feature_hash"]) == (None, None)
