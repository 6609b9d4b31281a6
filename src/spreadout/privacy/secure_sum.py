"""The server's side of secure aggregation: the sum of what nodes sent, and nothing of any one of them.

Every node whose numbers came has put its own mask on them: it goes with the seed that others hold
shares of. Masks agreed between two of these cancel. With a node that left in between they do not: its
mask key is put together from shares, and those masks are made anew. Below the threshold there are too
few shares.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from spreadout.privacy import masking
from spreadout.privacy.masking import Bits, Broken, Masked
from spreadout.privacy.secure_party import MASK, Announced, bound_to, own_mask_key


def unmasked(
    about: bytes,
    threshold: int,
    announced: Mapping[str, Announced],
    commitments: Mapping[str, bytes],
    sent: Mapping[str, Masked],
    revealed: Mapping[str, Mapping[str, bytes]],
    bits: Bits,
    form: bytes = b"",
) -> NDArray[np.int64]:
    """The sum of the numbers of all nodes in `sent`.

    announced: of step 1, whose order gives every node its place; commitments: of those who sent shares
    in step 2; revealed: by node that answered step 4, its shares of the others; form: as in `masked`.
    """
    if len(sent) < threshold:
        raise Broken(f"{len(sent)} nodes: a sum takes {threshold}")
    if not revealed.keys() <= sent.keys() or len(revealed) < threshold:
        raise Broken(f"{len(revealed)} nodes have answered for the others: it takes {threshold}")
    about = bound_to(about, announced)
    places = {name: i for i, name in enumerate(sorted(announced))}
    total: Masked = sum(
        (value for value in sent.values()), start=np.zeros_like(next(iter(sent.values())))
    )
    for name in commitments:
        shares = [(places[at], its[name]) for at, its in revealed.items() if name in its]
        if len(shares) < threshold:
            raise Broken(f"node {name}: {len(shares)} shares of it: it takes {threshold}")
        secret = masking.secret_of(shares[:threshold])
        if name in sent:
            if masking.commitment(secret, about) != commitments[name]:
                raise Broken(f"node {name}: the shares of its mask do not fit")
            total = total - masking.mask(own_mask_key(secret, about), len(total), bits)
            continue
        if masking.public_of(secret) != announced[name].mask_key:
            raise Broken(f"node {name}: the shares of its key do not fit")
        for other in sent:  # the masks between the node that left and each of those that stayed
            key = masking.agreed_key(secret, announced[other].mask_key, MASK + about + form)
            between = masking.mask(key, len(total), bits)
            total = total - between if other < name else total + between
    return masking.as_signed(total)
