"""Next-item examples out of what users did when: every item, with the last few before it as context.

As in the dual-encoder paper (003): each user's items in order of time; the item at every place but the
first is a label, the up to `window` items before it its context, padded on the right with 0. Items are
numbered from 1, so that 0 is nobody's id.

Items of the same second have no order. That of the file is often not random (MovieLens-1M lists them as
its pages showed them, and 53 % of its ratings share their second with another of the same user), and a
model that learns it looks better than it is at what comes next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field

from spreadout.core.errors import UserError
from spreadout.core.randomness import Bits, Ints, bits, key
from spreadout.core.registry import Section
from spreadout.data.arrays import refuse_gaps
from spreadout.data.columns import Lists
from spreadout.data.sources.base import Instances, RawDataset, single

# The dual-encoder paper's split: users in order of their ids, 80 % for training.
BY_USER: Mapping[str, Any] = {
    "partition": "by_user",
    "hold_out": "users",
    "test_fraction": 0.1,
    "validation_fraction": 0.1,
}


class Windows(Section):
    """How timelines become examples."""

    window: int = Field(10, ge=1)  # items of context
    cap: int | None = Field(None, ge=1)  # a user's first so many examples; None: all
    ties: Literal["random", "file"] = "random"  # items of the same time: in which order
    tie_seed: int = 0
    numbering: Literal["rated", "published"] = "rated"
    # rated: items that occur, 1 … n, by ascending id; published: the source's own ids, gaps and all

    def examples(
        self, user: Ints, item: Ints, time: np.ndarray, names: Mapping[int, str] | None = None
    ) -> RawDataset:
        """Windowed examples of interactions in file order. `names` are the items', by id."""
        if not len(user):
            raise UserError("data.source: there are no interactions to make examples of")
        order = np.lexsort((*self._tie_breaker(user, item), time, user))  # by user, then time; stable
        user, item = user[order], item[order]
        rows, ids, table_names = self._numbered(item, names or {})
        fresh = np.concatenate([[True], user[1:] != user[:-1]])
        start = np.maximum.accumulate(np.where(fresh, np.arange(len(user)), 0))  # of each one's timeline
        place = np.arange(len(user)) - start
        wanted = place > 0
        if self.cap is not None:
            wanted &= place <= self.cap
        at = np.flatnonzero(wanted)
        if not len(at):
            raise UserError(
                "data.source: no user has two interactions, so nothing comes next to predict"
            )
        first = np.maximum(start[at], at - self.window)
        timeline = torch.from_numpy(rows.astype(np.int32))
        history = Lists(
            timeline,
            torch.from_numpy(first),
            torch.from_numpy(at - first),
            pad=0,
            width=self.window,
        )
        labels = single(torch.from_numpy(rows[at]))
        instances = Instances({"history": history}, labels, torch.from_numpy(user[at]))
        classes = int(rows.max()) + 1 if self.numbering == "published" else len(table_names)
        return RawDataset(
            instances,
            classes,
            row_columns={"history": "classes"},
            class_names=table_names,
            class_ids=ids,
        )

    def _tie_breaker(self, user: Ints, item: Ints) -> tuple[Bits, ...]:
        """What decides among items of one user and time: not their place in the file, unless asked."""
        return () if self.ties == "file" else (bits(key(self.tie_seed, "ties"), user, item),)

    def _numbered(
        self, item: Ints, names: Mapping[int, str]
    ) -> tuple[Ints, tuple[str, ...], tuple[str, ...]]:
        """Table rows of the items, and each row's id and name; row 0 is the padding."""
        if self.numbering == "published":
            if item.min() < 1:
                raise UserError(
                    "data.source.numbering = 'published': an item is numbered 0, the padding"
                )
            refuse_gaps("data.source.numbering = 'published': item", torch.from_numpy(item))
            known, rows = np.arange(1, int(item.max()) + 1), item
        else:
            known, rows = np.unique(item, return_inverse=True)
            rows = rows.astype(np.int64) + 1
        ids = tuple(str(i) for i in known.tolist())
        titles = tuple(names.get(i) or str(i) for i in known.tolist())
        return rows, ("", *ids), ("", *titles)
