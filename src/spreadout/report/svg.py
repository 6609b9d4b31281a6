"""Charts as inline SVG: lines and bars over an axis, points on a plane, a matrix of shares."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Okabe and Ito's palette, readable with any colour vision, reordered for contrast on both grounds.
LINES = ("#d55e00", "#e69f00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#7f7f7f", "#b8a900")
POINTS = (
    "#4e79a7",
    "#f28e2b",
    "#e15759",
    "#76b7b2",
    "#59a14f",
    "#edc948",
    "#b07aa1",
    "#ff9da7",
    "#9c755f",
    "#8a8a8a",
)
WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 40


@dataclass(frozen=True)
class Line:
    """One variant over an axis: its mean, and the range over seeds."""

    label: str
    colour: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def line_chart(
    lines: Sequence[Line],
    *,
    x_title: str,
    y_title: str,
    y_range: tuple[float, float] | None = None,
    x_format: Callable[[float], str] = lambda value: f"{value:g}",
    y_format: Callable[[float], str] = lambda value: f"{value:g}",
) -> str:
    """Mean lines with a band from the lowest to the highest seed; values appear under the pointer."""
    every_x = [x for line in lines for x in line.x]
    every_y = [y for line in lines for y in (*line.low, *line.high) if math.isfinite(y)]
    x_low, x_high = min(every_x), max([*every_x, min(every_x) + 1e-9])
    y_low, y_high = y_range or (min(every_y), max([*every_y, min(every_y) + 1e-9]))

    def px(x: float) -> float:
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        inside = min(max(y, y_low), y_high)
        return HEIGHT - BOTTOM - (inside - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(y_title)} against {html.escape(x_title)}" '
        f'data-lines="{html.escape(_hover_data(lines, px, py, x_format, y_format))}">'
    ]
    for tick in ticks(y_low, y_high):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(tick):.1f}" y2="{py(tick):.1f}"/>'
        )
        parts.append(
            f'<text class="tick" x="{LEFT - 6}" y="{py(tick) + 4:.1f}" text-anchor="end">{y_format(tick)}</text>'
        )
    for tick in ticks(x_low, x_high):
        parts.append(
            f'<text class="tick" x="{px(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x_format(tick)}</text>'
        )
    parts.append(
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'
    )
    parts.append(
        f'<text class="title" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{html.escape(x_title)}</text>'
    )
    parts.append(
        f'<text class="title" transform="translate(12 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{html.escape(y_title)}</text>'
    )
    for line in lines:
        up = [f"{px(x):.1f},{py(y):.1f}" for x, y in zip(line.x, line.high, strict=True)]
        down = [f"{px(x):.1f},{py(y):.1f}" for x, y in zip(line.x, line.low, strict=True)]
        middle = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in zip(line.x, line.mean, strict=True))
        parts.append(
            f'<polygon points="{" ".join([*up, *reversed(down)])}" fill="{line.colour}" opacity="0.18"/>'
        )
        parts.append(
            f'<polyline points="{middle}" fill="none" stroke="{line.colour}" stroke-width="2.2" stroke-linejoin="round"/>'
        )
    parts.append('<g class="cursor"></g></svg>')
    return "".join(parts)


def bar_chart(bars: Sequence[tuple[str, float]], *, x_title: str, y_title: str) -> str:
    """One bar per label, from 0; its value appears under the pointer."""
    most = max([1.0, *(value for _, value in bars)])
    width = (WIDTH - LEFT - RIGHT) / max(len(bars), 1)
    floor = HEIGHT - BOTTOM
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(y_title)} by {html.escape(x_title)}">'
    ]
    for tick in ticks(0, most):
        y = floor - tick / most * (HEIGHT - TOP - BOTTOM)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    every = max(1, -(-len(bars) // 8))  # as many labels as there is room for
    for i, (label, value) in enumerate(bars):
        tall = value / most * (HEIGHT - TOP - BOTTOM)
        x = LEFT + i * width
        parts.append(
            f'<rect x="{x + 0.5:.1f}" y="{floor - tall:.1f}" width="{max(width - 1, 0.5):.1f}" height="{tall:.1f}" '
            f'fill="{LINES[2]}"><title>{html.escape(label)}: {value:g}</title></rect>'
        )
        if i % every == 0:
            parts.append(
                f'<text class="tick" x="{x + width / 2:.1f}" y="{floor + 16}" text-anchor="middle">{html.escape(label)}</text>'
            )
    parts.append(
        f'<text class="title" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{html.escape(x_title)}</text>'
    )
    parts.append(
        f'<text class="title" transform="translate(12 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{html.escape(y_title)}</text>'
    )
    return "".join([*parts, "</svg>"])


def plane(
    classes: Sequence[Sequence[float]], examples: Sequence[Sequence[float]], labels: Sequence[int]
) -> str:
    """Examples as dots and classes as numbered discs, inside the unit circle's shadow."""
    size, edge = 260, 1.12

    def at(point: Sequence[float]) -> tuple[float, float]:
        return (point[0] / edge + 1) * size / 2, (1 - point[1] / edge) * size / 2

    radius = size / 2 / edge
    parts = [
        f'<svg class="plane" viewBox="0 0 {size} {size}" role="img" aria-label="classes and examples on a plane">',
        f'<circle class="sphere" cx="{size / 2}" cy="{size / 2}" r="{radius:.1f}"/>',
    ]
    for point, label in zip(examples, labels, strict=True):
        x, y = at(point)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{_point_colour(label)}" opacity="0.55"/>'
        )
    numbered = len(classes) <= 20
    for label, point in enumerate(classes):
        x, y = at(point)
        parts.append(
            f'<g><title>class {label}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{8 if numbered else 3.2}" '
            f'fill="{_point_colour(label)}" stroke="var(--ground)" stroke-width="1.4"/>'
        )
        if numbered:
            parts.append(
                f'<text class="disc" x="{x:.1f}" y="{y + 3.4:.1f}" text-anchor="middle">{label}</text>'
            )
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that cut a range into about so many pieces."""
    raw = (high - low) / about
    if raw <= 0:
        return [low]
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _point_colour(label: int) -> str:
    return POINTS[label % len(POINTS)]


def _hover_data(
    lines: Sequence[Line],
    px: Callable[[float], float],
    py: Callable[[float], float],
    x_format: Callable[[float], str],
    y_format: Callable[[float], str],
) -> str:
    return json.dumps(
        [
            {
                "label": line.label,
                "colour": line.colour,
                "at": [
                    [round(px(x), 1), round(py(y), 1), x_format(x), y_format(y)]
                    for x, y in zip(line.x, line.mean, strict=True)
                ],
            }
            for line in lines
        ]
    )


def heat_map(values: Sequence[Sequence[float]], names: Sequence[str], *, title: str) -> str:
    """A square of shares from 0 to 1, rows against columns; names appear under the pointer."""
    count = len(values)
    side = max(6.0, min(26.0, 520 / max(count, 1)))
    size = side * count
    parts = [
        f'<svg class="heat" viewBox="0 0 {size + 2:.0f} {size + 2:.0f}" role="img" '
        f'aria-label="{html.escape(title)}">'
    ]
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if not value:
                continue
            tooltip = html.escape(f"{names[i]} taken for {names[j]}: {100 * value:.0f} %")
            parts.append(
                f'<rect x="{1 + j * side:.1f}" y="{1 + i * side:.1f}" width="{side:.1f}" height="{side:.1f}" '
                f'fill="#0072b2" fill-opacity="{0.08 + 0.92 * value:.2f}"><title>{tooltip}</title></rect>'
            )
    parts.append(
        f'<rect class="frame" x="1" y="1" width="{size:.1f}" height="{size:.1f}" fill="none"/></svg>'
    )
    return "".join(parts)
