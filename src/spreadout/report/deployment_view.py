"""The part of the page about a deployment: nodes present, answers, refusals and bytes by round."""

from __future__ import annotations

import html
from collections.abc import Sequence

from spreadout.core.traffic import human_bytes
from spreadout.report.charts import Line, line_chart
from spreadout.runs.arms import Arm
from spreadout.runs.deployed import Deployed


def deployment_section(arms: Sequence[Arm]) -> str:
    """Every arm that ran over Flower; nothing if there is none."""
    known = [(arm.label, arm.deployed) for arm in arms if arm.deployed is not None]
    if len(known) == 1:
        return deployment(known[0][1])
    return "".join(f"<h3><bdi>{html.escape(label)}</bdi></h3>{deployment(one)}" for label, one in known)


def deployment(found: Deployed) -> str:
    """Facts as cards, curves by round, and why updates were refused."""
    facts = "".join(
        f"<article class=card><h3>{name}</h3><p class=score><b>{html.escape(most)}</b></p>"
        f"<p class=note>{html.escape(more)}</p></article>"
        for name, most, more in _facts(found)
    )
    note = (
        "<p class=note>As told by the server. Bytes are those of the tensors in rounds, without what "
        "Flower adds to a message.</p>"
    )
    charts = _charts(found) if found.rounds else ""
    return f"<div class='cards small'>{facts}</div>{charts}{_refusals(found)}{note}"


def _facts(found: Deployed) -> list[tuple[str, str, str]]:
    there, rounds = found.there, [one for _, one in sorted(found.rounds.items())]
    facts = [("State", found.state, f"{len(rounds):,} round{'' if len(rounds) == 1 else 's'} so far")]
    if there is not None:
        needed = f"{there['needed']:,} needed to begin; they answer for {there['clients']:,} clients"
        facts.append(("Nodes present", f"{there['nodes']:,}", needed))
    if rounds:
        last, asked = rounds[-1], found.total("asked")
        every = f"round {last['round']}; of all rounds {found.total('accepted'):,} of {asked:,}"
        facts.append(("Updates accepted", f"{last['accepted']:,} of {last['asked']:,}", every))
        why = found.refused.most_common(1)
        most = f"most often: {why[0][0]}" if why else "nothing was refused"
        facts.append(("Refusals", f"{found.refused.total():,}", most))
        moved = f"{human_bytes(found.total('down'))} down, {human_bytes(found.total('up'))} up"
        both = found.total("down") + found.total("up")
        facts.append(("Bytes", human_bytes(both) if both else "–", moved if both else "not recorded"))
    return facts


def _charts(found: Deployed) -> str:
    places = sorted(found.rounds)
    rounds = [found.rounds[place] for place in places]

    def line(label: str, name: str) -> Line:
        known = [one for one in rounds if one.get(name) is not None]
        return Line(label, [one["round"] for one in known], [one[name] for one in known])

    refused = Line("refused", places, [sum(one["refused"].values()) for one in rounds])
    answers = [line("asked", "asked"), line("accepted", "accepted"), refused]
    drawn = [_chart("Answers by round", answers, "updates")]
    if any(one.get("nodes") is not None for one in rounds):
        drawn.append(_chart("Nodes present by round", [line("nodes", "nodes")], "nodes"))
    if any(one.get("down") is not None for one in rounds):
        moved = [line("down", "down"), line("up", "up")]
        drawn.append(_chart("Bytes by round", moved, "bytes of all clients", in_bytes=True))
    return f"<div class=grid2>{''.join(drawn)}</div>"


def _chart(caption: str, lines: Sequence[Line], y_title: str, *, in_bytes: bool = False) -> str:
    most = max(value for one in lines for value in one.mean)
    return line_chart(
        caption,
        lines,
        x_title="round",
        y_title=y_title,
        y_range=(0, 1.08 * most or 1),
        y_bytes=in_bytes,
    )


def _refusals(found: Deployed) -> str:
    """By reason, the most frequent first, with the last round it happened in."""
    rows = ""
    for reason, count in found.refused.most_common():
        last = max(place for place, one in found.rounds.items() if reason in one["refused"])
        name = f"<th scope=row><bdi>{html.escape(reason)}</bdi></th>"
        rows += f"<tr>{name}<td>{count:,}</td><td>{last:,}</td></tr>"
    if not rows:
        return ""
    return (
        "<h3>Why updates were refused</h3><div class=wide tabindex=0 role=region aria-label=Refusals>"
        "<table><thead><tr><th></th><th scope=col>updates</th><th scope=col>last in round</th></tr>"
        f"</thead><tbody>{rows}</tbody></table></div>"
    )
