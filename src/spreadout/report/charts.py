"""Charts as values that the page's script draws: lines and bars over an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spreadout.report.document import figure


@dataclass(frozen=True)
class Line:
    """One variant over an axis: its mean, and the range over seeds where there are several."""

    label: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    style: int | None = None  # which colour and dash; by default, that of its place


def line_chart(
    caption: str,
    lines: Sequence[Line],
    *,
    x_title: str,
    y_title: str,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    x_log: bool = False,
    y_log: bool = False,
    y_bytes: bool = False,
    dots: bool = True,
) -> str:
    """Mean lines with a band from the lowest to the highest seed, and their names below."""
    series: list[dict[str, Any]] = [
        {
            "label": line.label,
            "style": i if line.style is None else line.style,
            "x": list(line.x),
            "mean": list(line.mean),
            "low": list(line.low or line.mean),
            "high": list(line.high or line.mean),
            "dots": dots,
        }
        for i, line in enumerate(lines)
    ]
    axes = {
        "x": {"title": x_title, "log": x_log, "range": x_range},
        "y": {"title": y_title, "log": y_log, "range": y_range, "bytes": y_bytes},
    }
    return figure(caption, "lines", {**axes, "series": series})


def bar_chart(
    caption: str,
    labels: Sequence[str],
    bars: Mapping[str, Sequence[float | None]],
    *,
    x_title: str,
    y_title: str,
    y_range: tuple[float, float] | None = None,
    notes: Mapping[str, Sequence[float]] | None = None,
    styles: Sequence[int] | None = None,
) -> str:
    """One bar per label and series, from 0; notes: further numbers of each label, shown beside."""
    series = [
        {"label": name, "style": styles[i] if styles else i, "values": list(values)}
        for i, (name, values) in enumerate(bars.items())
    ]
    axes = {"x": {"title": x_title}, "y": {"title": y_title, "range": y_range}}
    drawn = {"labels": list(labels), "series": series, "notes": dict(notes or {})}
    return figure(caption, "bars", {**axes, **drawn})


def matrix(
    caption: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[tuple[int, int, float, int]],
    *,
    row_title: str,
    column_title: str,
) -> str:
    """A labelled square: cells are (row, column, share from 0 to 1, examples); others are 0."""
    named = {"rows": list(rows), "columns": list(columns), "cells": [list(cell) for cell in cells]}
    return figure(caption, "matrix", {**named, "row_title": row_title, "column_title": column_title})
