"""The part of the page about the prior over classes: what it gains, on frequent and on rare ones."""

from __future__ import annotations

import html
from collections.abc import Sequence
from statistics import fmean

from spreadout.report.document import swatch
from spreadout.runs.arms import Arm

NOTE = (
    "<p class=note>Scores without the prior over classes → with it (mean over seeds). Frequent classes "
    "are the fewest that have half of all labels. “frequent” and “infrequent” are the parts of P@k that "
    "they bring, and add up to it; in PSP@k a find counts more the rarer its class is.</p>"
)


def prior_table(arms: Sequence[Arm]) -> str:
    """A line for every arm that ranks with a prior; nothing where none does."""
    found = [[s["prior"] for s in arm.summaries if s.get("prior")] for arm in arms]
    known = [(i, arm, found[i]) for i, arm in enumerate(arms) if found[i]]
    if not known:
        return ""
    names = list(dict.fromkeys(name for _, _, gains in known for name in gains[0]["without"]))
    rows = []
    for i, arm, gains in known:
        cells = [f"{fmean(gain['weight'] for gain in gains):.3g}"]
        for name in names:
            pairs = [(g["without"].get(name), g["with_prior"].get(name)) for g in gains]
            both = [(a, b) for a, b in pairs if a is not None and b is not None]
            sides = [fmean(side) for side in zip(*both, strict=True)]
            cells.append(f"{sides[0]:.1f} → <b>{sides[1]:.1f}</b>" if both else "–")
        label = f"{swatch(i)}<bdi>{html.escape(arm.label)}</bdi>"
        shown = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f"<tr><th scope=row>{label}</th>{shown}</tr>")
    head = "".join(f"<th scope=col>{html.escape(name)}</th>" for name in ("", "τ", *names))
    table = (
        "<div class=wide tabindex=0 role=region aria-label=Prior><table><thead>"
        f"<tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
    return f"<h3>What the prior over classes changes</h3>{table}{NOTE}"
