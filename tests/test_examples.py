"""Parts of one's own, each in one file outside the package, do all that the built-in ones do."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forked
from forked import spreadout

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def python(code: str, *args: str, cwd: Path = EXAMPLES) -> str:
    """What a script prints in a process of its own, so that nothing it registers stays behind."""
    done = forked.python(code, *args, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_source_of_ones_own_is_listed_described_and_deals_as_it_says() -> None:
    listed = spreadout("data", "list", "--import", "own_source", cwd=EXAMPLES)
    assert "  spiral " in listed.stdout
    assert "points on the arms of a spiral" in listed.stdout
    shown = spreadout(
        "data", "describe", "spiral", "source.arms=3", "source.people=4", "--json", "--import", "own_source",
        cwd=EXAMPLES,
    )  # fmt: skip
    found = json.loads(shown.stdout)
    assert (found["clients"], found["classes"]) == (4, 3)  # by_user is the source's own default
    held = found.get("validation") or 0
    assert found["examples"] + found["test"] + held == 3 * 60


@pytest.mark.parametrize(
    ("part", "module", "override", "says"),
    [
        ("source", "own_source", "data.source=spirals", "data.source = 'spirals': unknown; did you mean 'spiral'?"),
        ("source", "own_source", "data.source={name='spiral', arm=3}", "data.source.arm: unknown key; did you mean 'arms'?"),
        ("partition", "own_partition", "data.partition=power", "data.partition = 'power': unknown; did you mean 'power_law'?"),
        ("partition", "own_partition", "data.partition={name='power_law', clients=0}", "data.partition.clients = 0: must be at least 1"),
        ("encoder", "own_encoder", "model.encoder=shortcuts", "model.encoder = 'shortcuts': unknown; did you mean 'shortcut'?"),
        ("encoder", "own_encoder", "model={encoder='shortcut', layers=2}", "model.layers = 2: encoder = 'shortcut' has no use for it"),
    ],
)  # fmt: skip
def test_a_slip_is_answered_in_one_line_as_for_built_in_parts(
    part: str, module: str, override: str, says: str
) -> None:
    done = spreadout("run", "digits-fedaws", override, "--import", module, cwd=EXAMPLES)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_first_15_minutes_of_a_newcomer(tmp_path: Path) -> None:
    """From a table to a model that answers over HTTP, in an empty folder, as a person would type it."""
    pytest.importorskip("fastapi")
    pytest.importorskip("onnx")
    command = tmp_path / "bin" / "spreadout"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spreadout "$@"\n')
    command.chmod(0o755)
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        ["bash", str(EXAMPLES / "first_15_minutes.sh")],
        cwd=tmp_path / "empty",
        env={**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"^P@1 +([\d.]+) after 40 rounds", done.stdout, re.MULTILINE)
    assert found is not None
    assert float(found[1]) > 85
    summary = json.loads((tmp_path / "empty" / "runs" / "wine" / "summary.json").read_text())
    assert (summary["clients"], summary["classes"]) == (3, 3)
    answers = re.findall(r"^over HTTP: (.*)$", done.stdout, re.MULTILINE)
    assert [ast.literal_eval(answer)["id"] for answer in answers] == ["Barolo", "Barolo"]
    assert (tmp_path / "empty" / "wine.html").is_file()
    assert list((tmp_path / "empty" / "wine-onnx").glob("*.onnx"))
    assert done.stdout.endswith("done\n")


def test_a_part_is_unknown_without_its_import() -> None:
    done = spreadout("run", "digits-fedaws", "data.partition=power_law", cwd=EXAMPLES)
    assert "data.partition = 'power_law': unknown" in done.stderr


def test_a_partition_of_ones_own_deals_every_example_once_and_by_its_seed() -> None:
    code = """
