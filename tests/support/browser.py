"""Pages in a real browser: Debian's Chromium, driven by Playwright. Every fault of a page is kept."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def browser() -> Iterator[Any]:
    """One browser for many pages; tests that need it are skipped where it is not installed."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@dataclass
class Opened:
    """A page, and whatever went wrong in it: errors of scripts, and requests to anywhere."""

    page: Any
    faults: list[str] = field(default_factory=list)

    def tabs(self) -> list[str]:
        return [one.inner_text() for one in self.page.get_by_role("tab").all()]

    def open(self, tab: str) -> None:
        self.page.get_by_role("tab", name=tab, exact=True).click()


@contextmanager
def opened(chromium: Any, path: Path, width: int = 1100, **context: Any) -> Iterator[Opened]:
    """A page of a file; at its end it must have had no fault."""
    inside = chromium.new_context(viewport={"width": width, "height": 800}, **context)
    page = inside.new_page()
    page.set_default_timeout(10_000)
    found = Opened(page)
    page.on("console", lambda said: said.type in ("error", "warning") and found.faults.append(said.text))
    page.on("dialog", lambda dialog: found.faults.append(f"a dialog: {dialog.message}"))
    page.on("pageerror", lambda error: found.faults.append(str(error)))
    page.on("request", lambda one: _is_outside(one.url, path) and found.faults.append(one.url))
    page.goto(path.as_uri())
    yield found
    inside.close()
    assert found.faults == []


def _is_outside(url: str, path: Path) -> bool:
    return not url.startswith(("data:", "blob:")) and url.partition("#")[0] != path.as_uri()


# In the page: elements with text of their own whose colours are too near each other (WCAG 2.2, AA).
POOR_CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((a, v, i) => a + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    const over = [];
    for (let at = node; at; at = at.parentElement) {
      const c = getComputedStyle(at).backgroundColor;
      const [r, g, b, a = 1] = c.startsWith("color(") ? parse(c).map((v, i) => (i < 3 ? 255 * v : v)) : parse(c);
      if (a > 0) over.push([r, g, b, a]);
      if (a === 1) break;
    }
    return over.reverse().reduce((under, [r, g, b, a]) => [r, g, b].map((v, i) => a * v + (1 - a) * under[i]), [255, 255, 255]);
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const looks = getComputedStyle(node), box = node.getBoundingClientRect();
    if (!own || looks.visibility === "hidden" || box.width < 2 || node.closest("script, style, option, .unseen")) continue;
    const [r, g, b] = parse(node instanceof SVGElement ? looks.fill : looks.color);
    const [a, z] = [light([r, g, b]), light(ground(node.closest("svg") && node instanceof SVGElement ? node.closest("svg").parentElement : node))];
    const ratio = (Math.max(a, z) + 0.05) / (Math.min(a, z) + 0.05);
    const size = parseFloat(looks.fontSize), large = size >= 24 || (size >= 18.66 && Number(looks.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) poor.push(`${node.tagName}.${node.getAttribute("class")} ${ratio.toFixed(2)}: ${node.textContent.slice(0, 40)}`);
  }
  return poor;
}"""

# What stands out of the window, but for what scrolls inside a box of its own.
OVERFLOW = """() => {
  const wide = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > wide) found.push(`the page is ${document.documentElement.scrollWidth} of ${wide} wide`);
  for (const node of document.querySelectorAll("main *")) {
    const box = node.getBoundingClientRect();
    if (box.width > 0 && box.right > wide + 1 && !node.closest(".wide, pre, .unseen, svg")) found.push(`${node.tagName}.${node.className}`);
  }
  for (const text of document.querySelectorAll(".plot svg text")) {
    const box = text.getBoundingClientRect(), plot = text.closest("svg").getBoundingClientRect();
    if (box.width && (box.left < plot.left - 2 || box.right > plot.right + 2 || box.top < plot.top - 2)) found.push(`text ${text.textContent}`);
  }
  return found;
}"""
