"""The best model so far, kept beside the one in training (`eval.keep = "best"`).

Which one is best is said by examples that nobody trains on and nobody is judged by: the validation part.
"""

from __future__ import annotations

from dataclasses import replace

from spreadout.core.state import ServerState
from spreadout.core.tables import Sharded, Table, local_of

PARTS = ("dense", "tables", "scoring")  # all that answers need


def keep_(state: ServerState) -> None:
    """Keep a copy of the model as it is now, in place of the one before."""
    state.kept = {
        f"{part}/{name}": _copy(value) for part in PARTS for name, value in getattr(state, part).items()
    }


def kept_model(state: ServerState) -> ServerState:
    """The state with the kept model in place of the last one; without a kept one, as it is."""
    if not state.kept:
        return state
    found: dict[str, dict[str, Table]] = {part: {} for part in PARTS}
    for key, value in state.kept.items():
        part, _, name = key.partition("/")
        found[part][name] = value
    dense = {name: local_of(value) for name, value in found["dense"].items()}
    scoring = {name: local_of(value) for name, value in found["scoring"].items()}
    return replace(state, dense=dense, tables=found["tables"], scoring=scoring, slots={}, kept={})


def _copy(value: Table) -> Table:
    here = local_of(value).detach().clone()
    return replace(value, local=here) if isinstance(value, Sharded) else here
