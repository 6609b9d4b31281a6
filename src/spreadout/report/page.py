"""One self-contained HTML page about finished runs: table, curves, and the embedding space."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from spreadout.core.files import write_atomic
from spreadout.core.traffic import human_bytes
from spreadout.core.types import Record
from spreadout.evaluation.metrics import Metric, described
from spreadout.report.privacy_view import privacy_section
from spreadout.report.svg import LINES, Line, line_chart, plane
from spreadout.runs.arms import (
    SHOWN_GEOMETRY,
    Arm,
    best_central_of,
    shared_metrics,
    shared_references,
    shown,
    shown_geometry,
    spread,
)

_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))


def write_page(arms: Sequence[Arm], output: Path, *, title: str) -> Path:
    """Write the page and return where it is."""
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(output, page(arms, title).encode())
    return output


def page(arms: Sequence[Arm], title: str) -> str:
    """The page's HTML; nothing in it refers to anything outside it."""
    seeds = len(arms[0].summaries)
    about = (
        f"{_each(arms, 'dataset')}, {_each(arms, 'classes')} classes, {_clients(arms)} clients, "
        f"{_each(arms, 'rounds')} rounds, {seeds} seed{'s' if seeds > 1 else ''}"
    )
    drawn = [_table(arms), _legend(arms), _curves(arms), _space(arms)]
    sections = [*drawn, privacy_section(arms), _origin(arms)]
    return document(title, about, sections)


def _each(arms: Sequence[Arm], name: str) -> str:
    """What the runs have of something: one word if it is the same for all."""
    return " or ".join(dict.fromkeys(str(arm.summaries[0][name]) for arm in arms))


def document(title: str, about: str, sections: Sequence[str]) -> str:
    """A whole page around its sections."""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)} · spreadout</title><style>{_asset('page.css')}</style>"
        f"<body><main><header><h1>{html.escape(title)}</h1>"
        f"<p class=about>{html.escape(about)}</p></header>"
        f"{''.join(sections)}</main><script>{_asset('page.js')}</script></body></html>\n"
    )


_NOTES = {
    "max_cosine": " The largest cosine is that of the two nearest classes: near 1 they have collapsed.",
    "error_bound": " The error bound is the most examples that can be misclassified by Proposition 1 of "
    "FedAwS, the share 2ε/ρ (1.00: no promise).",
}


def _table(arms: Sequence[Arm]) -> str:
    names = shared_metrics(arms)
    geometry = shown_geometry(arms)
    head = [
        *(described(name).title for name in names),
        "down",
        "up",
        *(SHOWN_GEOMETRY[name] for name in geometry),
    ]
    rows = []
    for i, arm in enumerate(arms):
        scores = [spread(arm.metric(name)) for name in names]
        moved = [arm.bytes_per_visit(way) for way in ("down", "up")]
        cells = [
            *("<b>{}</b> <small>{}</small>".format(*shown(score)) for score in scores),
            *(human_bytes(count) if count else "–" for count in moved),
            *(_shown(arm.geometry(name), 1 if name == "effective_rank" else 2) for name in geometry),
        ]
        colour = LINES[i % len(LINES)]
        name = f"<i style='background:{colour}'></i>{html.escape(arm.label)}"
        filled = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f"<tr><th scope=row>{name}</th>{filled}</tr>")
    references = shared_references(arms)
    for label, metrics in references.items():
        values = [shown(metrics[name])[0] if name in metrics else "–" for name in names]
        empty = ["–"] * (len(head) - len(names))
        filled = "".join(f"<td>{cell}</td>" for cell in [*values, *empty])
        rows.append(f"<tr class=reference><th scope=row>{html.escape(label)}</th>{filled}</tr>")
    titles = "".join(f"<th scope=col>{html.escape(name)}</th>" for name in head)
    return (
        f"<div class=wide><table><thead><tr><th></th>{titles}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        "<p class=note>Means over seeds, ± one standard deviation. Bytes per client and round, measured "
        f"on the tensors that travel.{''.join(_NOTES.get(name, '') for name in geometry)}"
        f"{_about_references(arms) if references else ''}</p>"
    )


def _about_references(arms: Sequence[Arm]) -> str:
    best = best_central_of(arms)
    known = f" The best with all data in one place is {html.escape(best)}." if best else ""
    return f" The last rows are references, made from the training data in one place.{known}"


def _legend(arms: Sequence[Arm]) -> str:
    entries = (
        f"<span><i style='background:{LINES[i % len(LINES)]}'></i>{html.escape(arm.label)}</span>"
        for i, arm in enumerate(arms)
    )
    return f"<p class=legend>{''.join(entries)}</p>"


