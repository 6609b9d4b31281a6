import os
from pathlib import Path

import numpy as np
import pytest
import torch

from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits

collect_ignore = ["support/fuzz/guided.py"]  # no tests in it, and it needs atheris

try:
    from hypothesis import settings
except ModuleNotFoundError:  # those of a GPU need pytest alone
    pass
else:
    settings.register_profile("calm", deadline=None)  # a busy machine is not a failing property
    settings.load_profile("calm")
# Tests run side by side, and colliding thread pools are slower than one thread: here, and in all
# processes that tests start.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Files that take the longest begin first: one that begins last leaves the other processes waiting.
LONGEST = (
    "flower/test_flower_deploy.py",
    "test_examples.py",
    "test_package.py",
    "runtime/test_distributed.py",
    "runs/test_resume.py",
    "cli/test_cli.py",
    "evaluation/test_cautious_prior.py",
    "runs/test_kill_points.py",
    "test_doc_blocks.py",
    "runs/test_remedies.py",
    "runs/test_damage.py",
    "benchmarks/test_side_by_side.py",
    "runs/test_sweep.py",
    "use/test_export.py",
    "cli/test_start.py",
    "evaluation/test_prior_alone.py",
    "data/test_cache.py",
    "test_site.py",
    "test_notebooks.py",
    "cli/test_data_commands.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {Path(__file__).parent / name: i for i, name in enumerate(LONGEST)}
    assert all(path.is_file() for path in place)
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture(autouse=True, scope="session")
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests keep what they parse to themselves."""
    os.environ["SPREADOUT_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def toy_arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six clients: ragged sizes, several classes on a client, a class on several clients, client 4 empty."""
    rng = np.random.default_rng(0)
    client = np.repeat([0, 1, 2, 3, 5], [7, 1, 12, 5, 3])
    y = np.concatenate([np.zeros(7), [1], rng.integers(2, 5, 12), [3, 3, 4, 4, 4], [5, 5, 0]]).astype(
        int
    )
    x = rng.normal(size=(len(y), 6)).astype(np.float32) + 2 * np.eye(6, dtype=np.float32)[y]
    return x, y, client


@pytest.fixture
def toy(toy_arrays: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Splits:
    x, y, client = toy_arrays
    return Splits("toy", FederatedDataset.from_arrays(x, y, client), Examples.from_arrays(x, y))


@pytest.fixture
def real_data() -> Path:
    """The folder of real data sets, or a skip that says how to get one."""
    home = os.environ.get("SPREADOUT_DATA")
    if not home or not Path(home).is_dir():
        pytest.skip("SPREADOUT_DATA is not set to a folder with the data sets")
    return Path(home)
