"""How many examples a client may count for: as many as it says, up to what most clients say.

Where updates are weighted by examples, a client that claims 2³¹ of them owns the average, whatever the
limit on its norm. The cap is a quantile of all clients' claims. With a share h of hostile clients that
claim as much as they like, the quantile q of all is the quantile q / (1 − h) of the honest ones: at 2/3
a number that some honest client claims, as long as fewer than a third are hostile.
"""

from __future__ import annotations

import numpy as np

from spreadout.core.randomness import Ints

WHERE_DEPLOYED = 2 / 3  # the quantile, unless the config says otherwise; a simulation knows its sizes


def claim_cap(claims: Ints, quantile: float) -> int | None:
    """The smallest claim that so large a share of the clients with examples does not exceed.

    >>> import numpy as np
    >>> claim_cap(np.array([10, 12, 11, 9, 0, 2**31]), 2 / 3)
    12
    >>> claim_cap(np.array([10, 12]), 1.0)  # no cap
    """
    busy = claims[claims > 0]
    if quantile >= 1 or not len(busy):
        return None
    return int(np.quantile(busy, quantile, method="inverted_cdf"))
