"""What a user should know of a run, and try, in one line."""

from __future__ import annotations

from spreadout.evaluation.geometry import Geometry
from spreadout.federated.round import Federation
from spreadout.methods.base import Method
from spreadout.methods.fedaws import Spreadout
from spreadout.methods.positive_only import PositiveOnly


def idle_clients(federation: Federation) -> str | None:
    """What to say of clients that have nothing to train on."""
    idle = int((federation.schedule.usable(federation.data.sizes) == 0).sum())
    if idle == 0 or federation.selection in ("nonempty", "weighted"):
        return None  # and there they are never chosen
    return (
        f"{idle} of {federation.data.clients} clients have no examples to train on; "
        "whenever they are chosen their updates are refused"
    )


def collapse(method: Method, geometry: Geometry) -> str:
    """When classes fall onto each other."""
    said = (
        f"classes are collapsing: the nearest two have cosine {geometry.max_cosine:.3f}, "
        f"the mean over all pairs is {geometry.mean_cosine:.3f}"
    )
    if isinstance(method, Spreadout) and geometry.mean_cosine <= 0:  # pushed, and too hard
        return (
            f"classes are driven into few directions (effective rank {geometry.effective_rank:.1f}); "
            "lower method.strength or clients.row_lr"
        )
    if isinstance(method, Spreadout):
        return said + "; raise method.strength or method.spreadout_margin, or lower clients.row_lr"
    if "classes" in method.fixed_tables():
        return said + "; they are fixed: more dimensions, or another table, would keep them apart"
    if not isinstance(method, PositiveOnly):  # it has negatives
        return said + "; lower clients.lr and clients.row_lr, or the server's rate"
    return said + '; nothing keeps them apart here: try method.name = "fedaws"'
