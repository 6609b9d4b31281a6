"""The part of the page that says what clients give away, in words for whoever must approve it."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from spreadout.report.charts import bar_chart
from spreadout.report.document import figure
from spreadout.runs.arms import Arm
from spreadout.runs.promises import SIMULATED

NAMES = {
    "values": "What clients learned (their updates)",
    "loss": "How well the model fits their data (training loss)",
    "n_k": "How many examples each client has",
    "label counts": "How often each client has each class",
    "label sets": "Which labels occur together on one example",
    "feature moments": "The mean and variance of each client's features",
    "positives": "How many examples stand behind each class row",
    "rows": "Which classes each client holds (rows it requests)",
    "number of rows": "How many rows each client requests",
    "features": "Which features its examples have (rows it requests)",
    "presence": "Which clients took part, and when",
    "timing": "How long clients take, and how much they send",
    "examples": "The examples themselves",
    "run folder": "Counts of clients' data in the run's files",
    "validation examples": "Scores of examples that are cut from clients' data, and what they choose",
    "messages to the server": "What clients send to the server",
    "registration": "Which clients exist",
    "logs": "The run's logs",
}
STATUS = (
    "Protected: it leaves a client only with noise, under the guarantee above. Disclosed: it can be "
    "read as it is. Absent: nothing of the kind leaves a client."
)
SIMULATION = (
    " All data was on one machine, and the noise can be computed again from the run's seed. What "
    "follows is what a deployment with real clients and the same settings would promise."
)
READABLE = 10.0  # ε up to which its factor says something


def privacy_section(arms: Sequence[Arm]) -> str:
    """What every run wrote down, once for all that give away the same; nothing for earlier versions."""
    same: dict[str, list[str]] = {}
    for arm in arms:
        if arm.privacy is not None:
            said = f"{_promise(arm.privacy)}{_channels(arm.privacy)}"
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
        drawn.append(figure(_titled(arms), "curves", quantity="epsilon"))
    told = {
        arm.label: arm.privacy["releases"]
        for arm in arms
        if arm.privacy and arm.privacy["releases"] and not arm.privacy.get("audience")
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


def _titled(arms: Sequence[Arm]) -> str:
    """Wherever ε is shown, whether it protects anybody."""
    private = [arm.privacy["guarantee"] for arm in arms if arm.privacy and arm.privacy["epsilon"]]
    simulated = private.count(SIMULATED)
    if not simulated:
        return "ε spent"
    return f"ε spent ({SIMULATED})" if simulated == len(private) else "ε spent (some arms are simulated)"


def _promise(found: Mapping[str, Any]) -> str:
    """The guarantee: what it is, whom it is for, whom it holds against, how strong it is."""
    said = {"Guarantee": f"{found['guarantee']}."}
    if found["guarantee"] == SIMULATED:
        said["Guarantee"] += SIMULATION
    if found["epsilon"]:
        said |= {
            "Whose data": f"The unit of protection is {found['unit']}.",
            "Compared with": f"The same run where {found['adjacency']}.",
            "Against": f"{found['adversary']}.",
            "Released": _released(found),
            "Privacy loss": ", ".join(_level(one) for one in found["epsilon"]) + ".",
            "In words": _meaning(found),
        }
    rows = "".join(
        f"<tr><th scope=row>{name}</th><td>{html.escape(_sentence(text))}</td></tr>"
        for name, text in said.items()
    )
    return f"<div class=wide><table class='words promise'><tbody>{rows}</tbody></table></div>"


def _released(found: Mapping[str, Any]) -> str:
    most = max((int(count) for count in found["releases"]), default=0)
    if found.get("audience"):  # noise on the server's sum
        return f"The server has released {most:,} noised sums over its clients."
    return f"The client that took part most often has sent {most:,} noised updates."


def _meaning(found: Mapping[str, Any]) -> str:
    """What the first ε says about odds; the larger, the weaker."""
    at = (found.get("mechanism") or {}).get("delta")
    one = next((one for one in found["epsilon"] if one["delta"] == at), found["epsilon"][0])
    if one["epsilon"] is None:
        return "There is no bound on what can be concluded about a client."
    if one["epsilon"] > READABLE:
        return (
            f"ε above {READABLE:g} is a weak promise: by the bound alone, what is released may be "
            f"{math.exp(READABLE):,.0f} times as likely, or more, with this data as with other data."
        )
    return (
        f"Whatever is released is at most {math.exp(one['epsilon']):,.1f} times as likely with this "
        f"data as with the data it is compared with, apart from a probability of {one['delta']:g}. A "
        "factor of 1 would reveal nothing; the larger it is, the weaker the promise."
    )


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] if text[:1].isascii() else text  # ε stays small


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
        f"<p class=note>{STATUS}</p><div class=wide><table class=words><thead><tr><th></th>"
        f"<th scope=col>to {audience}</th><th scope=col>what that means here</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )
