"""`[data.partition]`: ways to assign instances to clients, by the name a config gives them.

The functions themselves are in `partition.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.registry import NamedSection, Registry
from spreadout.data import partition
from spreadout.data.partition import Assignment, Pairs
from spreadout.data.sources.base import Instances

MOST_CLIENTS = 100_000_000
PartitionT = TypeVar("PartitionT", bound="type[Partition]")
PARTITIONS: Registry[type[Partition]] = Registry("partition")


def register_partition(part: PartitionT) -> PartitionT:
    """A class decorator: configs then know the partition by its `name`.

    >>> import torch
    >>> import spreadout as so
    >>> @so.register_partition
    ... class OneClient(so.Partition):
    ...     name: str = "one_client"
    ...
    ...     def assign(self, instances, pairs, classes, seed):
    ...         return pairs.by_owner(torch.zeros(len(pairs), dtype=torch.int64), clients=1)
    >>> so.DataConfig(partition="one_client").partition
    OneClient(name='one_client', seed='run')
    """
    part.register()
    return part


class Partition(NamedSection, ABC):
    """A frozen value that assigns instances to clients; its options are its fields.

    >>> import torch
    >>> import spreadout as so
    >>> @so.register_partition
    ... class Alternating(so.Partition):
    ...     name: str = "alternating"
    ...
    ...     def assign(self, instances, pairs, classes, seed):
    ...         return pairs.by_owner(torch.arange(len(pairs)) % 2, clients=2)
    >>> so.load_data(so.DataConfig(partition="alternating")).train.sizes.tolist()
    [629, 628]
    """

    registry: ClassVar[Registry[type[Partition]]] = PARTITIONS
    default_targets: ClassVar[Literal["each", "all"]] = "each"  # the default of data.targets

    seed: Annotated[int, Field(ge=0)] | Literal["run"] = (
        "run"  # of whatever is random in it; "run": the run's own seed
    )

    @abstractmethod
    def assign(self, instances: Instances, pairs: Pairs, classes: int, seed: int) -> Assignment:
        """Assign every one of `pairs` (an instance, or one label of it) to some client."""


@register_partition
class ByLabel(Partition):
    """One client per label."""

    name: Literal["by_label"] = "by_label"

    def assign(self, instances: Instances, pairs: Pairs, classes: int, seed: int) -> Assignment:
        return partition.by_label(pairs, classes)


@register_partition
class ByUser(Partition):
    """One client per user."""

    name: Literal["by_user"] = "by_user"

    def assign(self, instances: Instances, pairs: Pairs, classes: int, seed: int) -> Assignment:
        return partition.by_user(pairs, users_of(instances, f'data.partition = "{self.name}"'))


@register_partition
class FewClasses(Partition):
    """So many examples of so many classes on each client."""

    name: Literal["few_classes"] = "few_classes"
    examples: int = Field(100, ge=1)
    classes: int = Field(20, ge=1)

    def assign(self, instances: Instances, pairs: Pairs, classes: int, seed: int) -> Assignment:
        return partition.few_classes(pairs, examples=self.examples, classes=self.classes, seed=seed)


@register_partition
class FrequentClasses(Partition):
    """All instances of a frequent class on one client."""

    default_targets: ClassVar = "all"
    name: Literal["frequent_classes"] = "frequent_classes"
    clients: int = Field(10, ge=1, le=MOST_CLIENTS)
    frequent: int = Field(100, ge=1)  # how many classes count as frequent

    def assign(self, instances: Instances, pairs: Pairs, classes: int, seed: int) -> Assignment:
        if pairs.label is not None:
            raise UserError(
                'data.partition = "frequent_classes": assigns instances with all their labels; '
                'set data.targets to "all"'
            )
        return partition.frequent_classes(
            instances.labels, clients=self.clients, frequent=self.frequent, seed=seed
        )


@register_partition
class Shuffled(Partition):
    """The client sizes of another partition, the examples at random."""

    name: Literal["shuffled"] = "shuffled"
    like: Literal["by_user", "by_label"] = "by_user"

    def assign(self, instances: Instances, pairs: Pairs, classes: int, seed: int) -> Assignment:
        model: Partition = ByUser() if self.like == "by_user" else ByLabel()
        return partition.shuffled(model.assign(instances, pairs, classes, seed), seed=seed)


@register_partition
class Dirichlet(Partition):
    """Each class over clients in Dirichlet(α) shares."""

    name: Literal["dirichlet"] = "dirichlet"
    clients: int | None = Field(None, ge=1, le=MOST_CLIENTS)  # None: chosen for the data
    alpha: float = Field(0.5, gt=0, le=1e9)

    def assign(self, instances: Instances, pairs: Pairs, classes: int, seed: int) -> Assignment:
        clients = _so_many(self.name, self.clients)
        return partition.dirichlet(pairs, clients=clients, alpha=self.alpha, seed=seed)


@register_partition
class Iid(Partition):
    """Examples at random, client sizes nearly equal."""

    name: Literal["iid"] = "iid"
    clients: int | None = Field(None, ge=1, le=MOST_CLIENTS)  # None: chosen for the data

    def assign(self, instances: Instances, pairs: Pairs, classes: int, seed: int) -> Assignment:
        return partition.iid(pairs, clients=_so_many(self.name, self.clients), seed=seed)


@register_partition
class Given(Partition):
    """Clients as the source numbers them."""

    name: Literal["given"] = "given"

    def assign(self, instances: Instances, pairs: Pairs, classes: int, seed: int) -> Assignment:
        return partition.given(pairs, users_of(instances, f'data.partition = "{self.name}"'))


def _so_many(name: str, clients: int | None) -> int:
    if clients is None:  # the data of a config that says all, or loaded by itself
        raise UserError(f'data.partition = "{name}": set data.partition.clients, how many there are')
    return clients


AnyPartition = Annotated[SerializeAsAny[Partition], BeforeValidator(Partition.choose)]
"""`data.partition` of a config: whichever registered partition it names."""


def users_of(instances: Instances, setting: str) -> Tensor:
    """The user of each instance; `setting`: the config key that needs it, for the error."""
    if instances.user is None:
        raise UserError(
            f"{setting}: the source does not say whose each example is; "
            "movielens, interactions and omniglot do, a table or texts with `client`, image-folder with "
            'layout = "person/class", and an npz file with `client`'
        )
    return instances.user
