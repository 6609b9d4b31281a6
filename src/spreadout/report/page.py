"""One self-contained HTML page about runs: scores, curves, bytes, the embedding space, privacy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spreadout import __version__
from spreadout.core.files import write_atomic
from spreadout.evaluation.metrics import described
from spreadout.report.classes_view import classes_section
from spreadout.report.config_view import config_section
from spreadout.report.deployment_view import deployment_section
from spreadout.report.document import as_script, document, figure, tab
from spreadout.report.histories import runs_data
from spreadout.report.privacy_view import privacy_section
from spreadout.report.scores import cards, data_notes, score_table, shown_count, warnings
from spreadout.runs.arms import Arm, shared_metrics

_SEEDS = "Lines are means over seeds, and bands go from the lowest to the highest seed. "


def write_page(arms: Sequence[Arm], output: Path, *, title: str) -> Path:
    """Write the page and return where it is."""
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(output, page(arms, title).encode())
    return output


def page(arms: Sequence[Arm], title: str, notes: Sequence[str] = ()) -> str:
    """The page's HTML; nothing in it refers to anything outside it. notes: what to say first."""
    seeds = len(arms[0].summaries)
    counts = (
        (_each(arms, "classes"), "classes"),
        (_clients(arms), "clients"),
        (_each(arms, "rounds"), "rounds"),
        (str(seeds), "seeds" if seeds > 1 else "seed"),
    )
    about = ", ".join([_each(arms, "dataset"), *(f"{n} {what}" for n, what in counts if n)])
    data = {**runs_data(arms), **_maps(arms)}
    for one, place in zip(data["arms"], data.pop("places"), strict=True):
        one["names"] = place
    overview = (warnings(arms, notes), cards(arms), score_table(arms), data_notes(arms))
    sections = [
        f"<script type=application/json id=runs>{as_script(data)}</script>",
        tab("overview", "Overview", *overview),
        tab("curves", "Curves", _curves(arms, data)),
        tab("bytes", "Bytes", _traffic(arms)),
        tab("classes", "Classes", classes_section(arms)),
        tab("clients", "Clients", _clients_section(arms)),
        tab("map", "Map", _space(arms)),
        tab("deployment", "Deployment", deployment_section(arms)),
        tab("privacy", "Privacy", privacy_section(arms)),
        tab("config", "Config", config_section(arms)),
        _origin(arms),
    ]
    return document(title, about, sections)


def _each(arms: Sequence[Arm], name: str) -> str:
    """What the runs have of something: one word if it is the same for all."""
    known = [arm.summaries[0][name] for arm in arms if arm.summaries[0][name] is not None]
    return " or ".join(dict.fromkeys(map(shown_count, known)))


def _curves(arms: Sequence[Arm], data: dict[str, Any]) -> str:
    """A view for each quantity worth one of its own; in each of them any other can be chosen."""
    there = {one["name"] for one in data["quantities"]}
    captions = {shared_metrics(arms)[0]: "Score", "loss": "Training loss"}
    captions |= {"max_cosine": "Cosine of the two nearest classes"}
    captions |= {"effective_rank": "Effective rank of classes"}
    drawn = [figure(text, "curves", quantity=name) for name, text in captions.items() if name in there]
    note = (
        f"<p class=note>{_SEEDS if len(arms[0].summaries) > 1 else ''}Every dot is an evaluation. Grey "
        "lines are the references of the overview. A dashed vertical line marks the evaluation from "
        "which on classes were collapsed. Arrow keys move along a chart; a click on a name hides it in "
        "all charts.</p>"
    )
    return f"{note}<div class=grid2>{''.join(drawn)}</div>"


def _traffic(arms: Sequence[Arm]) -> str:
    federated = [arm for arm in arms if not arm.is_central]
    name = described(shared_metrics(arms)[0]).name
    if not any(record[name] is not None for arm in federated for record in arm.histories[0]):
        return ""
    return figure("Score against bytes", "traffic") + (
        "<p class=note>Bytes of all clients together, measured on the tensors that travel.</p>"
    )


def _maps(arms: Sequence[Arm]) -> dict[str, Any]:
    """Maps of all arms that have one, of the first seed."""
    drawn = [arm for arm in arms if arm.projection is not None]
    names: list[Sequence[str]] = []  # those that several arms share stand here once
    for arm in arms:
        if arm.names not in names:
            names.append(arm.names)
    place = {arm.label: names.index(arm.names) for arm in arms}
    maps = [{"label": arm.label, "names": place[arm.label], **(arm.projection or {})} for arm in drawn]
    return {"maps": maps, "names": names, "places": [place[arm.label] for arm in arms]}


def _clients_section(arms: Sequence[Arm]) -> str:
    known = [arm for arm in arms if (arm.details or {}).get("clients")]
    if not known:
        return ""
    views = (
        ("Score and size of clients", "examples", "score"),
        ("Bytes and size of clients", "examples", "down"),
    )
    drawn = "".join(figure(text, "clients", x=x, y=y) for text, x, y in views)
    shown = min(len((arm.details or {})["clients"]["number"]) for arm in known)
    every = max((arm.details or {})["clients"]["of"] for arm in known)
    some = (
        f" {shown:,} of {every:,} clients are shown, evenly over their sizes." if shown < every else ""
    )
    note = (
        "Of the first seed. A client's score is the share of held-out examples that are found, averaged "
        "over its own labels. Bytes are measured over all clients; class rows are divided in proportion "
        f"to how many a client requests in a round.{some}"
    )
    return f"<div class=grid2>{drawn}</div><p class=note>{note}</p>"


def _space(arms: Sequence[Arm]) -> str:
    drawn = [arm for arm in arms if arm.projection is not None]
    if not drawn:
        return ""
    figures = (figure(arm.label, "map", arm=i) for i, arm in enumerate(drawn))
    return (
        "<p class=note>Class rows (discs) and held-out examples (dots in the colour of their class) of "
        "the first seed, projected onto their two leading singular directions. The circle outlines "
        "the unit sphere. Collapsed classes are one spot far from the centre. The wheel, + and − "
        "zoom; a click shows a class's nearest neighbours.</p><div class=controls data-search></div>"
        f"<div class=grid2>{''.join(figures)}</div>"
    )


def _origin(arms: Sequence[Arm]) -> str:
    seconds = sum(summary["seconds"] for arm in arms for summary in arm.summaries)
    return f"<footer>Written by spreadout {__version__}; {seconds:.0f} s of training in all</footer>"


def _clients(arms: Sequence[Arm]) -> str:
    """The numbers of clients; centralised runs, which have one, are left out next to others."""
    several = [arm for arm in arms if (arm.summaries[0]["clients"] or 0) > 1]
    return _each(several or arms, "clients")
