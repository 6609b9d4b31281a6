"""The ledger's bytes against those on the socket: a counting proxy between SuperNodes and SuperLink.

    python -m benchmarks.speed.flower_bytes   # writes results/flower/bytes.json; takes about 4 minutes

Two nodes with five clients each, digits, FedAwS; a small and a larger encoder, in plaintext and by TLS.
Counted from the end of the first round to the end of the last, so that what happens once (registering a
node, fetching the app) stays apart from what happens every round.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import record
from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from spreadout.config.experiment import Experiment
from spreadout.flower import keys
from spreadout.flower.events import Reader
from spreadout.flower.local import ENVIRONMENT, SECURE, start_link, start_node, write_connection
from spreadout.flower.processes import Processes
from spreadout.flower.project import write_project

NODES, ROUNDS, IDLE = 2, 4, 15.0
ARMS: dict[str, tuple[list[str], bool]] = {
    "65 KiB encoder, plaintext": ([], False),
    "65 KiB encoder, TLS and node keys": ([], True),
    "1.3 MiB encoder, plaintext": (["model.hidden=[1024]", "model.dim=256"], False),
}


@dataclass
class Proxy:
    """Passes bytes on in both directions and counts them."""

    target: int
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # one of the two is gone
                return
            for way, source, sink in (("up", near, far), ("down", far, near)):
                threading.Thread(target=self._pass, args=(way, source, sink), daemon=True).start()

    def _pass(self, way: str, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.counts[way] += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self._door.close()


def measure(overrides: list[str], secure: bool) -> dict[str, Any]:
    """One run: what the ledger says of its later rounds, and what the proxy counted."""
    settings = [f"rounds={ROUNDS}", "eval.every=1", f"deploy.nodes={NODES}", "deploy.timeout=90"]
    experiment = Experiment.load("digits-fedaws", [*settings, *overrides])
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "keys").mkdir()
        authority = folder / SECURE if secure else None
        if secure:
            keys.make_authority(folder / "keys")
            keys.make_certificate(folder / "keys", ["127.0.0.1"])
            for node in range(NODES):
                keys.make_node_key(folder / "keys" / f"node{node}")
        environment = {**ENVIRONMENT, "FLWR_HOME": str(folder / "home")}
        with Processes(folder / "logs", environment) as processes:
            port = start_link(processes, folder if secure else None)
            write_connection(folder / "home", port, authority)
            proxy = Proxy(port)
            for node in range(NODES):
                own = folder / "keys" / f"node{node}"
                if secure:
                    register = ["flwr", "supernode", "register", f"{own}.pub", "here"]
                    processes.call(f"register{node}", *register)
                told = {"partition-id": node, "num-partitions": NODES}
                key = own if secure else None
                start_node(processes, f"node{node}", proxy.port, told, authority, key)
            write_project(folder / "project", experiment)
            time.sleep(10)  # until all is quiet: what a waiting node says
            before = Counter(proxy.counts)
            time.sleep(IDLE)
            idle = {way: (proxy.counts[way] - before[way]) / IDLE / NODES for way in ("down", "up")}
            found = _watched(processes, proxy, folder)
            proxy.close()
    return {"idle_bytes_per_second_and_node": idle, **found}


def _watched(processes: Processes, proxy: Proxy, folder: Path) -> dict[str, Any]:
    out = folder / "run"
    started = Counter(proxy.counts)
    run = ["flwr", "run", str(folder / "project"), "here", "--stream"]
    processes.start("run", *run, "--run-config", f'out="{out}"')
    reader = Reader(out / "deployment" / "events.jsonl")
    marks: list[tuple[float, Counter[str], dict[str, Any]]] = []
    while not marks or marks[-1][2]["round"] < ROUNDS:
        for event in reader.new():
            if event["event"] == "failed":
                raise SystemExit(event["text"])
            if event["event"] == "evaluated":
                marks.append((time.monotonic(), Counter(proxy.counts), event["record"]))
        if processes.ended("run"):
            raise SystemExit(processes.last("run"))
        time.sleep(0.05)
    first, last = marks[1], marks[-1]  # after the first round, and after the last
    rounds = last[2]["round"] - first[2]["round"]
    ledger = {
        way: (last[2][f"bytes_{way}"] - first[2][f"bytes_{way}"]) / rounds for way in ("down", "up")
    }
    wire = {way: (last[1][way] - first[1][way]) / rounds for way in ("down", "up")}
    once = {way: marks[0][1][way] - started[way] for way in ("down", "up")}
    return {
        "rounds_counted": rounds,
        "seconds_per_round": (last[0] - first[0]) / rounds,
        "ledger_bytes_per_round": ledger,
        "socket_bytes_per_round": wire,
        "overhead_bytes_per_round_and_node": {way: (wire[way] - ledger[way]) / NODES for way in wire},
        "ratio": {way: wire[way] / ledger[way] for way in wire},
        "bytes_before_the_first_round": once,
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "flower" / "bytes.json")
    args = parser.parse_args()
    results = []
    for name, (overrides, secure) in ARMS.items():
        results.append({"arm": name, **measure(overrides, secure)})
        print(name, results[-1]["ratio"])
    import flwr

    about = {"nodes": NODES, "clients": 10, "method": "fedaws", "flwr": flwr.__version__}
    record.write(args.out, {**about, "results": results})


if __name__ == "__main__":
    command(main)
