"""A self-contained page: nothing in it refers to anything outside it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import resources
from typing import Any

from spreadout.core.files import as_json

SCRIPTS = (  # joined in this order
    "base",
    "scale",
    "downloads",
    "figures",
    "lines",
    "bars",
    "matrix",
    "confusion",
    "points",
    "beliefs",
    "curves",
    "map",
    "tabs",
    "start",
)


def document(title: str, about: str, sections: Sequence[str]) -> str:
    """A whole page around its sections."""
    # Bare names of the scripts stay among themselves.
    script = "\n".join(['"use strict";', *(asset(f"{name}.js") for name in SCRIPTS)])
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)} · spreadout</title><style>{asset('page.css')}</style>"
        f"<body><main><header><h1><bdi>{html.escape(title)}</bdi></h1>"
        f"<p class=about>{html.escape(about)}</p></header>"
        "<noscript><p class=warning>Charts are drawn by a script in this file, which is switched off. "
        "The tables are complete without it.</p></noscript>"
        f"{''.join(sections)}</main><script>(() => {{{script}}})();</script></body></html>\n"
    )


def tab(name: str, title: str, *parts: str) -> str:
    """A part of the page with a tab of its own; nothing where it would be empty."""
    inside = "".join(parts)
    return f"<section id={name} data-tab='{html.escape(title)}'>{inside}</section>" if inside else ""


def figure(caption: str, kind: str, spec: Any = None, **data: str | int) -> str:
    """A frame that the page's script draws into: a chart of its own, or a view of the runs."""
    own = "" if spec is None else f"<script type=application/json>{as_script(spec)}</script>"
    told = "".join(f" data-{name}='{html.escape(str(value))}'" for name, value in data.items())
    return (
        f"<figure data-kind={kind}{told}><figcaption>{html.escape(caption)}</figcaption>"
        f"<div class=plot></div>{own}</figure>"
    )


def as_script(value: Any) -> str:
    """JSON that can stand in a script element, whatever texts it has; what is not finite is null."""
    return as_json(value).replace("<", "\\u003c")


def swatch(style: int) -> str:
    """A piece of an arm's line, as the charts draw it: eight colours, then the same dashed."""
    dash = ("none", "7 4", "2 3", "9 3 2 3")[style // 8 % 4]
    look = f"stroke:var(--c{style % 8});stroke-width:2.6;stroke-dasharray:{dash}"
    return (
        "<svg class=swatch viewBox='0 0 26 10' width=26 height=10 aria-hidden=true>"
        f"<line x1=0 x2=26 y1=5 y2=5 style='{look}'/></svg>"
    )


def asset(name: str) -> str:
    """One of the files that pages are made of."""
    return resources.files("spreadout.report").joinpath("web", name).read_text(encoding="utf-8")