import json, sys
import spreadout as so
values = {"imports": ["own_partition"], "data": {"partition": json.loads(sys.argv[1])}}
one, other = (so.load_data(so.Experiment.of(values).data, seed).train for seed in (0, 1))
print(json.dumps([one.sizes.tolist(), other.sizes.tolist()]))
"""
    even, _ = json.loads(python(code, '{"name": "power_law", "clients": 4, "exponent": 0}'))
    steep, redrawn = json.loads(python(code, '{"name": "power_law", "clients": 4, "exponent": 3}'))
    again, fixed = json.loads(
        python(code, '{"name": "power_law", "clients": 4, "exponent": 3, "seed": 0}')
    )
    assert {sum(sizes) for sizes in (even, steep, redrawn, fixed)} == {1257}  # all that is not held out
    assert max(even) < 1.2 * 1257 / 4
    share = 1 / sum(i**-3 for i in range(1, 5))
    assert steep[0] / 1257 == pytest.approx(share, abs=0.04)
    assert steep != redrawn
    assert steep == again == fixed


def test_a_run_with_an_encoder_of_ones_own_can_be_resumed_and_asked(tmp_path: Path) -> None:
    """Each in a process of its own: the run folder alone says which module to import."""
    code = """
import sys
import spreadout as so
class Stop(so.Observer):
    def round_done(self, report):
        if sys.argv[2] == "stopped" and report.round == 3:
            raise SystemExit(0)
settings = ["model.encoder=shortcut", "model.width=6", "rounds=6", "run.checkpoint_every=1", "imports=['own_encoder']"]
so.run(so.Experiment.load("digits-fedaws", settings), out=sys.argv[1], observer=Stop())
"""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    python(code, str(whole), "whole")
    python(code, str(stopped), "stopped")
    assert not (stopped / "summary.json").exists()
    resumed = spreadout("resume", str(stopped), cwd=EXAMPLES)
    assert resumed.returncode == 0, resumed.stderr
    ours, theirs = (
        (folder / "model" / "weights.safetensors").read_bytes() for folder in (whole, stopped)
    )
    assert ours == theirs
    np.save(tmp_path / "x.npy", np.zeros((2, 64), dtype=np.float32))
    asked = spreadout(
        "predict", str(stopped), "--input", str(tmp_path / "x.npy"), "--top", "3", cwd=EXAMPLES
    )
    assert asked.returncode == 0, asked.stderr
    lost = spreadout("predict", str(stopped), "--input", str(tmp_path / "x.npy"), cwd=tmp_path)
    assert lost.returncode == 2
    assert "import of own_encoder: No module named 'own_encoder'" in lost.stderr


def test_a_method_of_ones_own_moves_a_row_away_from_its_nearest_and_no_other() -> None:
    code = """
import json, torch
import spreadout as so
from own_method import NearestOnly
rows = torch.nn.functional.normalize(torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.0]]))
state = so.ServerState(0, {}, {"classes": rows.clone()})
class Touched:
    ids = torch.tensor([0])
context = so.ServerContext(seed=0, noise_seed=0, round=0, client_lr={}, touched={"classes": Touched})
NearestOnly(rate=0.05).server_step(state, None, context)
moved = state.tables["classes"]
print(json.dumps([(rows @ rows.T).tolist(), (moved @ moved.T).tolist(), moved[2].tolist()]))
"""
    before, after, third = json.loads(python(code))
    assert after[0][1] < before[0][1]  # the pair is further apart
    assert third == [-1.0, 0.0]  # neither a participant nor its nearest
    assert [after[i][i] for i in range(3)] == pytest.approx([1.0] * 3)  # on the sphere


def test_a_metric_of_ones_own_is_the_share_of_the_worst_class() -> None:
    code = """
import torch
import spreadout as so
from own_metric import worst_class
labels = so.Ragged.from_lists([[0], [0], [2], [2], [2], [0, 2]])
first = torch.tensor([[0], [2], [2], [2], [0], [2]])
print(worst_class(so.MetricInputs.of(labels, ranking=first)))
"""
    assert float(python(code)) == pytest.approx(100 / 3)  # class 0: one of three; class 2: three of four


def test_a_drift_correction_of_ones_own_with_its_whole_share_is_scaffold() -> None:
    code = """
import sys, torch
import spreadout as so
import own_drift
base = so.Experiment.of({"rounds": 3, "method": {"name": "fedavg"}, "clients": {"lr": 0.05}})
def trained(drift):
    clients = base.clients.model_copy(update={"drift": drift})
    return so.run(base.model_copy(update={"clients": clients})).state
