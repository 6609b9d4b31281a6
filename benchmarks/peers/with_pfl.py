"""pfl 0.6: FederatedAveraging on its SimulatedBackend. `python -m benchmarks.peers.with_pfl A|B ROUNDS`

Two processes are pfl's own: PFL_WORKER_ADDRESSES names both, PFL_WORKER_RANK says which this one is.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import pairwise
from typing import Any

os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.peers.work import CLIENTS, LABELS, Data, OneLabel, TwoTowers, finish


class A(TwoTowers):
    def metrics(self, history: Tensor, item: Tensor) -> dict[str, Any]:
        return {"loss": Weighted(float(self.loss(history, item)) * len(item), len(item))}


class B(OneLabel):
    """pfl sends one model to all, so all rows are in it and a client picks its own."""

    def __init__(self) -> None:
        super().__init__()
        del self.row
        self.rows = nn.Parameter(torch.zeros(LABELS, 128))

    def loss(self, x: Tensor, label: Tensor) -> Tensor:  # type: ignore[override]
        return super().loss(x, self.rows[int(label[0])])

    def metrics(self, x: Tensor, label: Tensor) -> dict[str, Any]:
        return {"loss": Weighted(float(self.loss(x, label)) * len(x), len(x))}


class Clock(TrainingProcessCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.ticks: list[float] = []

    def on_train_begin(self, *, model: Any) -> Any:
        self.ticks.append(time.perf_counter())
        return Metrics()

    def after_central_iteration(self, *_: Any, **__: Any) -> Any:
        self.ticks.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    work, rounds = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    data = Data(work)
    model = A() if work == "A" else B()
    model.load_state_dict(data.start)
    rest = [p for name, p in model.named_parameters() if name != "rows"]
    groups: list[dict[str, Any]] = [{"params": rest}]
    if isinstance(model, B):
        # A row is trained by one client of the cohort: its rate undoes the division by all of them.
        groups.append({"params": [model.rows], "lr": float(CLIENTS)})
    order = iter([client for cohort in data.cohorts for client in cohort])

    def held(client: int) -> Any:
        tensors = data.tensors(client)
        label = () if work == "A" else (torch.full((160,), client),)
        return PyTorchTensorDataset((*tensors, *label), user_id=str(client))

    users = FederatedDataset(held, lambda: next(order))
    weighting = WeightByDatapoints() if work == "A" else WeightByUser()
    backend = SimulatedBackend(training_data=users, val_data=users, postprocessors=[weighting])
    clock = Clock()
    FederatedAveraging().run(
        # It evaluates in the first iteration only, and is not timed there.
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10**6,
            train_cohort_size=CLIENTS,
            val_cohort_size=0,
        ),
        backend=backend,
        model=PyTorchModel(
            model,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(groups, lr=1.0),
        ),
        model_train_params=NNTrainHyperParams(
            local_batch_size=model.batch, local_num_epochs=1, local_learning_rate=model.rate
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=model.batch),
        callbacks=[clock],
    )
    processes = len(os.environ.get("PFL_WORKER_ADDRESSES", "one").split(","))
    if os.environ.get("PFL_WORKER_RANK", "0") == "0":
        ticks = clock.ticks
        seconds = [after - before for before, after in pairwise(ticks)]
        finish(f"pfl-{processes}", work, seconds, model.state_dict())


if __name__ == "__main__":
    main()
