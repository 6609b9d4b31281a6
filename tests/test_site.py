"""The documentation site builds without a warning, every link in it leads somewhere, and it asks nothing of other hosts."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import spreadout
from browser import browser

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
# No blanks, no punctuation at the end; of arXiv, the page of a paper
ADDRESS = re.compile(
    r"https?://(?:arxiv\.org/abs/\d{4}\.\d{5}|(?!arxiv)[\w-]+(?:\.[\w-]+)+(?:/[\w./~-]*)?)(?<!\.)"
)


class Anchors(HTMLParser):
    """The ids of a page, what it links to, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {key: value or "" for key, value in attrs}
        self.ids |= {said[key] for key in ("id", "name") if said.get(key)}
        if tag == "a" and "href" in said:
            self.links.add(said["href"])
        if tag in {"img", "script", "iframe", "source"} and "src" in said:
            self.loaded.add(said["src"])
        if tag == "link" and said.get("rel") in {"stylesheet", "preconnect", "icon"}:
            self.loaded.add(said["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site needs the [docs] extra")
    pytest.importorskip("material", reason="the site needs the [docs] extra")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Anchors]:
    found = {}
    for path in sorted(site.rglob("*.html")):
        if path.name != "404.html" and "results" not in path.relative_to(site).parts:
            found[path] = Anchors()
            found[path].feed(path.read_text(encoding="utf-8"))
    return found


def test_make_docs_fails_on_a_warning_too() -> None:
    """With --quiet, MkDocs counts no warnings."""
    (recipe,) = re.findall(r"^\t.*mkdocs build.*$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "--strict" in recipe
    assert "--quiet" not in recipe


def test_every_document_is_a_page(site: Path) -> None:
    documents = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert documents
    assert documents | {"index", "api", "contributing"} <= {path.stem for path in site.glob("*.html")}


def test_every_link_within_the_site_leads_somewhere(site: Path, pages: dict[Path, Anchors]) -> None:
    broken = defaultdict(list)
    checked = 0
    for page, anchors in pages.items():
        for link in anchors.links | anchors.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            checked += 1
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            missing = not target.is_file() or (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].ids | {"__codelineno"}
                and not parts.fragment.startswith("__codelineno")
            )
            if missing:
                broken[page.name].append(link)
    assert checked > 500
    assert dict(broken) == {}


def links_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("links", ROOT / "docs" / "_site" / "links.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_to_other_hosts_are_the_known_ones(pages: dict[Path, Anchors]) -> None:
    """There is no network here: `make links` asks each address of the list, where there is one."""
    found = {link for anchors in pages.values() for link in anchors.links if urlsplit(link).scheme}
    tree = f"{REPOSITORY}/tree/main/"
    folders = {link for link in found if link.startswith(tree)}
    assert [link for link in sorted(folders) if not (ROOT / link.removeprefix(tree)).is_dir()] == []
    known = links_module().known()
    assert known == sorted(set(known))
    assert sorted(found - folders) == known
    assert [link for link in known if not ADDRESS.fullmatch(link)] == []


def test_an_address_that_does_not_answer_is_named() -> None:
    links = links_module()
    assert links.fault((ROOT / "README.md").as_uri()) is None
    assert "No such file" in links.fault((ROOT / "no-such-page").as_uri())


def test_search_works_on_a_page_opened_from_the_disk(site: Path) -> None:
    faults: list[str] = []
    with browser() as chromium:
        page = chromium.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda one: one.url.startswith("file:") or faults.append(one.url))
        page.goto((site / "fedaws.html").as_uri())
        page.get_by_placeholder("Search").press_sequentially("ledger")  # the page listens to keys
        page.wait_for_selector(".md-search-result__item")
        titles = page.locator(".md-search-result__item h1").all_inner_texts()
    assert faults == []
    assert any(title.startswith("Privacy") for title in titles)


def test_pages_load_nothing_from_other_hosts(pages: dict[Path, Anchors]) -> None:
    loaded = {link for anchors in pages.values() for link in anchors.loaded}
    assert loaded
    assert [link for link in sorted(loaded) if urlsplit(link).netloc] == []


def test_result_files_that_pages_quote_lie_on_the_site(site: Path) -> None:
    quoted = site / "results" / "digits" / "demo.json"
    assert quoted.read_bytes() == (ROOT / "results" / "digits" / "demo.json").read_bytes()
    assert 'href="results/digits/demo.json"' in (site / "index.html").read_text(encoding="utf-8")


def test_the_reference_has_every_public_name(site: Path, pages: dict[Path, Anchors]) -> None:
    ids = pages[site / "api.html"].ids
    assert [name for name in spreadout.__all__ if f"spreadout.{name}" not in ids] == []
