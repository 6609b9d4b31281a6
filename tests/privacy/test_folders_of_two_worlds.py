"""All that a private run leaves, in two worlds that differ in one client: nothing may tell them apart.

The clip is so small that updates and noise vanish beside the weights. What differs all the same does not
come from noised updates, and no ε covers it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import spreadout as so
from spreadout.data.fingerprint import fingerprint_of

CLIP = 1e-30
CLASSES, FEATURES = 5, 40
FREE = (  # what need not be alike: it takes as long as it takes, and what is signed follows from that
    "seconds",
    "peak_memory_bytes",
    "sha256",
    "check",
    "metrics.jsonl.bytes",
    "SHA256SUMS",
)


def world(*, other: bool, classes: bool = True) -> so.Splits:
    """Six clients; in the other world client 2 has much else, with `classes` of another class only."""
    rng = np.random.default_rng(0)
    client, y = np.repeat(np.arange(6), 8), np.arange(48) % CLASSES
    x = rng.normal(size=(48, FEATURES)).astype(np.float32)
    if other:
        kept = client != 2
        more = (rng.random((300, FEATURES)) < 0.05).astype(np.float32)
        x = np.concatenate([x[kept], more])
        y = np.concatenate([y[kept], np.full(300, 3) if classes else np.arange(300) % CLASSES])
        client = np.concatenate([client[kept], np.full(300, 2)])
    seen = np.random.default_rng(5).normal(size=(20, FEATURES)).astype(np.float32)
    train = so.FederatedDataset.from_arrays(x, y, client, classes=CLASSES)
    return so.Splits("worlds", train, so.Examples.from_arrays(seen, np.arange(20) % CLASSES))


def facts(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every value in some JSON, by where it is."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        yield f"{name}: {len(value)} of", None
        for key, inner in items:
            yield from facts(inner, f"{name}.{key}")
    else:
        yield name, value


def told_by(folder: Path) -> dict[str, Any]:
    """All facts of all files of a folder."""
    found: dict[str, Any] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(file.relative_to(folder))
        if file.suffix == ".json":
            found |= facts(json.loads(file.read_text()), name)
        elif file.suffix == ".jsonl":
            found |= facts([json.loads(line) for line in file.read_text().splitlines()], name)
        elif file.suffix == ".safetensors":
            found |= {f"{name}.{key}": tensor for key, tensor in load_file(file).items()}
        else:
            found[name] = file.read_bytes()
    return {name: fact for name, fact in found.items() if not name.endswith(FREE)}


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Facts that tell the worlds apart; of noised numbers what is beyond the noise."""

    def alike(a: Any, b: Any) -> bool:
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=1e6 * CLIP)
        return bool(a == b)

    nothing = object()
    names = sorted(one.keys() | other.keys())
    return [name for name in names if not alike(one.get(name, nothing), other.get(name, nothing))]


def left(tmp_path: Path, method: str, privacy: dict[str, Any] | None, *, classes: bool) -> list[Path]:
    """The folders of a run in each world."""
    values: dict[str, Any] = {"rounds": 3, "method": {"name": method}, "clients": {"local_steps": 2}}
    values |= {} if privacy is None else {"privacy": privacy}
    folders = [tmp_path / name for name in ("one", "other")]
    for other, folder in zip((False, True), folders, strict=True):
        so.run(
            so.Experiment.of(values), data=world(other=other, classes=classes), out=folder, device="cpu"
        )
    return folders


@pytest.mark.parametrize("model", ["local", "central", "distributed", "example"])
@pytest.mark.parametrize(("method", "classes"), [("fedavg", True), ("fedmlh", True), ("fedaws", False)])
def test_a_folder_tells_nothing_beside_noised_updates(
    method: str, classes: bool, model: str, tmp_path: Path
) -> None:
    """classes: where all rows are requested, which classes a client has is hidden too."""
    privacy = {"clip": CLIP, "noise": 5, "model": model}
    one, other = (told_by(path) for path in left(tmp_path, method, privacy, classes=classes))
    assert len(one) > 200
    assert differing(one, other) == []


