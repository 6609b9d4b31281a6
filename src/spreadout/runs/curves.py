"""What a run recorded, over its rounds: as small drawings in a notebook, and by matplotlib."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spreadout.core.errors import UserError
from spreadout.core.types import Record
from spreadout.evaluation.metrics import described

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE, HIGH, EDGE = 220, 90, 16  # pixels of a drawing, and around its curve


def series(history: Sequence[Record], name: str) -> tuple[list[int], list[float]]:
    """The rounds at which a number was recorded, and its values there."""
    known = [
        (one["round"], float(one[name]))
        for one in history
        if isinstance(one.get(name), int | float) and math.isfinite(one[name])
    ]
    return [round for round, _ in known], [value for _, value in known]


def drawings(history: Sequence[Record], names: Sequence[str]) -> str:
    """A small curve for each name of which there are at least two values, side by side."""
    drawn = []
    for name in names:
        rounds, values = series(history, name)
        if len(values) > 1:
            drawn.append(_drawing(described(name).title, rounds, values))
    return f'<div style="display:flex;flex-wrap:wrap;gap:1em">{"".join(drawn)}</div>' if drawn else ""


def _drawing(title: str, rounds: Sequence[int], values: Sequence[float]) -> str:
    low, high, last = min(values), max(values), max(rounds)
    across, up = (WIDE - 2 * EDGE) / max(last - min(rounds), 1), (HIGH - 2 * EDGE) / ((high - low) or 1)
    points = " ".join(
        f"{EDGE + (x - min(rounds)) * across:.1f},{HIGH - EDGE - (y - low) * up:.1f}"
        for x, y in zip(rounds, values, strict=True)
    )
    style = 'font-size="10" fill="currentColor" font-family="sans-serif"'
    return (
        f'<svg width="{WIDE}" height="{HIGH}" role="img" aria-label="{html.escape(title)}">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        f'<text x="0" y="10" {style}>{html.escape(title)}: {values[-1]:.4g}</text>'
        f'<text x="0" y="{HIGH - 2}" {style}>{low:.4g} – {high:.4g}, {last} rounds</text></svg>'
    )


def plot(history: Sequence[Record], names: Sequence[str], axes: Axes | None, label: str) -> Axes:
    """Curves over rounds on matplotlib's axes; several names must have one unit."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise UserError("plot: matplotlib is not installed; pip install 'spreadout[plot]'") from None
    recorded = sorted({key for one in history for key in one} - {"round", "refused"})
    for name in names:
        if not series(history, name)[1]:
            raise UserError(f"plot: {name!r} was not recorded; there are {', '.join(recorded)}")
    if axes is None:
        axes = plt.figure().add_subplot()
    for name in names:
        named = label if len(names) == 1 else f"{label} {name}"
        axes.plot(*series(history, name), label=named)
    title: Any = described(names[0]).title
    axes.set_xlabel("round")
    axes.set_ylabel(title if len(names) == 1 else described(names[0]).unit)
    axes.legend()
    return axes
