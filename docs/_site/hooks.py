"""What the site has beyond docs/*.md: the README as first page, the API reference, files pages link to.

Pages are written for the repository's browser. There `/results/x.json` is a file from the root; so it
is on the site too: files that pages link to go along. Folders are shown by the repository alone.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent.parent
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
# Pages of the root, by their names on the site
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
# The looks, and what makes search work on a page opened from the disk
ASSETS = {"site.css": "_site.css", "iframe-worker.js": "_iframe-worker.js"}
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
MARK = re.compile(r"^<!-- /?results:[\w-]+ -->$", re.MULTILINE)
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = [(file.src_uri, Path(str(file.abs_src_path))) for file in files.documentation_pages()]
    pages += [(page, ROOT / name) for name, page in ROOT_PAGES.items()]
    for name, page in ROOT_PAGES.items():
        text = for_site((ROOT / name).read_text(encoding="utf-8"), ROOT)
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "api.md", content=api()))
    for asset, name in ASSETS.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / "docs/_site" / asset)))
    for path in sorted({path for _, page in pages for path in linked_files(page)}):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links from the page's place in the repository; the quotes' marks are for the repository alone."""
    if page.file.src_uri not in {*ROOT_PAGES.values(), "api.md"}:
        markdown = for_site(markdown, ROOT / "docs")
    return MARK.sub("", markdown)


def for_site(text: str, folder: Path) -> str:
    """Links of a page that lies in `folder`, as links from the site's root."""

    def moved(found: re.Match[str]) -> str:
        start, path, anchor = found[1], target(found[2], folder), found[3] or ""
        if (ROOT / path).is_dir():
            return f"{start}{REPOSITORY}/tree/main/{path}"
        return f"{start}/{ROOT_PAGES.get(path, path.removeprefix('docs/'))}{anchor}"

    parts = CODE.split(text)  # what is code stays as it is
    return "".join(part if CODE.fullmatch(part) else LINK.sub(moved, part) for part in joined(parts))


def joined(parts: list[str]) -> list[str]:
    """Code within the words of a link belongs to the link: [`x.json`](/x.json)."""
    out: list[str] = []
    for part in parts:
        if out and (part.startswith("](") or (CODE.fullmatch(part) and out[-1].endswith("["))):
            out[-1] += part
        else:
            out.append(part)
    return out


def target(link: str, folder: Path) -> str:
    """The linked file's path from the repository's root."""
    if link.startswith("/"):
        return link.lstrip("/")
    return (folder / link).resolve().relative_to(ROOT).as_posix()


def linked_files(page: Path) -> set[str]:
    """Files outside docs/ that a page links to and that are no pages themselves."""
    found = {target(link[2], page.parent) for link in LINK.finditer(page.read_text(encoding="utf-8"))}
    return {
        path
        for path in found
        if (ROOT / path).is_file() and not path.startswith("docs/") and path not in ROOT_PAGES
    }


def api() -> str:
    """Every public name, in the groups of the package's own `__all__`."""
    said = (ROOT / "src/spreadout/__init__.py").read_text(encoding="utf-8")
    listed = said.partition("__all__ = [")[2].partition("\n]")[0].partition("\n")[2]
    lines = [
        "# Python API",
        "",
        "`import spreadout as so`: these names are public, in the order in which people meet them.",
    ]
    for heading, name in re.findall(r"^\s+(?:# (.+)|\"(\w+)\",)$", listed, re.MULTILINE):
        lines += ["", f"## {heading}" if heading else f"::: spreadout.{name}"]
    return "\n".join(lines) + "\n"
