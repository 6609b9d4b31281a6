"""What benchmarks draw: a table, a chart with its legend, and a picture of lines for a document."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from spreadout.report.charts import Line, line_chart
from spreadout.report.document import document


def write_report(out: Path, title: str, about: str, sections: Sequence[str]) -> None:
    """A page of the sections; where there are none yet, a page that is there stays as it is."""
    if not sections:
        print(f"{out}: not written; no result file has anything to draw yet")
        return
    out.write_text(document(title, about, sections), encoding="utf-8")
    print(f"wrote {out}")


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


COLOURS = ("#0b62a4", "#b5442a", "#2f7d32", "#6a4a9c")
LEFT, TOP, WIDE, HIGH = 50, 14, 470, 250  # of the picture's axes


def picture(
    path: Path, title: str, x_title: str, places: Sequence[str], lines: Mapping[str, Sequence[float]]
) -> None:
    """An SVG file of percentages by place: one line each, drawn through where another has its dashes.

    lines: by their names; one that ends in "without" has the colour of the one before, and dashes.
    """
    top = 10 * (1 + int(max(max(line) for line in lines.values())) // 10)
    step = WIDE / max(len(places) - 1, 1)

    def at(i: int, value: float) -> tuple[float, float]:
        return LEFT + i * step, TOP + HIGH * (1 - value / top)

    parts = []
    for value in range(0, top + 1, 10):
        y = at(0, value)[1]
        parts.append(f'<path d="M{LEFT} {y:.1f}h{WIDE}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    for i, place in enumerate(places):
        x = at(i, 0)[0]
        parts.append(f'<text x="{x:.1f}" y="{TOP + HIGH + 18}" text-anchor="middle">{place}</text>')
    middle = LEFT + WIDE / 2
    under = f'x="{middle}" y="{TOP + HIGH + 38}" text-anchor="middle"'
    parts.append(f"<text {under}>{html.escape(x_title)}</text>")
    colour = -1
    for i, (name, line) in enumerate(lines.items()):
        dashed = name.endswith("without")
        colour += not dashed
        paint = f'stroke="{COLOURS[colour]}"' + (' stroke-dasharray="5 4"' if dashed else "")
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(j, value) for j, value in enumerate(line)))
        parts.append(f'<polyline points="{points}" fill="none" stroke-width="2" {paint}/>')
        y = TOP + 10 + 18 * i
        parts.append(f'<path d="M{LEFT + WIDE + 14} {y - 4}h24" stroke-width="2" {paint}/>')
        parts.append(f'<text x="{LEFT + WIDE + 44}" y="{y}">{html.escape(name)}</text>')
    size = f'viewBox="0 0 {LEFT + WIDE + 180} {TOP + HIGH + 48}" font-family="sans-serif" font-size="12"'
    body = f"<title>{html.escape(title)}</title><rect width='100%' height='100%' fill='white'/>"
    path.parent.mkdir(parents=True, exist_ok=True)
    joined = chr(10).join([body, *parts])
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>{joined}</svg>', encoding="utf-8"
    )
