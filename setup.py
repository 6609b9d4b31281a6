"""The page on a package index: the README, with links that lead to the repository from anywhere.

All else is in pyproject.toml, where `project.urls.Repository` says where that is.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent


def page(readme: str, repository: str, tag: str) -> str:
    """Relative links as absolute ones to the files of this version; images to the images themselves."""

    def absolute(found: re.Match[str]) -> str:
        start, path = found["start"], found["path"].lstrip("/")
        kind = "raw" if start.startswith("!") else "tree" if (ROOT / path).is_dir() else "blob"
        return f"{start}({repository}/{kind}/{tag}/{path})"

    return re.sub(r"(?P<start>!?\[[^\]]*\])\((?!\w+:|#)(?P<path>[^)]+)\)", absolute, readme)


def version() -> str:
    said = (ROOT / "src" / "spreadout" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', said, re.MULTILINE)
    assert found is not None
    return found[1]


repository = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
setup(
    long_description=page((ROOT / "README.md").read_text(encoding="utf-8"), repository, f"v{version()}"),
    long_description_content_type="text/markdown",
)
