"""Whose examples a node reads, and what a server is judged on: the hooks of a deployment.

The defaults rehearse a deployment with the config's own data, cut into the parts the nodes would hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from spreadout.config.experiment import Experiment
from spreadout.config.sound import data_of
from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.data.arrays import as_examples, whole_numbers
from spreadout.data.columns import Dense, Lists
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.io.npz import read_npz
from spreadout.data.splits import Splits

NOTHING_HELD_OUT = Examples({}, Ragged.from_lists([]))  # a node scores nothing
NodeConfig = Mapping[str, Any]  # what `flower-supernode --node-config` says
NodeData = Callable[[Experiment, NodeConfig], FederatedDataset]
"""Runs on a node: the examples of the clients it answers for, with the clients' numbers."""
ServerData = Callable[[Experiment], Splits]
"""Runs on the server: held-out examples, and the form of the clients' own, of which it has none."""


def part_of_node(experiment: Experiment, node: NodeConfig) -> FederatedDataset:
    """A rehearsal: of the config's data, every `num-partitions`-th client from `partition-id` on."""
    try:
        first, step = int(node["partition-id"]), int(node["num-partitions"])
    except KeyError as missing:
        raise UserError(
            f"--node-config: has no {missing.args[0]}; give 'partition-id=0 num-partitions=3'"
        ) from None
    whole = _agreed(data_of(experiment).train)
    return whole.part(torch.arange(first, whole.clients, step))


def held_out(experiment: Experiment) -> Splits:
    """A rehearsal: the test part of the config's data."""
    data = data_of(experiment)
    return replace(data, train=_form(_agreed(data.train)))


def own_arrays(x: Any, y: Any, client: Any, *, classes: int) -> FederatedDataset:
    """A node's own examples: features (n, …), one class each (n,), the number of its client (n,)."""
    inputs, labels = as_examples(x, y)
    numbers, owner = torch.unique(whole_numbers("client", client), return_inverse=True)
    if len(owner) != len(labels):
        raise UserError(f"client has {len(owner)} entries, y has {len(labels)}: give one per example")
    if int(labels.max()) >= classes:
        raise UserError(f"y has the class {int(labels.max())}, but classes = {classes}")
    columns = {"x": inputs, "y": Dense(labels)}
    return replace(FederatedDataset.by_owner(columns, owner, classes), numbers=numbers)


def own_file(path: str | Path, *, classes: int) -> FederatedDataset:
    """The same out of an `.npz` file with `x`, `y` and `client`; of tables there is `own_examples`."""
    arrays = read_npz(Path(path), ("x", "y", "client"), others=True)
    for name in ("x", "y", "client"):
        if name not in arrays:
            raise UserError(f"{path}: must hold the arrays x, y and client; it has no {name}")
    try:
        return own_arrays(arrays["x"], arrays["y"], arrays["client"], classes=classes)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def judged_on(test: Examples, *, classes: int, name: str = "deployed") -> Splits:
    """A server's part: held-out examples; the clients' own have the same form, one class each."""
    nothing = torch.empty(0, dtype=torch.int64)
    columns = {key: column.select(nothing).compact() for key, column in test.inputs.items()}
    empty = FederatedDataset({**columns, "y": Dense(nothing)}, torch.tensor([0]), classes)
    return Splits(name, empty, test)


def _agreed(data: FederatedDataset) -> FederatedDataset:
    """With histories of one width, so that all parts of the data want the same model."""
    columns = {
        name: replace(column, width=column.width or column.longest)
        if isinstance(column, Lists) and name != "y"
        else column
        for name, column in data.columns.items()
    }
    return replace(data, columns=columns)


def _form(data: FederatedDataset) -> FederatedDataset:
    """What examples look like, without any."""
    return data.part(torch.arange(0))
