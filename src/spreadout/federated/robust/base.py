"""The seam in aggregation: what the server makes of updates that may not all be honest.

A mean moves as far as its largest term wants. A robust rule bounds what any client can do to it. There
are two kinds. Some limit each update by itself before it is summed, and cost nothing more. Others look
at all updates of a cohort side by side, and hold them all at once.

Whatever the rule, no row moves further in a round than `row_limit` times what rows usually move: of a
row that one client owns there is no second opinion.
"""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import Field
from torch import Tensor

from spreadout.core.registry import NamedSection, Registry
from spreadout.core.types import Tensors
from spreadout.federated.robust.groups import Groups

if TYPE_CHECKING:
    from spreadout.federated.robust.updates import Updates

ROBUST_RULES: Registry[type[RobustRule]] = Registry("robust rule")
RuleT = TypeVar("RuleT", bound="type[RobustRule]")


def register_robust_rule(rule: RuleT) -> RuleT:
    """A class decorator: configs then know the rule by its `name`.

    >>> import spreadout as so
    >>> @so.register_robust_rule
    ... class Smallest(so.RobustRule):
    ...     name: str = "smallest"
    ...
    ...     def centre(self, groups):
    ...         return next(groups.ordered()).values[groups.first]
    >>> so.Experiment.of({"server": {"robust": "smallest"}}).server.robust.name
    'smallest'
    """
    rule.register()
    return rule


class RobustRule(NamedSection, ABC):
    """How the changes of several clients become one, though some of the clients are hostile.

    >>> import spreadout as so
    >>> experiment = so.Experiment(rounds=2, server={"robust": "median"})
    >>> isinstance(experiment.server.robust, so.RobustRule)
    True
    >>> so.run(experiment).summary["rounds"]
    2
    """

    registry: ClassVar[Registry[type[RobustRule]]] = ROBUST_RULES
    holds_updates: ClassVar[bool] = True  # whether it needs all updates of a cohort at once
    limits_updates: ClassVar[bool] = False  # whether it limits each update's length before it is summed

    quantile: float = Field(2 / 3, gt=0, lt=1)  # of lengths that clients' updates have: see limits.py
    row_limit: float = Field(2.0, ge=0)  # times that quantile of row moves; 0: rows move as they like

    def centre(self, groups: Groups) -> Tensor:
        """What the vectors of each group come to: (g, d)."""
        raise NotImplementedError  # of those that hold updates

    def row_centre(self, groups: Groups) -> Tensor:
        """The same of rows, each a group of the clients that hold it: (g, d)."""
        return self.centre(groups)

    def kept(self, updates: Updates, memory: Tensors) -> Updates:
        """Updates as the rule lets them in: some may lose their weight."""
        return updates

    def dense_change(self, updates: Updates, memory: Tensors, seed: int) -> Tensor:
        """What the clients' dense parts come to: (D,).

        memory: what the rule keeps from round to round; it may put something into it. seed: of draws.
        """
        return self.centre(updates.dense_groups())[0]
