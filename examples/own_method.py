"""A method of one's own in twenty lines: FedAwS whose server pushes only against the nearest class.

Shows what a method chooses. Everything else (rounds, traffic, checks, the simulator) comes with it.
`spreadout run CONFIG --import own_method method.name=nearest-only` takes it from the command line.
"""

from typing import Literal

import spreadout as so


@so.register_method
class NearestOnly(so.PositiveOnly):
    """Clients train as in FedAwS; the server moves each row away from its nearest neighbour."""

    name: Literal["nearest-only"] = "nearest-only"
    rate: float = 0.2

    def server_step(
        self, state: so.ServerState, model: so.EmbeddingModel, context: so.ServerContext
    ) -> None:
        """After the merge: `context.touched` are the rows that this round's clients have trained."""
        participating = context.touched["classes"].ids
        away = so.regularizers.FarPenalty("euclidean")
        push = so.regularizers.mined_pairs(state.tables["classes"], participating, 1, away).gradient
        state.descend_("classes", push, so.Optimizer(lr=self.rate), sphere=True)


if __name__ == "__main__":
    base = so.Experiment.load("digits-fedaws", ["rounds=60"])
    own = base.model_copy(update={"method": NearestOnly(rate=0.2)})
    for experiment in (own, base):
        result = so.run(experiment)
        cosine = result.summary["geometry"]["max_cosine"]
        print(f"{experiment.method.name}: P@1 {result.metrics['P@1']:.1f}, largest cosine {cosine:.2f}")
