"""Those who are told what a run records hear what `metrics.jsonl` says, and nothing else."""

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

import spreadout as so
from command import invoke
from spreadout.runs import tracking
from spreadout.runs.tracking import numbers_of

Told = dict[str, list[tuple[int, float]]]


def experiment(*names: str, rounds: int = 3) -> so.Experiment:
    values = {"name": "mine", "rounds": rounds, "data": {"source": "digits"}, "eval": {"every": 1}}
    return so.Experiment.of({**values, "run": {"track": list(names), "track_project": "shelf"}})


def recorded(folder: Path) -> Told:
    """What `metrics.jsonl` says, by name."""
    found: Told = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        for name, value in numbers_of(record).items():
            found.setdefault(name, []).append((record["round"], value))
    return found


def interrupted(folder: Path, *names: str) -> None:
    """A run that was stopped after its second round, and resumed."""
    asked = iter([False, True])
    with pytest.raises(so.Interrupted):
        so.run(experiment(*names), out=folder, stop=lambda: next(asked))
    so.resume(folder)
    assert [line[0] for line in recorded(folder)["P@1"]] == [0, 1, 2, 3]


def rounded(told: Told) -> Told:
    return {
        name: [(step, pytest.approx(v, rel=1e-6)) for step, v in values] for name, values in told.items()
    }  # type: ignore[misc]


def test_tensorboard_hears_every_number_once_though_the_run_was_resumed(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    interrupted(tmp_path / "run", "tensorboard")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    told = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert told == rounded(recorded(tmp_path / "run"))
    (text,) = events.Tensors("config/text_summary")
    assert b'name = "mine"' in text.tensor_proto.string_val[0]


def test_mlflow_hears_it_and_the_config_in_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    interrupted(tmp_path / "run", "mlflow")
    client = MlflowClient()
    found = client.get_experiment_by_name("shelf")
    assert found is not None
    (run,) = client.search_runs([found.experiment_id])
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")
    assert run.data.params["rounds"] == "3"
    assert run.data.params["data.source.name"] == "digits"
    for name, values in recorded(tmp_path / "run").items():
        heard = client.get_metric_history(run.info.run_id, name.replace("@", "_at_"))
        assert [(one.step, one.value) for one in heard] == values


def test_wandb_hears_it_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off"}.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "run"
    so.run(experiment("wandb", rounds=2), out=folder)
    wandb.teardown()  # its process has written everything when it is gone
    (log,) = folder.glob("wandb/offline-run-*/*.wandb")
    known = json.loads((folder / "tracking.json").read_text())["wandb"]
    assert log.name == f"run-{known}.wandb"
    store, told, named = DataStore(), {}, None
    store.open_for_scan(str(log))
    while (data := store.scan_data()) is not None:
        record = Record()
        record.ParseFromString(data)
        named = (record.run.project, record.run.display_name) if record.run.run_id else named
        row = {
            item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item
        }
        for name in row.keys() - {"round"} if row else ():
            if not name.startswith("_"):
                told.setdefault(name, []).append((row["round"], row[name]))
    assert named == ("shelf", "mine")
    assert told == recorded(folder)


class Breaks:
    def log(self, round: int, numbers: Any) -> None:
        if round == 1:
            raise ConnectionError("no answer\nfrom there")

    def close(self, finished: bool) -> None: ...


def test_one_that_fails_in_mid_run_is_warned_of_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tracking.OPEN, "wandb", lambda *_: (Breaks(), None))

    class Hears(so.Observer):
        said: list[str] = []  # noqa: RUF012

        def warned(self, text: str) -> None:
            self.said.append(text)

    result = so.run(experiment("wandb"), observer=Hears())
    assert result.metrics == so.run(experiment()).metrics
    assert Hears.said == ["run.track: wandb is told no more (no answer)"]


def test_one_that_cannot_begin_stops_the_run_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> Any:
        raise RuntimeError("no account\nsee there")

    with pytest.raises(so.UserError, match=r"run\.track: tensorboard writes into the run folder; give"):
        so.run(experiment("tensorboard"))
    monkeypatch.setitem(tracking.OPEN, "mlflow", refuses)
    with pytest.raises(so.UserError, match=r"^run\.track: mlflow: no account$"):
        so.run(experiment("mlflow"))
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(so.UserError, match=r"wandb is not installed; pip install 'spreadout\[wandb\]'"):
        so.run(experiment("wandb"))


@pytest.mark.parametrize("text", ["{", "[1]", '{"mlflow": 3}'])
def test_names_that_are_damaged_are_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "tracking.json").write_text(text)
    tracker = tracking.Tracker(["mlflow"], tmp_path, lambda _: None)
    with pytest.raises(so.UserError, match=r"tracking\.json: is damaged; put it back, or delete it"):
        tracker.started(experiment("mlflow"), 1)
    assert (tmp_path / "tracking.json").read_text() == text


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    out = tmp_path / "run"
    assert invoke(monkeypatch, "run", "digits-fedaws", "rounds=1", "--track", "tensorboard", "--out", str(out)) == 0  # fmt: skip
    assert so.Experiment.load(out / "config.toml").run.track == ["tensorboard"]
    assert list(out.glob("tensorboard/events.*"))
    capsys.readouterr()
    assert invoke(monkeypatch, "run", "digits-fedaws", "--track", "tensorbord") == 2
    assert "run.track.0 = 'tensorbord': unknown; did you mean 'tensorboard'?" in capsys.readouterr().err


def test_wandb_without_an_account_is_told_of_the_offline_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    def asks_for_a_key(*_: object) -> NoReturn:
        raise RuntimeError("No API key configured. Use `wandb login` to log in.")

    monkeypatch.setitem(tracking.OPEN, "wandb", asks_for_a_key)
    with pytest.raises(so.UserError, match=r"No API key .* set WANDB_MODE=offline"):
        so.run(experiment("wandb"))
