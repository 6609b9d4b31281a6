"""How many nodes must be in a secure sum, and how many are in any sum that a server can see.

A server may tell nodes different things about who is still there. With n nodes and threshold t, a node
is taken out of a sum by t nodes that are told it left, so at most n − t are told that it is there.
Every node wants a list of t nodes or more: n·t ≤ |V| (n − t) + (n − |V|) n for the set V of those taken
out, which is |V| ≤ n (n − t) / t. A node agrees masks with t − 1 others or more, so whatever the server
says, no sum has fewer than t − n (n − t) / t nodes, and the noise of so many must be enough.
"""

from __future__ import annotations

LEAST_NODES = 3  # of two, each could subtract itself


def least(nodes: int, share: float) -> int:
    """Of so many nodes, how many must be in a sum: this share or more, and always more than half."""
    return max(int(share * nodes) + 1 if share < 1 else nodes, nodes // 2 + 1, LEAST_NODES)


def fewest(nodes: int, threshold: int) -> int:
    """How many nodes are in any sum that a server can see, whatever it tells them."""
    return max(1, -(-(threshold * threshold - nodes * (nodes - threshold)) // threshold))