whole, half = own_drift.SlowScaffold(share=1.0), own_drift.SlowScaffold(share=0.5)
scaffold = so.Experiment.of({"clients": {"drift": "scaffold"}}).clients.drift
one, other, slow = trained(whole), trained(scaffold), trained(half)
print(all(torch.equal(one.dense[n], other.dense[n]) for n in one.dense), torch.equal(one.tables["classes"], slow.tables["classes"]))
"""
    assert python(code) == "True False\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of nothing but parts of one's own, from the command line."""
    folder = tmp_path_factory.mktemp("own") / "run"
    done = spreadout(
        "run", "spiral-nearest", "rounds=4", "run.log_requests=true", "--import", "own_preset", "--out", str(folder), "--json",
        cwd=EXAMPLES,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["method"], summary["dataset"], summary["clients"]) == ("nearest-only", "spiral", 6)
    assert list(summary["metrics"]) == ["P@1", "worst class"]
    assert summary["client_state_bytes"] > 0  # of slow-scaffold
    return folder


def test_a_preset_of_ones_own_is_listed_described_planned_and_watched() -> None:
    listed = spreadout("presets", "--json", "--import", "own_preset", cwd=EXAMPLES)
    about = json.loads(listed.stdout)["spiral-nearest"]
    assert about.startswith("Points on a spiral, each arm a class")
    known = ("spiral-nearest", "--json", "--import", "own_preset")
    described = json.loads(spreadout("data", "describe", *known, cwd=EXAMPLES).stdout)
    assert (described["clients"], described["classes"]) == (6, 3)
    planned = json.loads(spreadout("doctor", "--plan", *known, cwd=EXAMPLES).stdout)
    assert (planned["rounds"], planned["clients"]) == (20, 6)
    watched = json.loads(spreadout("audit", *known, "--rounds", "2", cwd=EXAMPLES).stdout)
    assert [look["requests"] for look in watched] == [1, 2]
    unknown = spreadout("run", "spiral-nearest", cwd=EXAMPLES)
    assert "spiral-nearest: no such file, and no preset of this name" in unknown.stderr


def test_a_run_of_ones_own_parts_is_reported_audited_and_asked(trained: Path, tmp_path: Path) -> None:
    """The run folder alone says which modules to import."""
    page = tmp_path / "page.html"
    assert spreadout("report", str(trained), "-o", str(page), cwd=EXAMPLES).returncode == 0
    assert "worst class (%)" in page.read_text()  # the module says its unit
    looks = json.loads(spreadout("audit", str(trained), "--json", cwd=EXAMPLES).stdout)
    assert looks[-1]["requests"] == 4
    drawn = spreadout("confusion", str(trained), "-o", str(tmp_path / "c.html"), cwd=EXAMPLES)
    assert drawn.returncode == 0, drawn.stderr
    np.save(tmp_path / "x.npy", np.zeros((2, 2), dtype=np.float32))
    asked = spreadout(
        "predict", str(trained), "--input", str(tmp_path / "x.npy"), "--json", cwd=EXAMPLES
    )
    assert [sorted(guess["id"] for guess in each) for each in json.loads(asked.stdout)] == [
        ["0", "1", "2"]
    ] * 2
    code = "import sys, spreadout as so; print(so.load(sys.argv[1]))"
    assert python(code, str(trained)) == "<Predictor: 2 numbers in, 3 classes>\n"


def test_an_interrupted_run_of_ones_own_parts_ends_as_an_uninterrupted_one(
    trained: Path, tmp_path: Path
) -> None:
    code = """
import sys
import own_preset, spreadout as so
experiment = so.Experiment.load("spiral-nearest", ["rounds=4", "run.log_requests=true", "run.checkpoint_every=1"])
try:
    so.run(experiment, out=sys.argv[1], stop=lambda: True)
except so.Interrupted as stopped:
    print(stopped.round)
"""
    assert python(code, str(tmp_path / "run")) == "1\n"
    resumed = spreadout("resume", str(tmp_path / "run"), cwd=EXAMPLES)
    assert resumed.returncode == 0, resumed.stderr
    ours, theirs = (
        (run / "model" / "weights.safetensors").read_bytes() for run in (trained, tmp_path / "run")
    )
    assert ours == theirs


