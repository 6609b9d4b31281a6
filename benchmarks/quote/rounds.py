"""What rounds take: the simulator, whole rounds, how they grow, processes, peers, plans."""

from __future__ import annotations

from benchmarks.quote.tables import Made, read, table


def simulator(path: str) -> str:
    made = read(path)
    rows = []
    for s in made["speed"]:
        ours, slow, bare = (f"{rate:,.0f}" for rate in _rates(s))
        ratios = (f"{s[name]:.1f}x" for name in ("ratio", "ratio_to_bare_loop"))
        rows.append([str(s["local_steps"]), ours, slow, next(ratios), bare, next(ratios)])
    head = ("local steps", "simulator, clients/s", "sequential", "ratio", "bare loop", "ratio")
    grown = [
        [f"{g['classes']:,}", f"{1000 * g['seconds']:.1f}", f"{g['relative']:.3f}"]
        for g in made["growth"]
    ]
    growing = table(("classes", "client work, ms per round", "relative"), grown, path)
    return f"{table(head, rows)}\n\n{growing}"


def _rates(speed: Made) -> tuple[float, float, float]:
    each = speed["clients_per_second"]
    return each["simulator"], each["sequential"], each["bare loop"]


def rounds(*paths: str) -> str:
    """Milliseconds per round, one column for each machine."""
    made = [read(path) for path in paths]
    labels = {timed["name"]: timed["label"] for one in made for timed in one["results"]}
    times = [{timed["name"]: timed["milliseconds"] for timed in one["results"]} for one in made]
    rows = []
    for name, label in labels.items():
        cells = [one.get(name) for one in times]
        shown = ("–" if cell is None else f"{cell:.0f} ({1000 / cell:.0f}/s)" for cell in cells)
        rows.append([label, *shown])
    head = ("ms per round (rounds per second)", *(one["hardware"] for one in made))
    return table(head, rows, *paths)


def with_losses(*paths: str) -> str:
    """Rounds beside the losses they reached."""
    rows = []
    for r in (r for path in paths for r in read(path)["results"]):
        times = (f"{r['milliseconds']:.1f}", f"{r['mean_milliseconds']:.1f}", f"{r['clients']:,}")
        losses = f"{r['losses'][0]:.5f} → {r['losses'][-1]:.5f}"
        rows.append([r["label"], *times, losses, f"{r['peak_gb']:.2f} GiB"])
    head = ("", "ms per round", "mean", "clients", "loss, first and last", "memory")
    return table(head, rows, *paths)


def images(path: str) -> str:
    """A round on images beside a plain loop of the same network, by network and norm."""
    made, rows = read(path), []
    for r in made["results"]:
        took = r["milliseconds"]
        ways = (f"{took[way]:.1f}" for way in ("plain", "replayed", "round", "round, no graph"))
        name = f"ResNet-{r['net'].removeprefix('resnet')}"
        rows.append([name, r["norm"], *ways, f"{r['round / plain']:.2f}"])
    head = ("", "norm", "plain loop, ms", "the same, one graph", "round", "round, no graph")
    note = f"{made['clients']} clients with {made['batch']} images each."
    return table((*head, "round / plain loop"), rows, path, note=note)


def growth(path: str) -> str:
    rows = []
    for axis, found in read(path)["axes"].items():
        for row in found["points"]:
            cells = (f"{row[name]:,.0f}" for name in ("clients_ms", "server_ms", "memory_mb"))
            rows.append([axis, f"{row[found['along']]:,}", *cells])
        rows.append(["", "slope", *(f"{value:.2f}" for value in found["slopes"].values())])
    return table(("", "", "clients' work, ms", "server's step, ms", "memory, MiB"), rows, path)


def ranks(path: str) -> str:
    made = read(path)
    alone = {r["work"]: r["seconds_a_round"] for r in made["results"] if r["ranks"] == 1}
    rows = []
    for r in made["results"]:
        took = r["seconds_a_round"]
        cells = (f"{took:.2f}", f"{alone[r['work']] / took:.2f}", f"{r['first_ranks_mb']:,} MiB")
        rows.append([r["work"], str(r["ranks"]), *cells, f"{r['loss']:.5f}"])
    head = ("", "processes", "seconds per round", "times as fast", "memory of the first", "loss")
    return table(head, rows, path)


def peers(path: str) -> str:
    made = read(path)
    tables = {
        which: {row["name"]: row for row in found["contenders"]}
        for which, found in made["workloads"].items()
    }
    rows = []
    for name, a in sorted(tables["A"].items(), key=lambda item: item[1]["seconds"]):
        b = tables["B"][name]
        cells = []
        for which, row in (("A", a), ("B", b)):
            cells += [f"{1000 * row['seconds']:.0f}", " / ".join(_times(row, tables[which]))]
        rows.append([a["label"], *cells, f"{a['peak_gib']:.2f} / {b['peak_gib']:.2f} GiB"])
    ends = {which: {round(r["loss"], 4) for r in found.values()} for which, found in tables.items()}
    told = " and ".join(f"{'–'.join(map(str, sorted(end)))} ({which})" for which, end in ends.items())
    head = ("", "A, ms per round", "times ours", "B, ms per round", "times ours", "memory A / B")
    return table(head, rows, path, note=f"All end at the loss {told}.")


def _times(row: Made, contenders: Made) -> list[str]:
    """Beside ours with two threads and with one."""
    ours = (contenders[f"spreadout-{threads}"]["seconds"] for threads in (2, 1))
    return [f"{row['seconds'] / seconds:.1f}" for seconds in ours]


def plans(path: str) -> str:
    """Foretold over taken."""
    rows = []
    for r in read(path)["results"]:
        told, took = r["foretold"], r["taken"]
        seconds = f"{told['seconds']:.1f} / {took['seconds']:.1f} s"
        memory = " / ".join(f"{one['peak_memory_bytes'] / 2**20:,.0f}" for one in (told, took)) + " MiB"
        ways = ("down_per_client", "up_per_client")
        off = (f"{100 * (told[way] / took[way] - 1):+.1f} %" for way in ways)
        rows.append([r["case"], seconds, memory, *off])
    return table(("", "time", "memory", "down", "up"), rows, path, note="Forecast / measured.")
