"""The notebooks in examples/ run from top to bottom in a kernel of their own, and show what they say."""

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def executed(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The notebook with the outputs of its cells."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    client = pytest.importorskip("nbclient")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shutil.copy(EXAMPLES / request.param, tmp_path)
    book = nbformat.read(tmp_path / request.param, as_version=4)
    client.NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    return book


def outputs(book: Any) -> list[dict[str, Any]]:
    return [output for cell in book.cells for output in cell.get("outputs", [])]


def of(book: Any, code: str) -> Any:
    """What the one cell with this code put out last: its value, or its text."""
    (cell,) = (cell for cell in book.cells if cell.cell_type == "code" and code in cell.source)
    last = cell.outputs[-1]
    return ast.literal_eval(last["data"]["text/plain"]) if "data" in last else last["text"].splitlines()


def shown(book: Any, kind: str) -> str:
    return "\n".join(str(output["data"].get(kind, "")) for output in outputs(book) if "data" in output)


@pytest.mark.parametrize("executed", ["first_steps.ipynb"], indirect=True)
def test_first_steps_on_a_table(executed: Any, tmp_path: Path) -> None:
    pages = shown(executed, "text/html")
    assert '<progress value="60" max="60">' in pages  # the bar, at its end
    assert "<td>fedaws</td><td>wine</td><td>3</td>" in pages
    assert 'aria-label="P@1 (%)"' in pages  # the curve
    assert any("image/png" in output.get("data", {}) for output in outputs(executed))  # the plot
    cosines = of(executed, 'arm.geometry("max_cosine")')
    assert cosines["baseline-1"] > cosines["fedaws"] + 0.3
    answers = of(executed, "model.predict(")
    assert len(answers) == 3
    assert sum(line.split(" → ")[1].startswith(f"[('{line.split(' ')[0]}'") for line in answers) >= 2
    assert (tmp_path / "runs" / "wine" / "summary.json").is_file()


@pytest.mark.parametrize("executed", ["next_items.ipynb"], indirect=True)
def test_next_items_of_histories(executed: Any) -> None:
    scores = of(executed, "result.references.items()")
    assert scores["this run"]["R@10"] > scores["popularity"]["R@10"] + 5
    said = of(executed, "unseen=True")
    history, guesses = ast.literal_eval(said[0]), [line.split("  ")[-1] for line in said[1:]]
    assert len(guesses) == 5
    assert all(guess.startswith("film ") for guess in guesses)
    assert len(history) == 5
    assert not set(history) & set(guesses)  # those seen are left out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_kept_without_outputs_and_link_to_documents_that_are_there(path: Path) -> None:
    book = json.loads(path.read_text())
    assert [cell for cell in book["cells"] if cell.get("outputs") or cell.get("execution_count")] == []
    text = "".join("".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    assert all((path.parent / link).is_file() for link in links)