@pytest.mark.parametrize("model", ["local", "central"])
@pytest.mark.parametrize(
    "used", [{}, {"split": "validation"}, {"keep": "best"}, {"patience": 9}, {"decode": "knn"}]
)
def test_validation_examples_tell_where_they_are_used_and_privacy_json_says_so(
    used: dict[str, Any], model: str, tmp_path: Path
) -> None:
    """Scores are exact: whoever knows all other labels sees by them whether the last one was right."""
    found = []
    for last in range(CLASSES):
        plain = world(other=False)
        labels = [*(np.arange(19) % CLASSES).tolist(), last]
        x = plain.test.inputs["x"].take(torch.arange(20)).numpy()
        held = so.Splits("worlds", plain.train, plain.test, so.Examples.from_arrays(x, labels))
        privacy = {"clip": CLIP, "noise": 5, "model": model}
        values = {"rounds": 2, "privacy": privacy, "eval": used, "chosen": []}
        asked = so.Experiment.of({**values, "data": {"validation_fraction": 0.1}})
        folder = tmp_path / str(last)
        so.run(asked, data=held, out=folder, device="cpu")
        found.append(told_by(folder))
    tells = any(differing(found[0], one) for one in found[1:])
    channel = found[0].get("privacy.json.channels.validation examples.status")
    assert (tells, channel) == ((True, "disclosed") if used else (False, None))


def test_a_plain_folder_tells_much(tmp_path: Path) -> None:
    one, other = (told_by(path) for path in left(tmp_path, "fedavg", None, classes=True))
    found = differing(one, other)
    assert "checkpoint/state.json.extra.data" in found
    assert any(name.startswith("details.json.clients.") for name in found)
    assert any(name.startswith("metrics.jsonl") and name.endswith(".loss") for name in found)


@pytest.mark.parametrize("private", [False, True])
def test_the_last_label_is_not_found_by_trying_what_the_data_may_have_been(
    private: bool, tmp_path: Path
) -> None:
    """A checkpoint had a digest of all examples: the one that fits was the true one."""
    privacy = {"clip": CLIP, "noise": 5} if private else None
    values: dict[str, Any] = {"rounds": 1, **({"privacy": privacy} if privacy else {})}
    data = world(other=False)
    so.run(so.Experiment.of(values), data=data, out=tmp_path / "run", device="cpu")
    said = json.loads((tmp_path / "run/checkpoint/state.json").read_text())["extra"]["data"]
    x, y = (data.train.columns[name].take(torch.arange(48)) for name in ("x", "y"))
    client = torch.repeat_interleave(torch.arange(6), 8)
    fitting = []
    for label in range(CLASSES):
        guess = torch.cat([y[:-1], torch.tensor([label])])
        tried = so.FederatedDataset.from_arrays(
            x.numpy(), guess.numpy(), client.numpy(), classes=CLASSES
        )
        if said == fingerprint_of(tried.columns, tried.offsets, tried.classes, {"y"}):
            fitting.append(label)
    assert fitting == ([] if private else [int(y[-1])])


def test_a_private_run_does_not_go_on_with_data_of_another_form(tmp_path: Path) -> None:
    values: dict[str, Any] = {"rounds": 4, "privacy": {"clip": CLIP, "noise": 5}}
    with pytest.raises(so.Interrupted):
        so.run(
            so.Experiment.of(values), data=world(other=False), out=tmp_path / "run", stop=lambda: True
        )
    train = world(other=False).train
    fewer = so.Splits("worlds", train.part(torch.arange(5)), world(other=False).test)
    with pytest.raises(so.UserError, match="was trained on other data than there is now"):
        so.resume(tmp_path / "run", data=fewer, device="cpu")
    assert so.resume(tmp_path / "run", data=world(other=False), device="cpu").summary["rounds"] == 4


def test_the_card_of_a_model_whose_sums_were_noised_has_no_counts(tmp_path: Path) -> None:
    """Clients of FedAwS request the rows of their classes: the bytes in all would count them."""
    privacy = {"clip": CLIP, "noise": 5, "model": "central"}
    told = []
    for folder in left(tmp_path, "fedaws", privacy, classes=True):
        told.append(told_by(so.export(folder, "safetensors", folder / "model-card")))
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["bytes"]["up"] > 0
    assert differing(*told) == []
    assert b"## Bytes" not in told[0]["README.md"]
