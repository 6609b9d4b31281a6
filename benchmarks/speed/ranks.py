"""The same run by one process and by two, one thread each: seconds a round, and where they end.

    python -m benchmarks.speed.ranks --out results/ranks/cpu.json

`clients` is work of clients, convolutions over Omniglot; `mining` is work of the server, nearest rows of
a class table that the processes share out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.common.processes import summary_of
from benchmarks.common.record import write

OMNIGLOT = str(CONFIGS / "fedss" / "omniglot-base.toml")
WORK = {
    "clients": [OMNIGLOT, "method.sampled_rows=58", "clients.per_round=16"],
    "mining": [
        "digits-fedaws",
        "data.source=synthetic",
        "data.source.classes=200000",
        "data.source.features=1000",
        "data.source.examples=200000",
        "data.source.test_examples=200",
        "model.hidden=[32]",
        "model.dim=128",
        "method.spreadout_form=topk",
        "method.k=100",
        "clients.per_round=512",
        "run.shard_mb=16",
    ],
}
ROUNDS = (2, 8)  # between them, what a round takes without what comes before and after


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "ranks" / "cpu.json")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    a = parser.parse_args()
    found = []
    for name, work in WORK.items():
        for ranks in a.ranks:
            short, long = (run(work, ranks, rounds) for rounds in ROUNDS)
            each = (long["seconds"] - short["seconds"]) / (ROUNDS[1] - ROUNDS[0])
            peak = long["peak_memory_bytes"] / 2**20
            made = {"work": name, "ranks": ranks, "seconds_a_round": round(each, 3)}
            found.append({**made, "first_ranks_mb": round(peak), "loss": long["loss"]})
            print(found[-1], flush=True)
    write(a.out, {"results": found})


def run(work: list[str], ranks: int, rounds: int) -> dict[str, Any]:
    settings = [f"rounds={rounds}", "eval.every=1000", "--device", "cpu"]
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    one_thread = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return summary_of(*work, *settings, under=start, settings=one_thread)


if __name__ == "__main__":
    command(main)
