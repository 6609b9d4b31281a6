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
    "flower",
    "report",
    "cli",
)
PACKAGE = Path(spreadout.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


def imported(path: Path) -> set[str]:
    """The rooms a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "spreadout":
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spreadout."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {n.name.split(".")[1] for n in node.names if n.name.startswith("spreadout.")}
    return found - {"__version__"}


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
            assert "flwr" not in path.read_text(encoding="utf-8").split("import")[0]
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
            assert not any(name.startswith("flwr") for name in names), path
