"""What long and large runs showed: the promise, the command that tries it, the figure."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.quote.tables import Made, read, table

FOLDER = "results/soak"
PROMISES = {
    "rounds": "Memory and open files do not grow with the rounds",
    "comparison": "A comparison that is killed and interrupted ends as one left alone",
    "scale": "A million classes and clients fit, evaluated against every class",
    "deployment": "A deployment goes on while a node comes and goes",
}


def soaks() -> str:
    figures = {
        "rounds": _rounds,
        "comparison": _comparison,
        "scale": _scale,
        "deployment": _deployment,
    }
    paths = {name: f"{FOLDER}/{name}.json" for name in figures}
    rows = [
        [PROMISES[name], f"`python -m benchmarks.soak.{name}`", figure(read(paths[name]))]
        for name, figure in figures.items()
    ]
    return table(("promise", "command", "figure"), rows, *paths.values())


def _rounds(made: Made) -> str:
    memory = made["memory"]
    return (
        f"{made['config']['rounds']:,} rounds, {made['evaluations'] - 1} evaluations and checkpoints: "
        f"{memory['first_mb']:.0f} MiB at first, {memory['last_mb']:.0f} MiB at last, "
        f"{memory['growth_bytes_a_round']:.0f} bytes per round; {made['open_files'][-1]} open files"
    )


def _comparison(made: Made) -> str:
    kills = sum(one["signal"] == "SIGKILL" for one in made["interruptions"])
    return (
        f"{made['runs']} runs of {made['rounds']} rounds, {kills} times killed, "
        f"{len(made['interruptions']) - kills} times Ctrl-C: {made['identical']} of {made['runs']} runs "
        "bit-identical in weights, history and summary"
    )


def _scale(made: Made) -> str:
    return (
        f"{made['classes']:,} classes, {made['clients_a_round']:,} clients per round, "
        f"{made['config']['rounds']} rounds, {made['test_examples']:,} test examples ranked after each: "
        f"peak {made['peak_memory_gb']:.1f} GiB, {made['cpu_seconds']:.0f} s of CPU time"
    )


def _deployment(made: Made) -> str:
    counted, flaps = made["rounds_by_updates_counted"], made["flaps"]
    kills = sum(flap["signal"] == "SIGKILL" for flap in flaps)
    back = [flap["back"] - flap["started"] for flap in flaps if "back" in flap]
    server, link = made["server_memory"], made["superlink_memory"]
    return (
        f"{made['rounds_done']} rounds with real processes; a node left {len(flaps)} times, "
        f"{kills} of them killed: {counted.get('2', 0)} rounds with both clients, "
        f"{counted.get('1', 0)} with the steady one, {counted.get('0', 0)} without any; "
        f"used again {_median(back)} rounds after its start in the median; "
        f"server {server['first_mb']:.0f} → {server['last_mb']:.0f} MiB "
        f"({server['growth_bytes_a_round'] / 1000:.0f} kB per round), "
        f"SuperLink {link['first_mb']:.0f} → {link['last_mb']:.0f} MiB"
    )


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
