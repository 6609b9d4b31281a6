"""A page of what an observer of requests believes: in the mean over clients, and of single ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from spreadout.core.files import write_atomic
from spreadout.privacy.request_audit import Look
from spreadout.report.charts import Line, line_chart
from spreadout.report.document import as_script, document, figure
from spreadout.runs.audit import Watched

MOST_CLIENTS, MOST_REQUESTS, MOST_CANDIDATES = 60, 60, 30


def write_audit(watched: Watched, output: Path, *, title: str) -> Path:
    """Write the page and return where it is."""
    kept = replace(watched, requests=[(client, list(rows)) for client, rows in watched.requests])
    looks = kept.looks()
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(output, audit_page(looks, believed(kept), title).encode())
    return output


def believed(watched: Watched) -> list[dict[str, Any]]:
    """Of some clients, those seen most often first: how likely each candidate was after each request.

    Candidates are the client's own classes, and of the others those that were ever likeliest.
    """
    told: dict[int, list[dict[int, float]]] = {}
    for one in watched.beliefs():
        told.setdefault(one["client"], []).append(one["posterior"])
    often = sorted(told, key=lambda client: (-len(told[client]), client))[:MOST_CLIENTS]
    own = watched.data.rows_of(torch.tensor(often, dtype=torch.int64))["classes"]
    found = []
    for i, client in enumerate(often):
        seen, held = told[client][:MOST_REQUESTS], set(own[i].tolist())
        most: dict[int, float] = {}
        for posterior in seen:
            most |= {c: max(p, most.get(c, 0.0)) for c, p in posterior.items()}
        others = sorted(most.keys() - held, key=lambda c: (-most[c], c))
        rows = [*sorted(held)[:MOST_CANDIDATES], *others[:MOST_CANDIDATES]]
        cells = [
            [place, turn, posterior[c]]
            for turn, posterior in enumerate(seen)
            for place, c in enumerate(rows)
            if posterior.get(c)
        ]
        holds = [c in held for c in rows]
        found.append(
            {"client": client, "classes": rows, "own": holds, "cells": cells, "requests": len(seen)}
        )
    return found


def audit_page(looks: Sequence[Look], clients: Sequence[dict[str, Any]], title: str) -> str:
    """Curves over the number of requests seen, and a picture of what is believed of one client."""
    seen = [look.requests for look in looks]
    shares = {
        "how sure it is of a class that the client holds": [100 * look.confidence for look in looks],
        "classes found among its best guesses": [100 * look.found for look in looks],
        "clients whose classes are all known": [100 * look.exposed for look in looks],
    }
    lines = [Line(name, seen, values) for name, values in shares.items()]
    charts = [
        line_chart(
            "What the observer knows",
            lines,
            x_title="requests seen of a client",
            y_title="share (%)",
            y_range=(0, 100),
        ),
        line_chart(
            "Classes that may still be a client's",
            [Line("candidates", seen, [look.candidates for look in looks])],
            x_title="requests seen of a client",
            y_title="candidates, mean over clients",
            y_range=(0, 1.05 * max((look.candidates for look in looks), default=1)),
        ),
    ]
    last = looks[-1]
    verdict = (
        f"After {last.requests} requests the observer finds {100 * last.found:.0f} % of a client's "
        f"classes and can name all classes of {100 * last.exposed:.0f} % of the clients without doubt."
    )
    data = f"<script type=application/json id=runs>{as_script({'beliefs': list(clients)})}</script>"
    note = (
        "<p class=note>Rows are candidate classes: first those the client holds (●, blue), then those "
        "it does not. The stronger the colour of a cell, the surer the observer is that the client "
        "holds the class, after so many requests. All it sees is which rows are requested.</p>"
    )
    picture = figure("What is believed of one client", "beliefs") if clients else ""
    return document(
        title,
        "what a server that watches requests can learn of its clients' classes",
        [data, f"<p>{verdict}</p>", f"<div class=grid2>{''.join(charts)}</div>", picture, note],
    )
