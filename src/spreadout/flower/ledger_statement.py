"""A node's ledger in one signed statement, for whoever may not see the node: a review board, a client.

Signed with the node's own key (`ssh-keygen -t ecdsa`), the one it is known by to the SuperLink. It says
what each client has given away over all runs, and the digest of the ledger's last line, which follows
from all lines before it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import Field

from spreadout.core.checksums import sha256
from spreadout.core.errors import UserError
from spreadout.core.files import write_json
from spreadout.core.written import Count, Written, as_written
from spreadout.flower.access import fingerprint_of
from spreadout.flower.keys import public_path
from spreadout.privacy.ledger import LEDGER, Budget, NodeLedger

ALGORITHM = ec.ECDSA(hashes.SHA384())


class Given(Written):
    """What one client has given away."""

    releases: Count
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    requests_seen: Count
    runs: Count


class Statement(Written):
    """What is signed."""

    time: Annotated[str, Field(max_length=100)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    lines: Count
    last: str
    clients: dict[str, Given]


def statement_of(folder: Path, delta: float) -> dict[str, Any]:
    """What a ledger says, in plain values."""
    path = folder / LEDGER
    if not path.is_file():
        raise UserError(f"{folder}: has no {LEDGER}; name the folder that --node-config calls ledger")
    accounts = NodeLedger(folder, Budget(delta=delta)).accounts()
    lines = path.read_bytes().splitlines()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "delta": delta,
        "lines": len(lines),
        "last": sha256(lines[-1]) if lines else "",
        "clients": {
            str(client): {
                "releases": own.releases,
                "epsilon": spent if math.isfinite(spent := own.epsilon(delta)) else None,
                "requests_seen": len(own.looks),
                "runs": len(own.last),
            }
            for client, own in sorted(accounts.items())
        },
    }


def sign(statement: Mapping[str, Any], key: Path, out: Path) -> None:
    """Write the statement with a signature of the node's private key."""
    signature = base64.b64encode(private_key(key).sign(_bytes(statement), ALGORITHM)).decode()
    known = fingerprint_of(public_path(key)) if public_path(key).is_file() else ""
    write_json(out, {"statement": statement, "signature": signature, "key": known})


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A node's private key, as `ssh-keygen` writes it."""
    try:
        private = serialization.load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UserError(
            f"{path}: is no private key without a passphrase, as ssh-keygen makes it"
        ) from None
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise UserError(f"{path}: is no ECDSA key; `ssh-keygen -t ecdsa -b 384` makes one")
    return private


def verified(path: Path, public: Path) -> dict[str, Any]:
    """The statement of a file, if it was signed with the private half of this key and not changed."""
    try:
        found = json.loads(path.read_bytes())
        statement, signature = dict(found["statement"]), base64.b64decode(found["signature"])
        signed = _bytes(statement)
        key = serialization.load_ssh_public_key(public.read_bytes())
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError, UnsupportedAlgorithm):
        raise UserError(f"{path}: is no signed statement, or {public} no public key") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UserError(f"{public}: is no ECDSA key")
    try:
        key.verify(signature, signed, ALGORITHM)
    except InvalidSignature:
        raise UserError(f"{path}: was not signed with {public}, or was changed since") from None
    return as_written(Statement, statement, path, "ask the node for another")


def _bytes(statement: Mapping[str, Any]) -> bytes:
    """The same for equal statements, however their keys are ordered."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
