"""What ties a checkpoint to the config it was trained with: a digest of every section that matters.

Rounds may be added to a run, and it may be evaluated, saved, computed or deployed in another way: these
keys are free. A state trained with other rates, another model or method is another run's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from spreadout.config.values import read_toml
from spreadout.core.checksums import sha256
from spreadout.core.errors import UserError

# What may change between a run and its resumption; data are told apart by what they hold.
FREE = frozenset({"name", "rounds", "imports", "chosen", "eval", "run", "deploy", "data.path"})
ALONE = "others"  # the keys that are in no section


def digests_of(config: Path) -> dict[str, str]:
    """Of each section of a config that a checkpoint is bound to."""
    parts: dict[str, dict[str, object]] = {}
    for key, value in read_toml(config).items():
        section, inner = (key, value) if isinstance(value, dict) else (ALONE, {key: value})
        if key not in FREE:
            kept = {name: one for name, one in inner.items() if f"{section}.{name}" not in FREE}
            parts.setdefault(section, {}).update(kept)
    return {
        name: sha256(json.dumps(part, sort_keys=True, default=str).encode())
        for name, part in parts.items()
    }


def refuse_another(checkpoint: Path, config: Path, bound: Mapping[str, str] | None) -> None:
    """A checkpoint that was trained with another config; those of earlier versions do not say."""
    if bound is None:
        return
    here = digests_of(config)
    differ = sorted(name for name in here.keys() | bound.keys() if here.get(name) != bound.get(name))
    if differ:
        named = (
            "its seed or other single keys differ" if differ[0] == ALONE else f"[{differ[0]}] differs"
        )
        raise UserError(
            f"{checkpoint}: was trained with another config than {config.name} ({named}); put that "
            "back, or run it again with --force (force=True)"
        )
