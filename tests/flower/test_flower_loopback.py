"""Real processes on loopback: a SuperLink, three SuperNodes, and the model that was simulated."""

import time
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")

import spreadout as so
from deployment import METHODS, NODES, config, federation
from spreadout.config.experiment import Experiment
from spreadout.flower.events import Reader
from spreadout.flower.local import ENVIRONMENT, start_link, start_node, write_connection
from spreadout.flower.processes import Processes
from spreadout.flower.project import write_project
from spreadout.runs import checkpoint


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both methods at once on the same nodes: starting processes is what takes the time."""
    folder = tmp_path_factory.mktemp("loopback")
    data = federation(folder / "data.npz")
    with Processes(folder / "logs", {**ENVIRONMENT, "FLWR_HOME": str(folder / "home")}) as processes:
        port = start_link(processes, None)
        write_connection(folder / "home", port, None)
        for node in range(NODES):
            start_node(processes, f"node{node}", port, {"partition-id": node, "num-partitions": NODES})
        readers = {}
        for name, method in METHODS.items():
            project, out = folder / f"project-{name}", folder / name
            write_project(project, config(data, method))
            run = ["flwr", "run", str(project), "here", "--stream", "--run-config", f'out="{out}"']
            processes.start(f"run-{name}", *run)
            readers[name] = Reader(out / "deployment" / "events.jsonl")
        _wait_for(readers, processes)
    assert processes.survivors() == []  # it ended all that it started, and all that those started
    return {name: folder / name for name in METHODS}


def _wait_for(readers: dict[str, Reader], processes: Processes) -> None:
    left, until = dict(readers), time.monotonic() + 240
    while left:
        for name in list(left):
            for event in left[name].new():
                assert event["event"] != "failed", event
                if event["event"] == "done":
                    del left[name]
                    break
        assert time.monotonic() < until, "\n".join(map(processes.last, processes.running))
        time.sleep(0.1)


@pytest.mark.parametrize("method", METHODS)
def test_three_nodes_train_the_simulated_model(method: str, runs: dict[str, Path]) -> None:
    experiment = Experiment.load(runs[method] / "config.toml")
    assert experiment.method.name == method
    simulated = so.run(experiment, device="cpu").state
    state, _ = checkpoint.load(runs[method] / "checkpoint", torch.device("cpu"))
    assert state.round == 3
    torch.testing.assert_close(state.dense, simulated.dense, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(state.tables, simulated.tables, rtol=1e-4, atol=2e-6)
    assert state.refused == {}
    assert state.traffic == simulated.traffic  # a client a node: byte for byte the simulated ledger
