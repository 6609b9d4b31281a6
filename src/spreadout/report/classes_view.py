"""The part of the page about classes: whether they collapsed, how alike they are, which are found."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from spreadout.evaluation.similarity import BINS
from spreadout.report.charts import Line, bar_chart, line_chart
from spreadout.report.class_table import class_tables
from spreadout.report.document import figure, swatch
from spreadout.report.histories import collapse_of
from spreadout.report.prior_view import prior_table
from spreadout.runs.arms import Arm

BEFORE = 15  # the style of what was before training: grey and dashed
NEAR = 0.8  # cosines from which on a gauge is drawn as a warning


def classes_section(arms: Sequence[Arm]) -> str:
    """Gauges of collapse, frequent against rare classes, similarity, each of few classes, confusion."""
    charts = [chart for chart in (_by_frequency(arms), _similarity(arms)) if chart]
    drawn = f"<div class=grid2>{''.join(charts)}</div>" if charts else ""
    by_class = class_tables(arms)
    confused = any((arm.details or {}).get("confused") for arm in arms)
    matrix = figure("Confusion matrix", "confusion") if confused else ""
    return f"{_gauges(arms)}{drawn}{prior_table(arms)}{by_class}{matrix}"


def _gauges(arms: Sequence[Arm]) -> str:
    made = []
    for i, arm in enumerate(arms):
        nearest, mean, rank = (
            arm.geometry(name) for name in ("max_cosine", "mean_cosine", "effective_rank")
        )
        if nearest is None or mean is None or rank is None:
            continue
        most = float(arm.histories[0][0].get("effective_rank") or rank)  # random rows fill the space
        at = collapse_of(arm.histories[0])
        said = "Classes stay apart." if at is None else f"Collapsed from round {at} on."
        bars = [
            _gauge("nearest pair", nearest, f"{nearest:.2f}", nearest > NEAR),
            _gauge("mean cosine", mean, f"{mean:.2f}", mean > 0.5),
            _gauge("effective rank", rank / max(most, rank, 1e-9), f"{rank:.1f}", rank < 0.3 * most),
        ]
        made.append(
            f"<article class=card><h3>{swatch(i)}<bdi>{html.escape(arm.label)}</bdi></h3>"
            f"{''.join(bars)}<p class=note>{said}</p></article>"
        )
    if not made:
        return ""
    note = (
        "<p class=note>Gauges of collapse at the end of the run. Cosines near 1 mean that classes "
        "cannot be told apart; the effective rank is the number of directions they fill, beside that of "
        "random rows.</p>"
    )
    return f"<div class=gauges>{''.join(made)}</div>{note}"


def _gauge(name: str, share: float, text: str, high: bool) -> str:
    wide = 100 * min(max(share, 0.0), 1.0)
    kind = "track high" if high else "track"
    return (
        f"<div class=gauge><span>{name}</span><div class='{kind}' role=img aria-label='{name} {text}'>"
        f"<i style='width:{wide:.1f}%'></i></div><span>{text}</span></div>"
    )


def _by_frequency(arms: Sequence[Arm]) -> str:
    """Shares of held-out labels that were found, by how often training has their class."""
    known = [(arm, arm.details["by_frequency"]) for arm in arms if arm.details]
    known = [(arm, bins) for arm, bins in known if any(one["tested"] for one in bins)]
    if not known:
        return ""
    ranges = sorted({(one["low"], one["high"]) for _, bins in known for one in bins})
    labels = [f"{low:,}" if low == high else f"{low:,}–{high:,}" for low, high in ranges]
    shares = {
        arm.label: [
            next(
                (
                    100 * one["found"] / one["tested"]
                    for one in bins
                    if (one["low"], one["high"]) == place and one["tested"]
                ),
                None,
            )
            for place in ranges
        ]
        for arm, bins in known
    }
    first = {(one["low"], one["high"]): one for one in known[0][1]}
    notes = {
        "classes": [first.get(place, {}).get("classes", 0) for place in ranges],
        "labels tested": [first.get(place, {}).get("tested", 0) for place in ranges],
    }
    details = known[0][0].details or {}
    depth = details["depth"]
    how = "ranked first" if depth == 1 else f"among the first {depth}"
    return bar_chart(
        "Frequent against rare classes",
        labels,
        shares,
        x_title="training examples of the class",
        y_title=f"found, {how} (%)",
        y_range=(0, _top(shares.values())),
        notes=notes,
        styles=[arms.index(arm) for arm, _ in known],
    )


def _top(shares: Iterable[Sequence[float | None]]) -> float:
    """Where an axis of percentages ends: at 100, or where all values are small, above them."""
    most = max((value for some in shares for value in some if value is not None), default=100.0)
    return 100.0 if most > 50 or most <= 0 else 1.1 * most


def _similarity(arms: Sequence[Arm]) -> str:
    """How alike classes are: pairs by their cosine, before training and after."""
    known = [(arm, arm.details["similarity"]) for arm in arms if arm.details]
    known = [(arm, found) for arm, found in known if found]
    if not known:
        return ""
    middle = [-1 + (2 * i + 1) / BINS for i in range(BINS)]
    before = {tuple(found["before"]): arm.label for arm, found in known if found["before"]}
    lines = []
    for i, (values, label) in enumerate(before.items()):
        name = "before training" if len(before) == 1 else f"before training: {label}"
        lines.append(Line(name, middle, [100 * v for v in values], style=BEFORE + 8 * i))
    for arm, found in known:
        shares = [100 * v for v in found["after"]]
        lines.append(Line(arm.label, middle, shares, style=arms.index(arm)))
    return line_chart(
        "Similarity of classes before and after training",
        lines,
        x_title="cosine between two classes",
        y_title="pairs of classes (%)",
        x_range=(-1, 1),
        dots=False,
    )
