"""Parts of one's own, each in one file outside the package, do all that the built-in ones do."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from command import spreadout

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def python(code: str, *args: str, cwd: Path = EXAMPLES) -> str:
    """What a script prints in a process of its own, so that nothing it registers stays behind."""
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=cwd, check=False
    )
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
    assert found["examples"] + found["test"] == 3 * 60


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
