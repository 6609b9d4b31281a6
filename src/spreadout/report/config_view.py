"""The part of the page that says how its runs were made, and how to make them again."""

from __future__ import annotations

import html
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tomli_w

from spreadout.runs.arms import Arm


def config_section(arms: Sequence[Arm]) -> str:
    """What differs between arms, all settings, and the command for each."""
    known = [arm for arm in arms if arm.config]
    if not known:
        return ""
    return f"{_settings(known)}{''.join(map(_again, known))}{_versions(arms)}"


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their full names, as a config would write them.

    >>> list(flat({"rounds": 3, "data": {"source": {"name": "digits"}}}))
    [('rounds', '3'), ('data.source.name', 'digits')]
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else str(value)


def _settings(arms: Sequence[Arm]) -> str:
    each = [dict(flat(arm.config)) for arm in arms]
    names = list(dict.fromkeys(name for one in each for name in one))
    differing = [name for name in names if len({one.get(name) for one in each}) > 1]
    alike = [name for name in names if name not in differing]
    head = "".join(f"<th scope=col><bdi>{html.escape(arm.label)}</bdi></th>" for arm in arms)

    def table(rows: Sequence[str], kind: str) -> str:
        body = "".join(
            f"<tr class={kind}>{_cells(name, [one.get(name) for one in each])}</tr>" for name in rows
        )
        return (
            "<div class=wide tabindex=0 role=region aria-label=Settings><table class=settings><thead>"
            f"<tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    shown = f"<h3>What differs</h3>{table(differing, 'differs')}" if differing and len(arms) > 1 else ""
    title = f"Settings that all share ({len(alike)})" if len(arms) > 1 else "All settings"
    return f"{shown}<details><summary>{title}</summary>{table(alike, 'alike')}</details>"


def _cells(name: str, values: Sequence[str | None]) -> str:
    """A setting and its values; those that are not what most arms have are marked."""
    usual = Counter(values).most_common(1)[0][0]
    wrapped = re.sub(r"([._])", r"\1<wbr>", html.escape(name))
    marks = (" class=other" if value != usual else "" for value in values)
    shown = (html.escape("–" if value is None else value) for value in values)
    cells = "".join(f"<td{mark}>{text}</td>" for mark, text in zip(marks, shown, strict=True))
    return f"<th scope=row>{wrapped}</th>{cells}"


def _again(arm: Arm) -> str:
    """A file to save, and the command that runs it."""
    file = f"{arm.name}.toml"
    seeds = [str(summary["seed"]) for summary in arm.summaries]
    command = ["spreadout", "run", file]
    if len(seeds) > 1:
        command = ["spreadout", "compare", file, "--seeds", ",".join(seeds)]
    own = arm.config.get("given") or arm.config.get("own")
    said = (
        f"<p class=note>Save this as <code>{html.escape(file)}</code>, then "
        f"<code>{html.escape(shlex.join(command))}</code></p>"
    )
    if own:
        said += "<p class=note>It was given parts in Python, which are not in this file.</p>"
    text = html.escape(tomli_w.dumps(dict(arm.config)))
    return (
        f"<h3>Make it again: <bdi>{html.escape(arm.label)}</bdi></h3>{said}"
        f"<details><summary>{html.escape(file)}</summary><pre tabindex=0>{text}</pre></details>"
    )


def _versions(arms: Sequence[Arm]) -> str:
    made = {
        f"{', '.join(map(' '.join, summary['versions'].items()))}; {summary['device']}"
        for arm in arms
        for summary in arm.summaries
        if summary["versions"]
    }
    return f"<h3>Made with</h3><p class=note>{'<br>'.join(html.escape(one) for one in sorted(made))}</p>"
