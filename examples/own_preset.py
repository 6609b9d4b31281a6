"""A preset of one's own: a config by name, here one of parts that are all one's own.

`spreadout presets --import own_preset` lists it; `spreadout run spiral-nearest --import own_preset` runs
it.
"""

import spreadout as so

so.register_preset(
    "spiral-nearest",
    """
# Points on a spiral, each arm a class: source, partition, encoder, method, metric and drift of one's own
name = "spiral-nearest"
imports = ["own_source", "own_partition", "own_encoder", "own_method", "own_metric", "own_drift"]
rounds = 20

[data]
source = { name = "spiral", arms = 3 }
partition = { name = "power_law", clients = 6 }

[model]
encoder = "shortcut"
dim = 8

[method]
name = "nearest-only"

[clients]
lr = 0.3
drift = "slow-scaffold"

[eval]
metrics = ["P@1", "worst class"]
""",
)


if __name__ == "__main__":
    print(so.run(so.Experiment.load("spiral-nearest")))
