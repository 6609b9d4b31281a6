"""An encoder of one's own that configs know by name: a dense layer beside a shortcut around it.

`spreadout run CONFIG --import own_encoder model.encoder=shortcut` takes it from the command line; the
run folder remembers the import, so that `resume` and `predict` find it again.
"""

import torch
from torch import Tensor, nn

import spreadout as so


class Shortcut(nn.Module):
    """W x + V tanh(U x)"""

    def __init__(self, features: int, width: int, dim: int) -> None:
        super().__init__()
        self.straight = nn.Linear(features, dim)
        self.bent = nn.Sequential(nn.Linear(features, width), nn.Tanh(), nn.Linear(width, dim))

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, …) → (B, dim)"""
        flat = torch.flatten(x, 1)
        output: Tensor = self.straight(flat) + self.bent(flat)
        return output


@so.register_encoder("shortcut", uses=["width"])
def shortcut(shape: so.DataShape, config: so.ModelConfig) -> nn.Module:
    """`shape` tells of the data, `config` is `[model]`."""
    return Shortcut(shape.features or 1, config.width or 32, config.dim)


if __name__ == "__main__":
    for encoder in ("shortcut", "mlp"):
        experiment = so.Experiment.load("digits-fedaws", [f"model.encoder={encoder}", "rounds=15"])
        print(f"{encoder}: P@1 {so.run(experiment).metrics['P@1']:.1f}")
