"""The server's state on disk, replaced atomically: tensors in safetensors, the rest in JSON.

`state.json` names its tensor file and that file's digest, says how far the run's logs belong to it,
carries a digest of itself, and is moved into place last. Whenever the process dies, the folder holds
either the old state whole or the new one whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from spreadout.core.checksums import digest_of, read_json, unsealed, write_sealed
from spreadout.core.client_state import ClientStates, PerClient
from spreadout.core.errors import UserError
from spreadout.core.files import sweep as sweep_temporary
from spreadout.core.state import ClientRecords, ServerState
from spreadout.core.tables import Sharded, Table, Tables, local_of
from spreadout.core.tensor_files import write_tensors
from spreadout.core.traffic import Traffic
from spreadout.core.written import as_written
from spreadout.runs.written import Pointer

FORMAT = 3
GROUPS = (
    "dense",
    "tables",
    "slots",
    "method",
    "records",
    "control",
    "clients",
    "scoring",
    "robust",
    "central",
    "kept",
)
POINTER, STATES = "state.json", "state-*.safetensors"
REMEDY = "restore the folder from a copy, or run it again with --force (force=True)"


def save(
    folder: Path,
    state: ServerState,
    extra: Mapping[str, Any],
    logs: Mapping[str, Mapping[str, Any]] | None = None,
    config: Mapping[str, str] | None = None,
) -> None:
    """Write the state, which must be whole; `extra` is any JSON the run wants back with it.

    logs: how far the run's logs belong to this state (`logs.Marker`). config: the one it was trained
    with (`bound.digests_of`).
    """
    with suppress(FileExistsError):
        folder.mkdir()
    flat = tensors_of(state)
    tensors = f"state-{state.round:08d}.safetensors"
    digest = write_tensors(folder / tensors, flat)
    record = {
        "format": FORMAT,
        "round": state.round,
        "tensors": tensors,
        "order": list(flat),  # the file sorts; sums and noise follow the model's own order
        "sha256": digest,
        "logs": logs or {},
        "traffic": asdict(state.traffic),
        "refused": dict(state.refused),
        "setup_done": state.setup_done,
        "extra": dict(extra),
        **({} if config is None else {"config": dict(config)}),
    }
    write_sealed(folder / POINTER, record)
    _remove_all_but(folder, tensors)


def read_pointer(folder: Path) -> dict[str, Any] | None:
    """What the checkpoint here says of itself; None before the first one is complete."""
    path = folder / POINTER
    try:
        record = read_json(path)
    except FileNotFoundError:
        if _is_first(folder):
            return None
        raise UserError(f"{folder}: no complete checkpoint here ({POINTER} is missing)") from None
    except ValueError as error:
        raise UserError(f"{path}: is damaged ({error}); {REMEDY}") from None
    format = record.get("format") if isinstance(record, dict) else None
    if isinstance(format, int) and format != FORMAT:
        raise UserError(
            f"{folder}: checkpoint format {format}, this version reads {FORMAT}; resume it with the "
            "version that wrote it, or run it again with --force (force=True)"
        )
    try:
        found = unsealed(record)
    except ValueError as error:
        raise UserError(f"{path}: is damaged ({error}); {REMEDY}") from None
    return as_written(Pointer, found, path, REMEDY)


def _is_first(folder: Path) -> bool:
    """Whether no checkpoint was ever complete here: the first one is that of round 0."""
    return all(old.name == "state-00000000.safetensors" for old in folder.glob(STATES))


def sweep(folder: Path) -> None:
    """Remove what a process that was killed while saving left behind."""
    sweep_temporary(folder, (POINTER, STATES))
    pointer = read_pointer(folder)
    if pointer is not None and (folder / pointer["tensors"]).is_file():
        _remove_all_but(folder, pointer["tensors"])


def _remove_all_but(folder: Path, tensors: str) -> None:
    for old in folder.glob(STATES):
        if old.name != tensors:
            old.unlink(missing_ok=True)


def load(
    folder: Path, device: torch.device, sharded: frozenset[str] = frozenset()
) -> tuple[ServerState, dict[str, Any]]:
    """Read the state back, or say in one line what is wrong with it.

    sharded: tables of which, and of whose optimiser's state, this process reads its own rows only.
    """
    record = read_pointer(folder)
    if record is None:
        raise UserError(f"{folder}: no complete checkpoint here ({POINTER} is missing)")
    path = folder / record["tensors"]
    try:
        if digest_of(path) != record["sha256"]:
            raise UserError(f"{path}: is damaged (its checksum does not match); {REMEDY}")
        with safe_open(path, "pt") as tensors:
            if sorted(tensors.keys()) != sorted(record["order"]):
                raise UserError(f"{path}: does not hold what {POINTER} names; {REMEDY}")
            groups = _read(tensors, record["order"], device, sharded)
    except FileNotFoundError:
        raise UserError(f"{folder}: no complete checkpoint here ({path.name} is missing)") from None
    except SafetensorError as error:
        raise UserError(f"{path}: is damaged ({error}); {REMEDY}") from None
    try:
        state = ServerState(
            record["round"],
            groups["dense"],
            groups["tables"],
            _by_part(groups["slots"]),
            stored=groups["method"],
            records=ClientRecords(**groups["records"]),
            control=groups["control"],
            scoring=groups["scoring"],
            robust=groups["robust"],
            kept=groups["kept"],
            central=groups["central"],
            clients=_per_client(groups["clients"]),
            traffic=Traffic(**record["traffic"]),
            refused=Counter(record["refused"]),
            setup_done=record["setup_done"],
        )
    except (TypeError, KeyError) as error:  # a name that no state has, or half of a client's
        raise UserError(f"{folder}: is damaged or was changed ({error}); {REMEDY}") from None
    return state, record["extra"]


def tensors_of(state: ServerState) -> dict[str, Tensor]:
    """All that is saved, under flat names."""
    slots = {f"{part}|{name}": t for part, named in state.slots.items() for name, t in named.items()}
    groups: dict[str, Mapping[str, Table]] = {
        "dense": state.dense,
        "tables": state.tables,
        "slots": slots,
        "method": state.method_tensors(),
        "records": {name: value for name, value in vars(state.records).items() if value is not None},
        "control": state.control,
        "scoring": state.scoring,
        "robust": state.robust,
        "kept": state.kept,
        "central": state.central,
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
        if group not in groups:
            raise SafetensorError(f"{key!r:.60} is no part of a state")
        table = name if group == "tables" else name.partition("|")[0].rpartition("/")[2]
        of_rows = group in ("tables", "slots") or name.startswith("tables/")
        if of_rows and table in sharded:
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
