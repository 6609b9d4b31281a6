"""A source of one's own: points on a spiral, each arm a class, each point some person's.

`spreadout run CONFIG --import own_source data.source=spiral` takes it from the command line, and
`spreadout data describe spiral --import own_source` shows what its clients hold.
"""

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

import spreadout as so


@so.register_source
class Spiral(so.Source):
    """Two numbers a point; its fields are the keys of `[data.source]`."""

    about: ClassVar[str] = "points on the arms of a spiral"
    data_defaults: ClassVar[dict[str, Any]] = {"partition": "by_user"}  # a client for every person
    name: Literal["spiral"] = "spiral"
    arms: int = 5
    people: int = 20
    noise: float = 0.05

    def read(self, path: Path | None) -> so.RawDataset:
        """Sixty points an arm; `path` is `data.path`, which this source has no use for."""
        rng = np.random.default_rng(0)
        arm = np.repeat(np.arange(self.arms), 60)
        distance = rng.uniform(0.3, 1.0, len(arm))
        angle = 2 * np.pi * arm / self.arms + 2 * distance
        x = distance[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        x += self.noise * rng.normal(size=x.shape)
        person = rng.integers(self.people, size=len(arm))
        return so.RawDataset(so.Instances.of(x, arm, person), classes=self.arms)


if __name__ == "__main__":
    experiment = so.Experiment.of({"rounds": 20, "data": {"source": {"name": "spiral", "people": 12}}})
    result = so.run(experiment)
    print(f"{result.summary['clients']} clients: P@1 {result.metrics['P@1']:.1f}")
