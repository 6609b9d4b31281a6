"""What a federation's data looks like, on the terminal and as a page."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from spreadout.core.randomness import Ints
from spreadout.data.describe import Description, Spread
from spreadout.report.charts import Line, bar_chart, line_chart
from spreadout.report.document import document

BARS = 12
BLOCKS = " ▏▎▍▌▋▊▉█"


def print_description(found: Description, console: Console | None = None) -> None:
    """Counts, distributions, and small bar charts."""
    out = console or Console()
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in counted(found):
        facts.add_row(name, value)
    out.print(f"[bold]{found.name}[/bold] {found.dealt}")
    for note in found.notes:
        out.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    out.print(facts)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("", "least", "quarter", "median", "three quarters", "most", "mean"):
        table.add_column(title, justify="right" if title else "left")
    for name, spread in distributions(found):
        table.add_row(name, *(_number(value) for value in _marks(spread)))
    out.print(table)
    nonempty = found.size_of > 0
    for title, values in (
        ("clients by how many examples they hold", found.size_of[nonempty]),
        ("clients by how many classes they hold", found.classes_of[nonempty]),
    ):
        out.print(f"\n{title}")
        _print_bars(out, histogram(values))
    out.print("\nlabel frequency, log-log: examples of the class of each rank")
    _print_bars(
        out, [(f"#{rank:,}", float(count)) for rank, count in ranked(found.label_counts)], log=True
    )


def page(found: Description) -> str:
    """The same as one self-contained page."""
    rows = "".join(
        f"<tr><th scope=row>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in counted(found)
    )
    heads = "".join(f"<th>{t}</th>" for t in ("", "least", "25 %", "median", "75 %", "most", "mean"))
    spreads = "".join(
        f"<tr><th scope=row>{html.escape(name)}</th>"
        + "".join(f"<td>{_number(value)}</td>" for value in _marks(spread))
        + "</tr>"
        for name, spread in distributions(found)
    )
    nonempty = found.size_of > 0
    curve = ranked(found.label_counts)
    figures = [
        _histogram("How much clients hold", found.size_of[nonempty], "examples"),
        _histogram("How many classes clients hold", found.classes_of[nonempty], "classes"),
        line_chart(
            "Label frequency",
            [Line("examples", [rank for rank, _ in curve], [count for _, count in curve])],
            x_title="rank of the class",
            y_title="examples",
            x_log=True,
            y_log=True,
        ),
    ]
    note = (
        "Divergences are in nats: of a client's labels from those of all clients together, and between "
        "random pairs of clients, each smoothed by one more example spread over all classes."
    )
    return document(
        f"{found.name}: who holds what",
        f"{found.dealt}: {found.clients:,} clients, {found.examples:,} examples, "
        f"{found.classes:,} classes",
        [
            f"<div class=wide><table class=facts><tbody>{rows}</tbody></table></div>",
            f"<div class=wide><table><thead><tr>{heads}</tr></thead>"
            f"<tbody>{spreads}</tbody></table></div>",
            f"<p class=note>{note}</p>",
            f"<div class=grid2>{''.join(figures)}</div>",
        ],
    )


def counted(found: Description) -> list[tuple[str, str]]:
    """The counts worth a line."""
    lines = [
        ("clients", f"{found.clients:,}" + _of(found.empty_clients, "without examples")),
        ("examples held", f"{found.examples:,} of {found.instances:,} instances"),
        ("classes", f"{found.classes:,}" + _of(found.classes - found.classes_held, "on no client")),
        ("validation", f"{found.validation:,}"),
        ("test", f"{found.test:,}" + _of(found.test_in_training, "with inputs that training has too")),
        ("duplicates", f"{found.duplicates:,} instances repeat another one's inputs"),
    ]
    if found.test_classes_never_trained:
        lines.append(("test classes never trained on", f"{found.test_classes_never_trained:,}"))
    return lines


def distributions(found: Description) -> list[tuple[str, Spread]]:
    return [
        ("examples per client", found.sizes),
        ("classes per client", found.classes_per_client),
        ("KL(client ‖ everyone)", found.divergence_from_all),
        ("KL(client ‖ another)", found.divergence_between),
    ]


def histogram(values: Ints) -> list[tuple[str, float]]:
    """Counts over about a dozen bins: each whole number, or ranges even on a log scale."""
    if not len(values):
        return []
    low, high = int(values.min()), int(values.max())
    if high - low < BARS:
        return [(str(v), float((values == v).sum())) for v in range(low, high + 1)]
    edges = np.unique(np.geomspace(max(low, 1), high + 1, BARS + 1).round().astype(int))
    edges = edges if low else np.concatenate([[0], edges])
    count, _ = np.histogram(values, edges)
    bins = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    labels = [f"{a:,}" if b - a == 1 else f"{a:,}–{b - 1:,}" for a, b in bins]
    return list(zip(labels, count.astype(float).tolist(), strict=True))


def ranked(counts: Ints) -> list[tuple[int, int]]:
    """(rank, count) at ranks spread evenly over a log scale."""
    if not len(counts):
        return []
    ranks = np.unique(np.geomspace(1, len(counts), 3 * BARS).round().astype(int))
    return [(int(rank), int(counts[rank - 1])) for rank in ranks]


def _histogram(caption: str, values: Ints, what: str) -> str:
    bars = histogram(values)
    heights = {"clients": [value for _, value in bars]}
    return bar_chart(caption, [label for label, _ in bars], heights, x_title=what, y_title="clients")


def _print_bars(out: Console, bars: Sequence[tuple[str, float]], *, log: bool = False) -> None:
    shown = bars[:: max(1, len(bars) // BARS)] if log else bars
    width = max((len(label) for label, _ in shown), default=0)
    heights = [math.log10(value + 1) if log else value for _, value in shown]
    most = max([*heights, 1e-9])
    for (label, value), height in zip(shown, heights, strict=True):
        eighths = round(height / most * 40 * 8)
        bar = "█" * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")
        out.print(f"  {label:>{width}}  [cyan]{bar:<40}[/cyan]  {value:,.0f}", highlight=False)


def _marks(spread: Spread) -> tuple[float, ...]:
    return (
        spread.least,
        spread.quarter,
        spread.median,
        spread.three_quarters,
        spread.most,
        spread.mean,
    )


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"


def _of(count: int, what: str) -> str:
    return f" ({count:,} {what})" if count else ""
