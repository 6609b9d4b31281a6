"""The server's state on disk, replaced atomically: tensors in safetensors, the rest in JSON.

`state.json` names its tensor file and that file's digest, and is moved into place last. Whenever the
process dies, the folder holds either the old state whole or the new one whole.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as dump_tensors
from torch import Tensor

from spreadout.core.client_state import ClientStates, PerClient
from spreadout.core.errors import UserError
from spreadout.core.files import write_atomic
from spreadout.core.state import ClientRecords, ServerState
from spreadout.core.tables import Sharded, Table, Tables, local_of
from spreadout.core.traffic import Traffic

FORMAT = 2
GROUPS = ("dense", "tables", "slots", "method", "records", "control", "clients", "scoring")
POINTER = "state.json"


def save(folder: Path, state: ServerState, extra: Mapping[str, Any]) -> None:
    """Write the state, which must be whole; `extra` is any JSON the run wants back with it."""
    folder.mkdir(parents=True, exist_ok=True)
    flat = _flatten(state)
    payload = dump_tensors(flat)
    tensors = f"state-{state.round:08d}.safetensors"
    write_atomic(folder / tensors, payload)
    record = {
        "format": FORMAT,
        "round": state.round,
        "tensors": tensors,
        "order": list(flat),  # safetensors sorts; sums and noise follow the model's own order
        "sha256": hashlib.sha256(payload).hexdigest(),
        "traffic": asdict(state.traffic),
        "refused": dict(state.refused),
        "setup_done": state.setup_done,
        "extra": dict(extra),
    }
    write_atomic(folder / POINTER, json.dumps(record, indent=1).encode())
    for old in folder.glob("state-*.safetensors"):
        if old.name != tensors:
            old.unlink(missing_ok=True)


def extra_of(folder: Path) -> dict[str, Any]:
    """The `extra` that was saved with the state, without reading the state."""
    try:
        return dict(json.loads((folder / POINTER).read_bytes())["extra"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def load(
    folder: Path, device: torch.device, sharded: frozenset[str] = frozenset()
) -> tuple[ServerState, dict[str, Any]]:
    """Read the state back, or say in one line what is wrong with it.

    sharded: tables of which, and of whose optimiser's state, this process reads its own rows only.
    """
    try:
        record = json.loads((folder / POINTER).read_bytes())
        path = folder / record["tensors"]
        if record["format"] != FORMAT:
            raise UserError(
                f"{folder}: checkpoint format {record['format']}, this version reads {FORMAT}"
            )
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != record["sha256"]:
                raise UserError(f"{folder}: {path.name} is damaged (its checksum does not match)")
        with safe_open(path, "pt") as tensors:
            groups = _read(tensors, record["order"], device, sharded)
        state = ServerState(
            record["round"],
            groups["dense"],
            groups["tables"],
            _by_part(groups["slots"]),
            stored=groups["method"],
            records=ClientRecords(**groups["records"]),
            control=groups["control"],
            scoring=groups["scoring"],
            clients=_per_client(groups["clients"]),
            traffic=Traffic(**record["traffic"]),
            refused=Counter(record["refused"]),
            setup_done=record["setup_done"],
        )
        return state, record["extra"]
    except FileNotFoundError as error:
        missing = Path(str(error.filename)).name
        raise UserError(f"{folder}: no complete checkpoint here ({missing} is missing)") from None
    except (json.JSONDecodeError, KeyError, TypeError, SafetensorError) as error:
        raise UserError(f"{folder}: unreadable checkpoint ({error})") from None


def _flatten(state: ServerState) -> dict[str, Tensor]:
    slots = {f"{part}|{name}": t for part, named in state.slots.items() for name, t in named.items()}
    groups: dict[str, Mapping[str, Table]] = {
        "dense": state.dense,
        "tables": state.tables,
        "slots": slots,
        "method": state.method_tensors(),
        "records": {name: value for name, value in vars(state.records).items() if value is not None},
        "control": state.control,
        "scoring": state.scoring,
        "clients": {f"{part}|clients": kept.clients for part, kept in state.clients.items()}
        | {f"{part}|values": kept.values for part, kept in state.clients.items()},
    }
    return {
        f"{group}:{name}": local_of(tensor).detach().cpu().contiguous()
        for group, tensors in groups.items()
        for name, tensor in tensors.items()
    }


def _read(
    file: Any, order: Sequence[str], device: torch.device, sharded: frozenset[str]
) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {name: {} for name in GROUPS}
    for key in order:
        group, _, name = key.partition(":")
        table = name if group == "tables" else name.partition("|")[0].rpartition("/")[2]
        if group in ("tables", "slots") and table in sharded:
            part = file.get_slice(key)

            def rows(start: int, stop: int, part: Any = part) -> Tensor:
                own: Tensor = part[start:stop]
                return own.to(device, copy=True)

            groups[group][name] = Sharded.made(part.get_shape()[0], rows)
        else:
            # Out of the file, aligned as usual.
            groups[group][name] = file.get_tensor(key).to(device, copy=True)
    return groups


def _by_part(slots: Mapping[str, Tensor]) -> dict[str, Tables]:
    parts: dict[str, Tables] = {}
    for key, tensor in slots.items():
        part, _, name = key.rpartition("|")
        parts.setdefault(part, {})[name] = tensor
    return parts


def _per_client(tensors: Mapping[str, Tensor]) -> ClientStates:
    parts = [name.removesuffix("|clients") for name in tensors if name.endswith("|clients")]
    return {part: PerClient(tensors[f"{part}|clients"], tensors[f"{part}|values"]) for part in parts}
