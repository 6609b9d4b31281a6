"""Documents say what is so: their code runs, their links lead somewhere, their numbers are the files'."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import forked
from spreadout.config.experiment import Experiment
from spreadout.runs.compare import Suite

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_readmes_python_example_does_what_it_claims(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(block.strip().splitlines()) <= 16  # it is said to be short
    exec(compile(block, "README.md", "exec"), {})
    found = re.findall(
        r"([\w-]+) \{'P@1': ([\d.]+)\} largest cosine (-?[\d.]+)", capsys.readouterr().out
    )
    (first, first_score, first_cosine), (second, second_score, second_cosine) = found
    assert (first, second) == ("baseline-1", "fedaws")
    assert float(second_score) > float(first_score) + 5
    assert float(first_cosine) > 0.85
    assert float(second_cosine) < 0.3


def test_the_data_pages_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "data.md").read_text(), re.DOTALL)
    exec(compile(block, "data.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["26 50", "[3 3]", "tensor([0, 2])"]


def test_the_references_pages_python_example_runs() -> None:
    (block,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "references.md").read_text(), re.DOTALL
    )
    names: dict[str, Any] = {}
    exec(compile(block, "references.md", "exec"), names)
    assert list(names["found"]) == ["most frequent", "ridge", "nearest neighbours"]
    assert names["oracle"].name == "nearest neighbours"  # it has 97.6


def test_the_python_pages_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "python.md", "exec"), names)
    assert names["result"].summary["method"] == "fedaws"
    assert names["scores"][-1] == (30, names["result"].metrics["P@1"])
    assert names["axes"].get_ylabel() == "loss"
    assert names["early"].summary["rounds"] == 3
    assert names["best"].score == max(record["P@1"] for record in names["again"].history)
    assert names["again"].metrics == names["result"].metrics  # the default method is fedaws
    assert (tmp_path / "runs" / "mine" / "metrics.jsonl").is_file()


def test_the_page_on_use_gives_the_scores_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "use.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(block, "use.md", "exec"), names)
    result, x, y, scores = (names[name] for name in ("result", "x", "y", "scores"))
    right = 100 * float((scores.argmax(1).numpy() == y).mean())
    assert right == pytest.approx(result.metrics["P@1"], abs=1e-6)
    assert right > 90
    assert names["again"].predict(x, 5) == result.predict(x, 5)
    assert names["vectors"].shape == (300, 16)


def test_numbers_in_documents_are_those_of_the_result_files() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "benchmarks.quote", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text())
    for link in links:
        target = ROOT / link.lstrip("/") if link.startswith("/") else document.parent / link
        assert target.exists(), f"{document.name} links to {link}"


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_a_link_that_is_called_by_a_page_leads_to_that_page(document: Path) -> None:
    for called, link in re.findall(r"\[([\w./-]+\.md)\]\(([^)#]+)", document.read_text()):
        assert Path(called).name == Path(link).name, f"{document.name} links to {link} as {called}"


@pytest.mark.parametrize("room", ["flower", "privacy"])
def test_the_map_names_every_module_of_these_rooms(room: str) -> None:
    said = (ROOT / "docs" / "architecture.md").read_text()
    modules = {path.name for path in (ROOT / "src" / "spreadout" / room).glob("[a-z]*.py")}
    assert modules
    assert [name for name in sorted(modules) if name not in said] == []


def test_results_name_no_machines_folders() -> None:
    files = sorted((ROOT / "results").rglob("*.json"))
    assert files
    named = re.compile(r'"/(tmp|home|root|work|Users)/')
    assert [str(path) for path in files if named.search(path.read_text(encoding="utf-8"))] == []


def test_every_key_of_a_config_is_documented() -> None:
    from spreadout.config.experiment import Experiment
    from spreadout.data.partitions import PARTITIONS
    from spreadout.data.sources import SOURCES
    from spreadout.federated.robust import ROBUST_RULES
    from spreadout.methods import METHODS

    text = "".join(
        (ROOT / "docs" / f"{name}.md").read_text()
        for name in (
            "configuration",
            "fedaws",
            "data",
            "dual_encoder",
            "fedalc",
            "fedmlh",
            "fedss",
            "robust",
        )
    )
    sections = [
        Experiment,
        *METHODS.parts(),
        *ROBUST_RULES.parts(),
        *(part for part in SOURCES.parts() if part.__module__.startswith("spreadout.")),  # not a test's
        *PARTITIONS.parts(),
    ]
    sections += [
        field.annotation
        for field in Experiment.model_fields.values()
        if hasattr(field.annotation, "model_fields")
    ]
    for section in sections:
        for key in section.model_fields:
            assert f"`{key}" in text or f"[{key}]" in text, f"{section.__name__}.{key} is not documented"


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path) -> None:
    """Each in a process of its own: what it registers does not stay behind. It imports nothing deep."""
    done = forked.script(example)
    assert done.returncode == 0, done.stderr
    assert "P@1" in done.stdout
    assert "spreadout." not in "".join(
        line for line in example.read_text().splitlines() if "import" in line
    )


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.toml")), ids=lambda path: path.stem)
def test_every_config_that_ships_can_be_read(path: Path) -> None:
    suite = Suite.load([str(path)], None, [])
    assert suite.variants
    for experiment in suite.variants.values():
        assert Experiment.of(tomllib.loads(experiment.to_toml())) == experiment
