"""What nodes and server send each other for a secure sum: names with keys, letters or shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from spreadout.core.types import Tensors
from spreadout.flower import messages
from spreadout.flower.messages import Malformed
from spreadout.privacy.masking import Bits, Masked
from spreadout.privacy.secure_party import Announced

NAME = 64  # letters of a node's name, at most
ENTRY = 512  # bytes of a name with its keys, letter or share, at most


def put_keys(announced: Mapping[str, Announced]) -> ConfigRecord:
    """Nodes with their keys of a round."""
    return _put(
        {
            name: b"".join((keys.mask_key, keys.letter_key, keys.signature))
            for name, keys in announced.items()
        }
    )


def keys_in(content: RecordDict) -> dict[str, Announced]:
    return {
        name: Announced(it[:32], it[32:64], it[64:]) for name, it in bytes_in(content, "keys").items()
    }


def put_bytes(entries: Mapping[str, bytes]) -> ConfigRecord:
    """Nodes with a letter or a share each."""
    return _put(entries)


def _put(entries: Mapping[str, bytes]) -> ConfigRecord:
    return ConfigRecord({"names": list(entries), "values": list(entries.values())})


def bytes_in(content: RecordDict, record: str) -> dict[str, bytes]:
    """By node, what a record has for it."""
    said = messages.numbers_in(content, record)
    names, values = said.get("names"), said.get("values")
    if said.keys() != {"names", "values"} or not isinstance(names, list) or not isinstance(values, list):
        raise Malformed(f"{record}: names no nodes")
    if any(type(name) is not str or not 0 < len(name) <= NAME for name in names):
        raise Malformed(f"{record}: names that are none")
    if any(type(value) is not bytes or len(value) > ENTRY for value in values):
        raise Malformed(f"{record}: has something else than bytes")
    if len(set(names)) < len(names) or len(names) != len(values):
        raise Malformed(f"{record}: a node twice, or without a value")
    return dict(zip(names, values, strict=True))


def names_in(content: RecordDict, record: str) -> list[str]:
    """The nodes a record names."""
    return list(bytes_in(content, record))


def put_public_rows(rows: Tensors) -> ArrayRecord:
    """Per table, the rows of the sum."""
    return messages.packed(rows)


def public_rows_in(content: RecordDict, tables: Mapping[str, int]) -> Tensors:
    """The same, as rows that there are. tables: how many rows each has."""
    found = messages.tensors_in(content, "sum")
    if found.keys() != tables.keys():
        raise Malformed("a sum over other tables than are trained")
    for name in found:
        ids = messages.whole(found, name)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < tables[name]:
            raise Malformed(f"a sum over rows of {name} that there are not")
        if bool((ids.diff() <= 0).any()):
            raise Malformed(f"a sum over rows of {name} in no order")
    return found


def put_members(clients: Sequence[int]) -> ArrayRecord:
    """All clients of a sum, whichever node they are on."""
    return messages.packed({"clients": np.array(sorted(clients), np.int64)})


def members_in(content: RecordDict) -> list[int]:
    found = messages.tensors_in(content, "members")
    if found.keys() != {"clients"}:
        raise Malformed("a sum that does not say of which clients it is")
    clients = messages.whole(found, "clients")
    if bool((clients.diff() <= 0).any()):
        raise Malformed("a sum over clients in no order")
    return [int(client) for client in clients.tolist()]


def put_masked(numbers: Masked, clients: list[int]) -> ArrayRecord:
    """A node's masked numbers, and the clients that are in them."""
    return messages.packed({"numbers": numbers, "clients": np.array(clients, np.int64)})


def masked_in(content: RecordDict, count: int, bits: Bits) -> tuple[Masked, list[int]]:
    found = messages.arrays_in(content, "masked")
    numbers, clients = found.get("numbers"), found.get("clients")
    kind = np.uint32 if bits == 32 else np.uint64
    if numbers is None or clients is None or len(found) != 2:
        raise Malformed("no masked numbers")
    if numbers.dtype != kind or numbers.shape != (count,):
        raise Malformed(f"masked numbers of {numbers.dtype} {numbers.shape}, not {count} of {bits} bits")
    if clients.dtype != np.int64 or clients.ndim != 1 or len(set(clients.tolist())) < len(clients):
        raise Malformed("masked numbers of nobody")
    return numbers, clients.tolist()


def bits_in(content: RecordDict) -> Bits:
    """Of the numbers that are summed."""
    bits = messages.numbers_in(content, "task").get("bits")
    if bits == 32:
        return 32
    if bits == 64:
        return 64
    raise Malformed(f"a sum of {bits!r} bits: 32 or 64 are")
