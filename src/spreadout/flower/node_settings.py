"""What an operator tells a node, and the server does not: its secret, its ledger, its budget."""

from __future__ import annotations

import math
from logging import WARNING
from pathlib import Path

from flwr.supercore import log

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.flower.data import NodeConfig
from spreadout.privacy.ledger import Budget, NodeLedger, Refusal
from spreadout.privacy.mechanism import GaussianMechanism

SECRET, LABEL_KEY = "secret-file", "label-key-file"  # keys of --node-config
LEDGER, EPSILON, DELTA, SPARE = "ledger", "epsilon", "delta", "spare-requests"
TRUST = "trust-server"  # with updates that have no noise of the node's own
NODE_KEY, PEERS = "node-key", "peers"  # of nodes that take part in secure sums


def node_seed(node: NodeConfig, experiment: Experiment) -> int:
    """What this node's draws depend on: its own secret, or in a rehearsal the run's public seed."""
    if SECRET not in node:
        if _adds_noise(experiment.privacy):
            raise Refusal(
                f"--node-config: has no {SECRET}; with [privacy] a node answers only if its draws are "
                "secret: give it a file of 32 random bytes"
            )
        if experiment.method.has_secret_draws and "partition-id" not in node:
            log(WARNING, "no %s in --node-config: the server can work out what this node draws", SECRET)
        return experiment.seed
    return int.from_bytes(read_secret(node, SECRET), "big")


def read_secret(node: NodeConfig, key: str) -> bytes:
    path = Path(str(node[key])).expanduser()
    try:
        found, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise UserError(f"--node-config {key}: {path}: {error.strerror}") from None
    if mode & 0o077:
        raise UserError(f"--node-config {key}: {path}: others can read it; `chmod 600` it")
    if len(found) < 16:
        raise UserError(f"--node-config {key}: {path}: is shorter than 16 bytes; draw 32 at random")
    return found


def refuse_unfit_model(privacy: GaussianMechanism | None) -> None:
    """Noise whose every draw is simulated, so far."""
    if privacy is not None and privacy.model == "example":
        raise UserError(
            'privacy.model = "example": is for simulations; a deployment has privacy.model = "local", '
            '"distributed" or "central"'
        )


def refuse_without_trust(node: NodeConfig, privacy: GaussianMechanism | None) -> None:
    """A node gives nothing away on the word of a server that it will add the noise.

    The config comes with the app that the server sends; whom to trust is the operator's to say.
    """
    if privacy is None or not privacy.on_the_server:
        return
    told = node.get(TRUST, False)
    if not (told is True or str(told).lower() == "true"):
        raise Refusal(
            f'privacy.model = "central": updates would reach the server without noise; a node answers '
            f"only if its operator trusts the server: {TRUST}=true in --node-config"
        )


def _adds_noise(privacy: GaussianMechanism | None) -> bool:
    """Whether what a node sends is noised by itself."""
    return privacy is not None and privacy.noise > 0 and not privacy.on_the_server


def node_ledger(node: NodeConfig, privacy: GaussianMechanism | None) -> NodeLedger | None:
    """The node's own count of what it gives away; with noise it must have one, and a budget."""
    refuse_unfit_model(privacy)
    refuse_without_trust(node, privacy)
    noisy = _adds_noise(privacy)
    if LEDGER not in node:
        if noisy or EPSILON in node:
            raise Refusal(
                f"--node-config: has no {LEDGER}; a node counts what it gives away: name a folder that "
                "is its own and outlives runs"
            )
        return None
    if EPSILON not in node and noisy:
        raise Refusal(
            f"--node-config: has no {EPSILON}; say how much a client may give away over all runs, "
            f"such as {EPSILON}=8.0"
        )
    epsilon = _number(node, EPSILON, 0.0) if EPSILON in node else None
    delta, spare = _number(node, DELTA, 1e-6), _number(node, SPARE, 1)
    if epsilon is not None and epsilon <= 0:
        raise Refusal(f"--node-config {EPSILON}: {epsilon:g}: must be above 0")
    if not 0 < delta < 1:
        raise Refusal(f"--node-config {DELTA}: {delta:g}: must lie between 0 and 1, such as 1e-6")
    if spare < 0:
        raise Refusal(f"--node-config {SPARE}: {spare:g}: must not be below 0")
    return NodeLedger(Path(str(node[LEDGER])).expanduser(), Budget(epsilon, delta, int(spare)))


def has_budget(ledger: NodeLedger | None) -> bool:
    """Whether the operator has said how much the node's clients may give away."""
    return ledger is not None and ledger.budget.epsilon is not None


def _number(node: NodeConfig, key: str, default: float) -> float:
    try:
        found = float(node.get(key, default))
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise Refusal(f"--node-config {key}: {node[key]!r}: is no number")
    return found
