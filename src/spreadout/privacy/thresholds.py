"""How many nodes must be in a secure sum, and how many of them may work with the server.

A node helps to unmask a sum only if `least` nodes have signed the same list of who is in it. What
follows from that, and why, is in `unmasking.py`.
"""

from __future__ import annotations

from spreadout.core.errors import UserError

LEAST_NODES = 3  # of two, each could subtract itself


def least(nodes: int, share: float) -> int:
    """Of so many nodes, how many must be in a sum: this share or more, and always more than half."""
    return max(int(share * nodes) + 1 if share < 1 else nodes, nodes // 2 + 1, LEAST_NODES)


def most_colluding(nodes: int, threshold: int) -> int:
    """How many of the nodes may work with the server, and still it sees sums alone: below 2t − n."""
    return 2 * threshold - nodes - 1


def noisy(nodes: int, share: float, colluding: int) -> int:
    """How many nodes add noise that the server does not know, to any sum that it can see."""
    threshold = least(nodes, share)
    if colluding > most_colluding(nodes, threshold):
        raise UserError(
            f"privacy.colluding = {colluding}: of {nodes} nodes with a threshold of {threshold} no more "
            f"than {most_colluding(nodes, threshold)} may work with the server; raise privacy.threshold"
        )
    return threshold - colluding
