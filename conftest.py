"""Examples in docstrings register parts; what they register must not be there for other tests."""

from collections.abc import Iterator

import pytest
from _pytest.doctest import DoctestItem


@pytest.fixture(autouse=True)
def _registers_nothing_for_others(request: pytest.FixtureRequest) -> Iterator[None]:
    if not isinstance(request.node, DoctestItem):
        yield
        return
    from spreadout.config.presets import OWN
    from spreadout.data.partitions import PARTITIONS
    from spreadout.data.sources import SOURCES
    from spreadout.evaluation.metrics import METRICS
    from spreadout.federated.drift import DRIFT_CORRECTIONS
    from spreadout.methods import METHODS
    from spreadout.models.build import ENCODERS
    from spreadout.runtime import EXECUTORS

    registries = (DRIFT_CORRECTIONS, ENCODERS, EXECUTORS, METHODS, METRICS, OWN, PARTITIONS, SOURCES)
    before = [dict(registry._parts) for registry in registries]
    yield
    for registry, parts in zip(registries, before, strict=True):
        registry._parts = parts
