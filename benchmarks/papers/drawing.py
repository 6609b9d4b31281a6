"""Pieces of the pages that benchmarks draw: a table, and a chart with its legend."""

from __future__ import annotations

import html
from collections.abc import Sequence

from spreadout.report.charts import Line, line_chart


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
    *,
    x_log: bool = False,
    y_log: bool = False,
) -> str:
    """Lines over an axis, with their names below."""
    return line_chart(
        caption, lines, x_title=x_title, y_title=y_title, y_range=y_range, x_log=x_log, y_log=y_log
    )
