"""Every test that the page on reliability rests on exists."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "reliability.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)")
HEADINGS = ["Run folders", "Input from outside", "Hostile clients", "Deployments", "Long and large"]


def names_in(file: Path) -> set[str]:
    """The names of a file's test functions."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_page_has_its_parts_in_order() -> None:
    found = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found == HEADINGS


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE.read_text(encoding="utf-8")))))
def test_a_named_test_exists(file: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in names_in(TESTS / file)
