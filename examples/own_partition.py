"""A partition of one's own: client sizes that fall off by a power law, as among real people.

`spreadout run CONFIG --import own_partition data.partition=power_law` takes it from the command line.
"""

from typing import Literal

import torch
from pydantic import Field

import spreadout as so


@so.register_partition
class PowerLaw(so.Partition):
    """Client i holds a share of all examples proportional to (i + 1)^−exponent."""

    name: Literal["power_law"] = "power_law"
    clients: int = Field(20, ge=1)
    exponent: float = Field(1.0, ge=0)

    def assign(self, instances: so.Instances, pairs: so.Pairs, classes: int, seed: int) -> so.Assignment:
        """An owner for each of the pairs, drawn at random; `seed` is the run's, or `self.seed`."""
        share = torch.arange(1, self.clients + 1).float() ** -self.exponent
        generator = torch.Generator().manual_seed(seed)
        owner = torch.multinomial(share, len(pairs), replacement=True, generator=generator)
        return pairs.by_owner(owner, self.clients)


if __name__ == "__main__":
    base = so.Experiment.load("digits-fedaws", ["rounds=10"])
    for exponent in (0, 2):
        partition = PowerLaw(clients=10, exponent=exponent)
        experiment = base.model_copy(update={"data": so.DataConfig(partition=partition)})
        sizes = so.load_data(experiment.data).train.sizes
        result = so.run(experiment)
        print(f"largest client {int(sizes.max()):,}: P@1 {result.metrics['P@1']:.1f}")