def test_a_comparison_of_ones_own_preset_can_be_continued_by_its_hint(tmp_path: Path) -> None:
    call = [
        "compare", "spiral-nearest", "digits-fedaws", "--out", str(tmp_path / "cmp"), "--set", "rounds=2",
        "--set", 'eval.metrics=["P@1", "worst class"]', "--import", "own_preset",
    ]  # fmt: skip
    stopping = """
import sys
from spreadout.cli import main as cli
sys.argv = ["spreadout", *sys.argv[1:]]
cli.Stop.requested = lambda self: True
cli.main()
"""
    stopped = forked.python(stopping, *call, cwd=EXAMPLES)
    assert stopped.returncode == 130, stopped.stderr
    hint = shlex.split(stopped.stderr.partition("resume with: ")[2])
    done = spreadout(*hint[1:], "--json", cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr
    assert [arm["name"] for arm in json.loads(done.stdout)] == ["spiral-nearest", "digits-fedaws"]
    assert all("worst class" in arm["metrics"] for arm in json.loads(done.stdout))


def test_a_deployment_of_ones_own_parts_finds_what_a_simulation_does(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    code = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import own_preset, torch, spreadout as so
from deployment import assert_same
from memory_grid import deployed, served
experiment = so.Experiment.load("spiral-nearest", ["rounds=3", "deploy.nodes=2", "clients.input_dropout=0", "clients.local_epochs=1"])
data, out = so.load_data(experiment.data), Path(sys.argv[2])
result = served(deployed(data, experiment, out / "project"), data, experiment, out / "run")
assert_same(so.run(experiment, data=data), result)
print(result.summary["method"], result.summary["rounds"])
"""
    support = Path(__file__).resolve().parent / "support"
    assert python(code, str(support), str(tmp_path)).endswith("nearest-only 3\n")


def test_a_project_for_deployment_has_ones_own_modules_in_it(tmp_path: Path) -> None:
    """So that Flower brings them to nodes, which have spreadout and nothing else."""
    pytest.importorskip("flwr")
    project = tmp_path / "project"
    done = spreadout(
        "deploy", "init", str(project), "--config", "spiral-nearest", "--import", "own_preset",
        "--import", "wave", cwd=EXAMPLES,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    own = {
        "own_preset",
        "own_source",
        "own_partition",
        "own_encoder",
        "own_method",
        "own_metric",
        "own_drift",
    }
    assert {path.stem for path in project.glob("*.py")} == own  # wave is Python's own
    assert (project / "own_drift.py").read_text() == (EXAMPLES / "own_drift.py").read_text()
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from deployed.client import app
import spreadout as so
print(type(so.Experiment.load(sys.argv[1] + "/deployed/experiment.toml").clients.drift).__name__)
"""
    assert python(code, str(project), cwd=tmp_path) == "SlowScaffold\n"


@pytest.mark.parametrize(
    ("module", "text", "says"),
    [
        ("nosuch", "", "import of nosuch: No module named 'nosuch'; is it installed, or in "),
        ("torn", "x = (", "import of torn: SyntaxError: '(' was never closed (torn.py, line 1)"),
        ("lacking", "\nimport nosuch", "import of lacking: ModuleNotFoundError: No module named 'nosuch' ("),
        ("wrong", "\n\n1 / 0", "wrong.py:3)"),
        ("taken", "import spreadout as so\nso.register_preset('digits-demo', 'rounds = 1')", "import of taken: preset 'digits-demo': spreadout has that name"),
        ("file.py", "", "import of file.py: is the name of a file; give the module's own, file"),
        ("", "", "--import: needs the name of a module, such as --import my_module"),
    ],
)  # fmt: skip
def test_a_module_that_cannot_be_imported_is_one_line(
    tmp_path: Path, module: str, text: str, says: str
) -> None:
    if text:
        (tmp_path / f"{module}.py").write_text(text)
    done = spreadout("presets", "--import", module, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
