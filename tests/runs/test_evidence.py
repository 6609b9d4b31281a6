"""`privacy.json` and its page: what each channel gives away, as the run really was."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import spreadout as so
from spreadout.cli.main import app
from spreadout.privacy.accounting import epsilon_of
from toys import several_classes, tagged

TOY = {"rounds": 2, "model": {"hidden": [5], "dim": 4}, "clients": {"per_round": 3}, "chosen": []}


def written(folder: Path, data: so.Splits | None = None, **more: object) -> dict[str, object]:
    so.run({**TOY, **more}, data=data or several_classes(), out=folder)
    return json.loads((folder / "privacy.json").read_text())  # type: ignore[no-any-return]


def status(found: dict[str, object]) -> dict[str, str]:
    return {name: one["status"] for name, one in found["channels"].items()}  # type: ignore[attr-defined]


def test_a_private_run_protects_values_and_says_what_it_does_not(tmp_path: Path) -> None:
    found = written(tmp_path / "run", privacy={"clip": 1.0, "noise": 5.0, "delta": 1e-7})
    assert status(found) == {
        "values": "protected",
        "loss": "absent",
        "n_k": "absent",
        "label counts": "absent",
        "label sets": "absent",
        "feature moments": "absent",
        "positives": "absent",
        "rows": "disclosed",
        "features": "absent",
        "run folder": "absent",
        "presence": "disclosed",
        "timing": "disclosed",
    }
    assert "requests the same rows" in str(found["adjacency"])  # or the rows alone tell them apart
    releases = {int(count): clients for count, clients in found["releases"].items()}  # type: ignore[attr-defined]
    assert sum(releases.values()) == 6
    assert sum(count * clients for count, clients in releases.items()) == 2 * 3
    told = {one["delta"]: one["epsilon"] for one in found["epsilon"]}  # type: ignore[attr-defined]
    assert told[1e-7] == pytest.approx(epsilon_of(5.0, max(releases), 1e-7))
    assert found["guarantee"] == found["setting"] == "simulated: no guarantee"
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [one["loss"] for one in records] == [None] * len(records)
    assert records[0]["epsilon"] == 0.0
    assert records[-1]["epsilon"] == pytest.approx(told[1e-7])


@pytest.mark.parametrize("model", ["local", "central", "distributed", "example"])
def test_a_private_run_keeps_no_counts_of_its_clients_data(model: str, tmp_path: Path) -> None:
    """What `privacy.json` calls absent is not in the files beside it, and the page copes."""
    folder = tmp_path / "run"
    steps = {"batch": 3, "lr": 0.3, "local_steps": 2}
    private = {"model": model, "clip": 1.0, "noise": 5.0}
    written(folder, privacy=private, rounds=1, clients=steps, eval={"references": True})
    details, summary = (json.loads((folder / f"{n}.json").read_text()) for n in ("details", "summary"))
    assert (details["clients"], details["by_frequency"]) == (None, [])
    assert set(details["classes"]["trained"]) == {0}
    assert summary["references"] == {}
    assert "without noise" in summary["references_note"]
    drawn = CliRunner().invoke(app, ["report", str(folder), "-o", str(tmp_path / "page.html")])
    assert drawn.exit_code == 0, drawn.output


@pytest.mark.parametrize(
    ("method", "disclosed"),
    [
        ({"name": "fedaws", "prior": 0}, {"values", "loss", "n_k", "rows"}),
        ({"name": "fedaws"}, {"values", "loss", "n_k", "rows", "label counts"}),
        ({"name": "flag", "prior": 0}, {"values", "loss", "n_k", "rows", "positives"}),
        ({"name": "fedavg"}, {"values", "loss", "n_k"}),
        ({"name": "fedalc"}, {"values", "loss", "n_k", "rows", "label sets"}),
        ({"name": "fedalc", "dummies": 3}, {"values", "loss", "rows", "label sets"}),
        ({"name": "centralized"}, {"examples"}),
    ],
    ids=["own rows", "prior", "flag", "fedavg", "fedalc", "dummies", "centralized"],
)
def test_without_privacy_what_a_method_asks_for_is_disclosed(
    method: dict[str, object], disclosed: set[str], tmp_path: Path
) -> None:
    data = tagged() if method["name"] == "fedalc" else None
    central = method["name"] == "centralized"
    clients = {} if central else TOY["clients"]
    found = written(tmp_path / "run", data, rounds=1, method=method, clients=clients)
    always = set() if central else {"presence", "timing"}
    assert {name for name, one in status(found).items() if one == "disclosed"} == disclosed | always
    assert str(found["guarantee"]).startswith("none: ")
    assert ("the same rows" in str(found["adjacency"])) == ("rows" in disclosed)
    assert found["epsilon"] == []


def test_the_page_says_it_in_words_and_the_terminal_that_it_is_simulated(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = ["rounds=1", "privacy.clip=1", "privacy.noise=5"]
    told = CliRunner().invoke(app, ["run", "digits-fedaws", *settings, "--out", str(folder)])
    assert told.exit_code == 0, told.output
    assert "simulated: no guarantee" in " ".join(told.output.split())
    assert "none with [privacy]: they are made of the training data" in " ".join(told.output.split())
    drawn = CliRunner().invoke(app, ["report", str(folder), "-o", str(tmp_path / "page.html")])
    assert drawn.exit_code == 0, drawn.output
    page = (tmp_path / "page.html").read_text()
    assert "<th scope=row>Guarantee</th><td>Simulated: no guarantee. All data was" in page
    assert " at δ = 1e-06 (simulated: no guarantee)" in page  # of the overview
    assert "ε spent (simulated: no guarantee)" in page
    assert "times as likely with this data" in page
    assert "How many examples each client has" in page
    (folder / "privacy.json").write_text("{}")
    drawn = CliRunner().invoke(app, ["report", str(folder), "-o", str(tmp_path / "page.html")])
    assert drawn.exit_code != 0  # it is one of the files that are checked
