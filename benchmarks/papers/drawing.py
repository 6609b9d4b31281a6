"""Pieces of the pages that benchmarks draw: a table, and a chart with its legend."""

from __future__ import annotations

import html
from collections.abc import Sequence

from spreadout.report.svg import Line, line_chart


def table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Cells are HTML, labels and titles are text."""
    lines = ["<th></th>" + "".join(f"<th scope=col>{html.escape(name)}</th>" for name in head)]
    for label, cells in rows:
        filled = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f"<th scope=row>{html.escape(label)}</th>{filled}")
    first, *rest = (f"<tr>{line}</tr>" for line in lines)
    return f"<div class=wide><table><thead>{first}</thead><tbody>{''.join(rest)}</tbody></table></div>"


def chart(
    caption: str,
    lines: Sequence[Line],
    x_title: str,
    y_title: str,
    y_range: tuple[float, float] | None = None,
) -> str:
    """Lines over an axis, with their names below."""
    drawn = line_chart(lines, x_title=x_title, y_title=y_title, y_range=y_range)
    names = ((line.colour, html.escape(line.label)) for line in lines)
    legend = "".join(f"<span><i style='background:{colour}'></i>{name}</span>" for colour, name in names)
    title = f"<figcaption>{html.escape(caption)}</figcaption>"
    return f"<figure>{title}{drawn}<p class=legend>{legend}</p></figure>"
