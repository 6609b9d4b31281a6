"""Flower 1.41: its simulation engine on Ray, two actors of one core.

`python -m benchmarks.peers.with_flower A|B ROUNDS NODES`. Its own FedAvg strategy; each message
names the client to play, and in B carries that label's row.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import sample_nodes
from flwr.simulation import run_simulation

from benchmarks.peers.flower_app import app
from benchmarks.peers.work import CLIENTS, Data, finish

work, rounds, nodes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class InOrder(FedAvg):
    """FedAvg over the clients that every contender trains."""

    def __init__(self, data: Data, **options: Any) -> None:
        super().__init__(**options)
        self.cohorts, self.ticks = data.cohorts, [0.0]
        rows = data.start.get("rows")
        self.rows = None
        if rows is not None:
            self.rows = list(ArrayRecord({str(i): row.clone() for i, row in enumerate(rows)}).values())

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        if server_round == 1:
            self.ticks = [time.perf_counter()]
        chosen, _ = sample_nodes(grid, nodes, CLIENTS)
        messages = []
        for node, client in zip(chosen, self.cohorts[server_round - 1], strict=True):
            sent = arrays
            if self.rows is not None:
                rest = {name: array for name, array in arrays.items() if name != "row"}
                sent = ArrayRecord({**rest, "row": self.rows[client]})
            told = ConfigRecord({"work": work, "client": client, "server-round": server_round})
            content = RecordDict({"arrays": sent, "config": told})
            messages.append(Message(content=content, dst_node_id=node, message_type=MessageType.TRAIN))
        return messages

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        broken = [reply.error for reply in replies if reply.has_error()]
        if broken or len(replies) != CLIENTS:
            raise RuntimeError(f"round {server_round}: {len(replies)} replies, errors {broken[:1]}")
        if self.rows is not None:
            for reply in replies:
                said = next(iter(reply.content.metric_records.values()))
                self.rows[int(said["client"])] = reply.content["arrays"]["row"]
        found = super().aggregate_train(server_round, replies)
        self.ticks.append(time.perf_counter())
        return found


server = ServerApp()


@server.main()
def main(grid: Any, context: Any) -> None:
    data = Data(work)
    strategy = InOrder(data, fraction_train=0.1, fraction_evaluate=0.0, min_available_nodes=nodes)
    start = {name: value for name, value in data.start.items() if name != "rows"}
    done = strategy.start(grid=grid, initial_arrays=ArrayRecord(start), num_rounds=rounds)
    params = {k: torch.from_numpy(v.numpy()) for k, v in done.arrays.items() if k != "row"}
    if strategy.rows is not None:
        params["rows"] = torch.stack([torch.from_numpy(row.numpy()) for row in strategy.rows])
    ticks = strategy.ticks
    seconds = [after - before for before, after in pairwise(ticks)]
    finish(f"flower-{nodes}", work, seconds, params)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_simulation(
        server,
        app,
        num_supernodes=nodes,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": 2, "_node_ip_address": "127.0.0.1"},
        },
    )
