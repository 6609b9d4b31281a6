"""Five clients that each know one class, your own encoder, and a model that still tells them apart."""

import numpy as np
import torch

import spreadout as so

rng = np.random.default_rng(0)
label = np.repeat(np.arange(5), 60)  # 60 examples of each class …
x = rng.normal(size=(300, 8)) + 3 * np.eye(5, 8)[label]
train = so.FederatedDataset.from_arrays(x, label, client=label)  # … on a client of its own
test = so.Examples.from_arrays(rng.normal(size=(300, 8)) + 3 * np.eye(5, 8)[label], label)

encoder = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
for method in ("baseline-1", "fedaws"):
    rates = {"lr": 0.2, "row_lr": 1.0}
    experiment = so.Experiment.of({"rounds": 60, "clients": rates, "method": {"name": method}})
    result = so.run(experiment, data=so.Splits("toy", train, test), encoder=encoder)
    print(method, result.metrics, "largest cosine", round(result.summary["gauges"]["max_cosine"], 2))
