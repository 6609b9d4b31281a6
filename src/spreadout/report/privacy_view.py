"""The part of the page that says what clients give away, in words for whoever must approve it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from spreadout.report.charts import bar_chart
from spreadout.report.document import figure
from spreadout.runs.arms import Arm

NAMES = {
    "values": "What clients learned (their updates)",
    "loss": "How well the model fits their data (training loss)",
    "n_k": "How many examples each client has",
    "label counts": "How often each client has each class",
    "label sets": "Which labels occur together on one example",
    "feature moments": "The mean and variance of each client's features",
    "positives": "How many examples stand behind each class row",
    "rows": "Which classes each client holds (rows it asks for)",
    "features": "Which features its examples have (rows it asks for)",
    "presence": "Which clients took part, and when",
    "timing": "How long clients take, and how much they send",
    "examples": "The examples themselves",
    "logs": "How much was sent in the run",
}


def privacy_section(arms: Sequence[Arm]) -> str:
    """What every run wrote down, once for all that give away the same; nothing for earlier versions."""
    same: dict[str, list[str]] = {}
    for arm in arms:
        if arm.privacy is not None:
            said = f"<p class=note>{html.escape(_promise(arm.privacy))}</p>{_channels(arm.privacy)}"
            same.setdefault(said, []).append(html.escape(arm.label))
    if not same:
        return ""
    alone = sum(map(len, same.values())) == 1
    parts = (
        (f"<h3>{', '.join(labels)}</h3>" if not alone else "") + said for said, labels in same.items()
    )
    return f"<h2>What clients give away</h2>{_spent(arms)}{''.join(parts)}"


def _spent(arms: Sequence[Arm]) -> str:
    """ε by round, and how many noised updates clients have sent, where there are such."""
    drawn = []
    if any(record.get("epsilon") is not None for arm in arms for record in arm.histories[0]):
        drawn.append(figure("ε spent", "curves", quantity="epsilon"))
    told = {
        arm.label: arm.privacy["releases"] for arm in arms if arm.privacy and arm.privacy["releases"]
    }
    if told:
        counts = sorted({int(count) for found in told.values() for count in found})
        bars = {label: [found.get(str(count), 0) for count in counts] for label, found in told.items()}
        drawn.append(
            bar_chart(
                "How much clients have given away",
                [str(count) for count in counts],
                bars,
                x_title="noised updates sent",
                y_title="clients",
                styles=[i for i, arm in enumerate(arms) if arm.label in told],
            )
        )
    return f"<div class=grid2>{''.join(drawn)}</div>" if drawn else ""


def _promise(found: Mapping[str, Any]) -> str:
    """The guarantee in sentences, with its unit and who it holds against."""
    said = f"Guarantee: {found['guarantee']}."
    if not found["epsilon"]:
        return said
    levels = ", ".join(_level(one) for one in found["epsilon"])
    most = max((int(count) for count in found["releases"]), default=0)
    about = f"A client that took part most often has sent {most} noised updates"
    if found.get("audience"):  # noise on the server's sum
        about = f"The server has released {most} noised sums over its clients"
    return (
        f"{said} {about}: {levels}. "
        f"The unit is {found['unit']}: {found['adjacency']}. Adversary: {found['adversary']}."
    )


def _level(one: Mapping[str, Any]) -> str:
    epsilon = "∞ (no promise)" if one["epsilon"] is None else f"{one['epsilon']:.2f}"
    return f"ε = {epsilon} at δ = {one['delta']:g}"


def _channels(found: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th scope=row>{html.escape(NAMES.get(name, name))}</th>"
        f"<td><b class='status {one['status']}'>{one['status']}</b></td>"  # one of three words
        f"<td>{html.escape(one['what'])}</td></tr>"
        for name, one in found["channels"].items()
    )
    audience = html.escape(found.get("audience") or "the server")
    return (
        f"<div class=wide><table class=words><thead><tr><th></th><th scope=col>to {audience}</th>"
        f"<th scope=col>how</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
