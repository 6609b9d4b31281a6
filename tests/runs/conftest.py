from pathlib import Path

import pytest

import spreadout as so
from tiny import tiny, tiny_data


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two rounds, stopped after the first."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(so.Interrupted):
        so.run(tiny(), data=tiny_data(), out=folder, device="cpu", stop=lambda: True)
    return folder
