"""A method of one's own in twenty lines: FedAwS whose server pushes only against the nearest class.

Shows what a method chooses. Everything else (rounds, traffic, checks, the simulator) comes with it.
"""

from typing import Literal

import spreadout as so
from spreadout.core.optimizers import Optimizer
from spreadout.core.state import ServerState, descend_table_
from spreadout.methods.base import ServerContext
from spreadout.methods.positive_only import PositiveOnly
from spreadout.models.embedding import EmbeddingModel


class NearestOnly(PositiveOnly):
    """Clients train as in FedAwS; the server moves each row away from its nearest neighbour."""

    name: Literal["nearest-only"] = "nearest-only"
    rate: float = 0.2

    def server_step(self, state: ServerState, model: EmbeddingModel, context: ServerContext) -> None:
        participating = context.touched["classes"].ids
        away = so.regularizers.FarPenalty("euclidean")
        push = so.regularizers.mined_pairs(state.tables["classes"], participating, 1, away).gradient
        descend_table_(state, "nearest-only", "classes", push, Optimizer(lr=self.rate), sphere=True)


if __name__ == "__main__":
    experiment = so.Experiment.load("digits-fedaws", ["rounds=60"])
    for method in (NearestOnly(), None):  # None: what the config says
        result = so.run(experiment, method=method)
        cosine = result.summary["geometry"]["max_cosine"]
        print(
            f"{result.summary['method']}: P@1 {result.metrics['P@1']:.1f}, largest cosine {cosine:.2f}"
        )
