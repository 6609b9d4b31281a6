"""What a person can mend stands in Flower's log in one line; other errors keep their traceback."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict
from flwr.supercore import log

from memory_grid import MemoryGrid
from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.flower.one_line import log_user_errors_in_one_line
from spreadout.flower.server_app import server_app


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What Flower's logger has written, however quiet an earlier test has made it."""
    logger, stream = logging.getLogger("flwr"), io.StringIO()
    handler, before = logging.StreamHandler(stream), list(logger.filters)
    level, silent = logger.level, logger.disabled
    logger.setLevel(logging.INFO)
    logger.disabled = False
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)
    logger.filters[:] = before
    logger.setLevel(level)
    logger.disabled = silent


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as found:
        return found


def test_a_failed_server_is_logged_in_one_line(tmp_path: Path, logged: io.StringIO) -> None:
    config = tmp_path / "experiment.toml"
    values = {"data": {"source": "digits"}, "deploy": {"nodes": 2, "wait": 0.1}}
    config.write_text(Experiment.of(values).to_toml())
    context = Context(1, 0, {}, RecordDict(), {"out": str(tmp_path / "run"), "device": "cpu"})
    with pytest.raises(UserError, match=r"deploy\.nodes = 2: 0 nodes came") as told:
        server_app(config)(MemoryGrid([]), context)
    logged.truncate(0)
    logged.seek(0)
    log(logging.ERROR, "%s raised an exception", "ServerApp", exc_info=told.value)  # as Flower does
    assert logged.getvalue() == f"ServerApp raised an exception: {told.value}\n"


def test_other_errors_keep_their_traceback(logged: io.StringIO) -> None:
    log_user_errors_in_one_line()
    log_user_errors_in_one_line()
    log(logging.ERROR, "it raised", exc_info=raised(ValueError("a fault of ours")))
    assert "Traceback" in logged.getvalue()
    assert "ValueError: a fault of ours" in logged.getvalue()
    log(logging.WARNING, "100 %% %s", "plain")
    log(logging.ERROR, "it raised", exc_info=raised(UserError("50 % of it")))
    assert logged.getvalue().endswith("100 % plain\nit raised: 50 % of it\n")
