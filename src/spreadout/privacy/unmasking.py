"""A node's last two steps of secure aggregation: it signs who is in the sum, then helps to unmask it.

    4  confirm  its signature under the one list of nodes whose numbers came, as the server told it
    5  reveal   once t nodes have signed that list: of those on it, the share of their own mask;
                of the others, of their key

Without step 4 a server could tell each node another list, and with a few nodes that work for it get
enough shares of both kinds to unmask one node (the consistency check of Bonawitz et al. 2017, §6.2).

What holds, of n nodes with threshold t of which c work with the server, if c < 2t − n:

- No two lists are signed by t nodes: a node that does not work with the server signs one list, so both
  would take 2t ≤ (n − c) + 2c signatures.
- So all others reveal for one list L, of t nodes or more. Of a node on L the server has at most c < t
  shares of the key, of a node not on it c shares of its own mask: the first keeps its agreed masks, the
  second its own.
- No part of L is seen without the rest of it. To unmask anyone on L takes shares of its own mask from
  t − c or more of the others, set R, each of which has agreed masks with all of L (it has read all
  their letters). A node outside of R agreed masks with t − 1 or more nodes, and at most
  n − (t − c) of all nodes are outside of R, so with 2t − n − c > 0 of R or more: its numbers stay
  masked until those of R are summed with them, and those stay masked until all of L is.

So whatever the server says, it sees one sum, and in it t − c or more nodes that do not work with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spreadout.privacy.masking import Broken
from spreadout.privacy.secure_party import Party, Signs, Verifies


def confirm(party: Party, there: Sequence[str], sign: Signs) -> tuple[Party, bytes]:
    """Step 4: a signature under the list of those whose numbers came; one list in a round."""
    present = set(there)
    if not party.held:
        raise Broken("no numbers of this round were sent, or all was revealed already")
    if party.confirmed:
        raise Broken("a list of this round was signed already")
    if len(present) < len(there) or not present <= party.held.keys():
        raise Broken("a list of nodes that are not in this round")
    if party.name not in present:
        raise Broken("a sum without this node: it has no part in it")
    if len(present) < party.threshold:
        raise Broken(f"a sum of {len(present)} nodes: it takes {party.threshold}")
    text = _confirmed(party, present)
    return replace(party, confirmed=text), sign(text)


def _confirmed(party: Party, present: set[str]) -> bytes:
    """What is signed: the round with the keys of all its nodes, and who of them is in the sum."""
    said = ["spreadout secure sum: who is in it", party.about.hex(), sorted(present)]
    return hashlib.sha256(json.dumps(said).encode()).digest()


def reveal(
    party: Party, there: Sequence[str], signatures: Mapping[str, bytes], verifies: Verifies
) -> tuple[Party, dict[str, bytes]]:
    """Step 5: a share for each node of the round, of one kind or of the other.

    signatures: by node of the list, under that list; verifies: of a node's own too. The party forgets
    all but which round it was of: with letters that a server may keep, what t nodes still had would
    unmask every update of the round.
    """
    present = set(there)
    if not party.confirmed:
        raise Broken("no list of this round was signed, or all was revealed already")
    if len(present) < len(there) or _confirmed(party, present) != party.confirmed:
        raise Broken("another list of nodes than this node has signed")
    signed = [
        name
        for name, signature in signatures.items()
        if name in present and verifies(name, party.confirmed, signature)
    ]
    if len(signed) < party.threshold:
        raise Broken(f"a list that {len(signed)} nodes have signed: it takes {party.threshold}")
    shares = {name: pair[0 if name in present else 1] for name, pair in party.held.items()}
    return Party(party.name, party.about, b"", b"", threshold=party.threshold), shares
