"""What noise against the server cannot hide, because requests name it: avoided, or said plainly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.config.choices import MANY_FEATURES
from spreadout.config.sound import prepared, sound
from spreadout.core.state import ServerState
from spreadout.data.columns import Sparse
from spreadout.runs.advice import named_to_the_server, wide_noise
from spreadout.runs.build import build_federation
from spreadout.runs.evidence import channels, evidence

NOISE = {"clip": 1, "noise": 9}


def words(width: int) -> so.Splits:
    """Four clients with two examples of three features each."""
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, width, 24).astype(np.int32))
    x = Sparse(ids, torch.ones(24), torch.arange(0, 25, 3), width)
    y, client = np.arange(8) % 4, np.arange(8) // 2
    train = so.FederatedDataset.from_arrays(x, y, client, classes=4)
    test = so.Examples({"x": x}, so.Examples.from_arrays(np.zeros((8, 1)), y).labels)
    return so.Splits("words", train, test)


def complete(width: int, **values: Any) -> so.Experiment:
    return sound(so.Experiment.of({"rounds": 1, **values}), words(width), {"data"})


@pytest.mark.parametrize(
    ("privacy", "chosen"),
    [
        (None, "lookup"),
        ({}, "mlp"),
        ({"model": "distributed"}, "mlp"),
        ({"model": "example"}, "mlp"),
        ({"model": "central"}, "lookup"),  # whose server is trusted, and sees every update anyway
    ],
)
def test_no_encoder_is_chosen_that_names_features_to_whom_they_are_to_be_hidden_from(
    privacy: dict[str, Any] | None, chosen: str
) -> None:
    sections = {} if privacy is None else {"privacy": {**NOISE, **privacy}}
    assert complete(MANY_FEATURES, **sections).model.encoder == chosen
    assert complete(MANY_FEATURES - 1, **sections).model.encoder == "mlp"


@pytest.mark.parametrize("model", ["local", "central"])
@pytest.mark.parametrize(
    ("method", "encoder", "named"),
    [
        ("fedavg", "mlp", []),
        ("fedavg", "lookup", ["features"]),
        ("fedaws", "mlp", ["classes"]),
        ("fedaws", "lookup", ["classes", "features"]),
    ],
)
def test_a_run_says_at_its_start_what_requests_name(
    method: str, encoder: str, named: list[str], model: str
) -> None:
    method_values: dict[str, Any] = {"name": method, **({"merge": "sum"} if model == "central" else {})}
    values = {
        "method": method_values,
        "model": {"encoder": encoder},
        "privacy": {**NOISE, "model": model},
    }
    e = complete(50, **values)
    f = build_federation(e, words(50), torch.device("cpu"))
    said = named_to_the_server(f)
    if model == "central" or not named:
        assert said is None
        return
    assert said is not None
    assert f"name the {' and '.join(named)} that they have" in said
    assert ("model.encoder" in said) == ("features" in named)
    status = {
        name: channels(f)[place].status for name, place in (("classes", "rows"), ("features",) * 2)
    }
    assert [name for name, one in status.items() if one == "disclosed"] == named


def test_rows_that_are_sent_back_are_among_what_neighbours_share() -> None:
    """Two clients may request the same rows and send back others: no noise hides that."""
    for negatives, said in ((0, "that requests the same rows"), (2, "requests and sends back the same")):
        e = complete(50, method={"name": "fedaws", "negatives": negatives}, privacy=NOISE)
        f = build_federation(e, words(50), torch.device("cpu"))
        found = evidence(f, ServerState(0, *f.model.initial(f.seed, f.device)))
        assert said in found["adjacency"]


def test_a_run_says_when_noise_falls_on_very_many_weights() -> None:
    for width, encoder, privacy, warned in (
        (MANY_FEATURES, "mlp", NOISE, True),
        (MANY_FEATURES - 1, "mlp", NOISE, False),
        (MANY_FEATURES, "lookup", NOISE, False),
        (MANY_FEATURES, "mlp", None, False),
    ):
        sections = {} if privacy is None else {"privacy": privacy}
        e = complete(width, model={"encoder": encoder, "hidden": [], "dim": 2}, **sections)
        said = wide_noise(build_federation(e, words(width), torch.device("cpu")))
        assert (said is not None) == warned
        assert said is None or "16,384 features" in said


@pytest.mark.parametrize(("loss", "named"), [("batch_softmax", True), ("global_softmax", False)])
def test_of_histories_it_names_items_and_the_loss_that_hides_them(
    loss: str, named: bool, tmp_path: Path
) -> None:
    path = tmp_path / "events.csv"
    rows = [f"{user},{(user + 3 * time) % 12},{time}" for user in range(20) for time in range(9)]
    path.write_text("\n".join(["user,item,time", *rows, ""]))
    values = {"data": {"source": "interactions", "path": path}, "privacy": NOISE}
    e = so.Experiment.of({**values, "method": {"name": "dual_encoder", "loss_form": loss}})
    said = named_to_the_server(build_federation(*prepared(e), torch.device("cpu")))
    assert (said is not None) == named
    assert said is None or ("name the items" in said and 'loss_form = "global_softmax"' in said)