def _curves(arms: Sequence[Arm]) -> str:
    charts = _metric_curves(arms, described(shared_metrics(arms)[0]))
    tables = [arm for arm in arms if arm.geometry("max_cosine") is not None]  # some have no class table
    for caption, key, height in _GEOMETRY_CURVES:
        lines = _lines(arms, lambda r: float(r["round"]), key, only=tables)
        if any(line.x for line in lines):
            drawn = line_chart(lines, x_title="round", y_title=SHOWN_GEOMETRY[key], y_range=height)
            charts.append((caption, drawn))
    return f"<section class=grid2>{''.join(_figure(name, chart) for name, chart in charts)}</section>"


_GEOMETRY_CURVES = (
    ("How close the two nearest classes are", "max_cosine", (-0.2, 1)),
    ("Effective rank of the class table", "effective_rank", None),
)


def _metric_curves(arms: Sequence[Arm], metric: Metric) -> list[tuple[str, str]]:
    """A metric by round and by traffic, on an axis of its own unit and range; none without a value."""
    by_round = _lines(arms, lambda r: float(r["round"]), metric.name)
    if not any(line.x for line in by_round):
        return []
    height = metric.axis([v for line in by_round for v in (*line.low, *line.high)])
    drawn = line_chart(by_round, x_title="round", y_title=metric.title, y_range=height)
    charts = [(f"{metric.name} by round", drawn)]
    federated = [arm for arm in arms if arm.summaries[0]["bytes"]["participations"]]
    if federated:
        most = max(_bytes_moved(record) for arm in federated for record in arm.histories[0])
        size, unit = next((s, u) for s, u in _UNITS if most >= s)
        drawn = line_chart(
            _lines(arms, lambda r: _bytes_moved(r) / size, metric.name, only=federated),
            x_title=f"{unit} moved by all clients, both ways",
            y_title=metric.title,
            y_range=height,
            x_format=lambda value: f"{value:.4g}",
        )
        charts.append((f"{metric.name} by traffic", drawn))
    return charts


def _lines(
    arms: Sequence[Arm], x: Callable[[Record], float], key: str, only: Sequence[Arm] | None = None
) -> list[Line]:
    lines = []
    for i, arm in enumerate(arms):
        if only is not None and arm not in only:
            continue
        every = zip(*arm.histories, strict=False)  # the same evaluation of every seed
        steps = [step for step in every if all(record[key] is not None for record in step)]
        values = [[float(record[key]) for record in step] for step in steps]
        lines.append(
            Line(
                arm.label,
                LINES[i % len(LINES)],
                [x(step[0]) for step in steps],
                [sum(v) / len(v) for v in values],
                [min(v) for v in values],
                [max(v) for v in values],
            )
        )
    return lines


def _space(arms: Sequence[Arm]) -> str:
    figures = []
    for arm in arms:
        if arm.projection is None:
            continue
        drawn = plane(arm.projection["classes"], arm.projection["examples"], arm.projection["labels"])
        figures.append(_figure(arm.label, drawn))
    if not figures:
        return ""
    return (
        "<h2>The embedding space</h2><p class=note>Class rows (discs) and held-out examples (dots, in "
        "their class's colour) of the first seed, on the plane of both's two leading singular "
        "directions. The circle is the unit sphere's shadow. A collapsed space is one spot far from the "
        "centre.</p>"
        f"<section class=planes>{''.join(figures)}</section>"
    )


def _origin(arms: Sequence[Arm]) -> str:
    first = arms[0].summaries[0]
    made = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    seconds = sum(summary["seconds"] for arm in arms for summary in arm.summaries)
    where = html.escape(first["device"])
    return f"<footer>{html.escape(made)}; {where}; {seconds:.0f} s of training in all</footer>"


def _figure(caption: str, drawing: str) -> str:
    return f"<figure><figcaption>{html.escape(caption)}</figcaption>{drawing}</figure>"


def _shown(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _clients(arms: Sequence[Arm]) -> str:
    """The numbers of clients; centralised runs, which have one, are left out next to others."""
    several = [arm for arm in arms if int(arm.summaries[0]["clients"]) > 1]
    return _each(several or arms, "clients")


def _bytes_moved(record: Record) -> float:
    return float(record["bytes_down"] + record["bytes_up"])


def _asset(name: str) -> str:
    return resources.files("spreadout.report").joinpath(name).read_text(encoding="utf-8")
