"""The rooms of the package and the one direction in which they may import each other."""

import ast
from pathlib import Path

import pytest

import spreadout

# Each room may import those before it, and none after it.
ROOMS = (
    "core",
    "data",
    "objectives",
    "models",
    "privacy",
    "methods",
    "federated",
    "runtime",
    "evaluation",
    "config",
    "runs",
    "use",
    "flower",
    "report",
    "cli",
)
PACKAGE = Path(spreadout.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


def imported(path: Path) -> set[str]:
    """The rooms a module imports, wherever in it."""
    return {name.split(".")[1] for name in modules(path) if name.startswith("spreadout.")} - {
        "__version__"
    }


def modules(path: Path) -> set[str]:
    """Everything a module imports, wherever in it; of `from a import b`, a.b."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: say where from, with the package's name"
            found |= {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


def test_every_room_is_in_its_place() -> None:
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()} == set(ROOMS)
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    above = imported(path) & set(ROOMS[ROOMS.index(room) + 1 :])
    assert not above, f"{room} may not import {', '.join(sorted(above))}"
    assert imported(path) <= set(ROOMS), "everything but the version has a room"


def test_only_the_flower_room_imports_flower() -> None:
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] != "flower":
            assert not {name for name in modules(path) if name.split(".")[0] == "flwr"}, path


def test_the_test_itself_sees_every_kind_of_import(tmp_path: Path) -> None:
    written = tmp_path / "module.py"
    written.write_text(
        "import flwr\nimport spreadout.cli.main\ndef f():\n    from spreadout import runs\n"
    )
    assert modules(written) == {"flwr", "spreadout.cli.main", "spreadout.runs"}
    assert imported(written) == {"cli", "runs"}
    written.write_text("from ..cli import main\n")
    with pytest.raises(AssertionError, match="say where from"):
        modules(written)
