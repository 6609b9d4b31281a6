"""What was reached: warnings, a card for each arm, and the table of all scores beside references."""

from __future__ import annotations

import html
from collections.abc import Sequence

from spreadout.core.traffic import human_bytes
from spreadout.evaluation.metrics import described
from spreadout.report.document import swatch
from spreadout.runs.arms import (
    SHOWN_GEOMETRY,
    Arm,
    best_central_of,
    shared_metrics,
    shared_references,
    shown,
    shown_geometry,
    spread,
    unlike_data,
)

MOST_NOTES = 20  # about the data that are shown: a wide table has one for every column
_MEANS = "Means over seeds, ± one standard deviation. "
_NOTES = {
    "max_cosine": " The largest cosine is that of the two nearest classes: near 1 they have collapsed.",
}


def warnings(arms: Sequence[Arm], notes: Sequence[str] = ()) -> str:
    """What a reader must know before comparing numbers."""
    said = list(notes)
    if unlike := unlike_data(arms):
        said.append(unlike)
    for arm in arms:
        for summary in arm.summaries:
            if so_far := summary.get("unfinished"):
                said.append(
                    f"{arm.label}, seed {summary['seed']}: is not finished. Shown is round "
                    f"{so_far['round']} of {so_far['of']}, from its last checkpoint."
                )
        for one in arm.summaries[0].get("findings", []):
            said.append(f"{arm.label}: {one['name']}: {one['sign']}; {one['remedy']}")
    return "".join(f"<p class=warning>{html.escape(text)}</p>" for text in said)


def data_notes(arms: Sequence[Arm]) -> str:
    """What was said of the data before training; whose it is, unless all arms were told the same."""
    told: dict[str, list[str]] = {}
    for arm in arms:
        for note in dict.fromkeys(n for s in arm.summaries for n in s.get("data_notes", [])):
            told.setdefault(note, []).append(arm.label)
    if not told:
        return ""
    said = (
        note if len(labels) == len(arms) else f"{', '.join(labels)}: {note}"
        for note, labels in told.items()
    )
    shown = [html.escape(text) for text in said]
    if len(shown) > MOST_NOTES:
        shown = [*shown[:MOST_NOTES], f"and {len(shown) - MOST_NOTES} more (data_notes of summary.json)"]
    items = "".join(f"<li>{text}</li>" for text in shown)
    return f"<h3>Notes on the data</h3><ul class=note>{items}</ul>"


def shown_count(value: int | str | None) -> str:
    """A number as people read it; that of a run which is not finished may not be known."""
    return "not known yet" if value is None else f"{value:,}" if isinstance(value, int) else value


def cards(arms: Sequence[Arm]) -> str:
    """Method, data, score, bytes, time and privacy of every arm at a glance."""
    name = shared_metrics(arms)[0]
    made = []
    for i, arm in enumerate(arms):
        summary = arm.summaries[0]
        mean, deviation = shown(spread(arm.metric(name)))
        moved = sum(sum(s["bytes"][way] for way in ("down", "up")) for s in arm.summaries)
        facts = {
            "method": str(summary["method"]),
            "data": ", ".join([str(summary["dataset"]), *_known(summary["classes"], "classes")]),
            "clients": "all data in one place" if arm.is_central else shown_count(summary["clients"]),
            "bytes": human_bytes(moved / len(arm.summaries)) if moved else "none",
            "time": _time(sum(s["seconds"] for s in arm.summaries) / len(arm.summaries)),
            "privacy": _privacy(arm),
        }
        rows = "".join(f"<dt>{key}</dt><dd>{html.escape(text)}</dd>" for key, text in facts.items())
        made.append(
            f"<article class=card><h3>{swatch(i)}<bdi>{html.escape(arm.label)}</bdi></h3>"
            f"<p class=score><b>{mean}</b> <small>{f'{deviation} · ' if deviation else ''}"
            f"{html.escape(described(name).title)}</small></p><dl>{rows}</dl></article>"
        )
    return f"<div class=cards>{''.join(made)}</div>"


def _known(count: int | None, what: str) -> list[str]:
    return [] if count is None else [f"{count:,} {what}"]


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _privacy(arm: Arm) -> str:
    found = arm.summaries[0].get("privacy")
    if found is None:
        return "no guarantee"
    epsilon = "∞, no guarantee" if found["epsilon"] is None else f"{found['epsilon']:.2f}"
    simulated = " (simulated: no guarantee)" if found.get("simulated") and found["epsilon"] else ""
    return f"ε = {epsilon} at δ = {found['delta']:g}{simulated}"


def score_table(arms: Sequence[Arm]) -> str:
    """Shared metrics, bytes of one visit, the geometry of classes; references in the last rows."""
    names = shared_metrics(arms)
    geometry = [name for name in shown_geometry(arms) if name != "error_bound"]
    head = [
        *(described(name).title for name in names),
        "down, per client and round",
        "up, per client and round",
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
        name = f"{swatch(i)}<bdi>{html.escape(arm.label)}</bdi>"
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
        "<div class=wide tabindex=0 role=region aria-label=Scores><table><thead>"
        f"<tr><th></th>{titles}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f"<p class=note>{_MEANS if len(arms[0].summaries) > 1 else ''}Bytes are measured on the tensors "
        f"that travel.{''.join(_NOTES.get(name, '') for name in geometry)}"
        f"{_about_references(arms) if references else ''}</p>"
    )


def _about_references(arms: Sequence[Arm]) -> str:
    best = best_central_of(arms)
    known = f" The best with all data in one place is {html.escape(best)}." if best else ""
    return f" The last rows are references, made from the training data in one place.{known}"


def _shown(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
