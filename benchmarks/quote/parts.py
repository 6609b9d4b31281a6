"""What parts of a round take: mining, convolutions, reading data, bytes on the socket."""

from __future__ import annotations

from benchmarks.quote.tables import read, table


def mining(path: str) -> str:
    rows = [
        [
            f"{r['classes']:,}",
            r["precision"],
            f"{r['milliseconds']:.1f}",
            f"{r['of_it_mining']:.1f}",
            f"{r['extra_gigabytes']:.2f} GiB",
            f"{100 * r['recall']:.2f} %",
        ]
        for r in read(path)["results"]
    ]
    head = ("classes", "precision", "ms", "of it mining", "extra memory", "true neighbours found")
    return table(head, rows, path)


def index(path: str) -> str:
    rows = []
    for r in read(path)["results"]:
        cells = [f"{r['classes']:,}", r["rows"], f"{r['probes']} of {r['lists']:,}"]
        cells += [f"{r[name]:,.0f}" for name in ("milliseconds", "exact_milliseconds")]
        rows.append([*cells, f"{100 * r['recall']:.1f} %", f"{r['seconds_to_make']:g} s"])
    head = ("classes", "rows", "lists searched", "ms", "all rows, ms", "neighbours found", "made in")
    return table(head, rows, path)


def correlations(path: str) -> str:
    made = read(path)
    took = made["seconds"]
    rows = [
        [f"count {made['pairs'] / 1e6:.1f} million pairs", f"{took['count']:g}"],
        ["their weights, normalised", f"{took['weigh']:g}"],
        [f"mined step, {made['anchors']} classes, K = {made['k']}", f"{took['mined step']:g}"],
        ["the pull of (12) over all pairs that meet", f"{took['pull']:g}"],
    ]
    mined, pull = made["extra_gb"].values()
    note = f"Memory beyond the table's {made['table_gb']} GiB: {mined} GiB, "
    note += f"with the pull and its gradient {pull} GiB."
    return table((f"{made['classes']:,} classes, d = {made['dim']}", "seconds"), rows, path, note=note)


def convolutions(path: str) -> str:
    made = read(path)
    ways = list(dict.fromkeys(r["way"] for r in made["results"]))
    rows = []
    for layer in dict.fromkeys(r["layer"] for r in made["results"]):
        took = {r["way"]: r["milliseconds"] for r in made["results"] if r["layer"] == layer}
        rows.append([layer, *(f"{took[way]:.2f}" for way in ways)])
    note = f"{made['clients']} clients with {made['batch']} images each."
    return table(("ms, forward and backward", *ways), rows, path, note=note)


def reading(path: str) -> str:
    made = read(path)["parts"]
    ml, xc, wide = made["movielens-1m"], made["xc-text-100mb"], made["synthetic-10m-classes"]
    text = f"extreme-classification text, {xc['megabytes']:.0f} MB, {xc['rows']:,} rows"
    stream = f"{wide['examples']:,} synthetic instances over {wide['classes']:,} classes"
    found = [
        (f"MovieLens-1M, zip to {ml['examples']:,} windowed examples", ml["seconds"], ml),
        ("the same from the cache", ml["seconds_from_cache"], None),
        (text, xc["seconds"], xc),
        (stream, wide["seconds"], wide),
    ]
    for name in ("federation-1m-examples", "federation-10m-examples"):
        part = made[name]
        held = f"{part['examples']:,} examples of {part['clients']:,} clients"
        size = f"{part['megabytes_on_disk']:,} MB"
        found.append((f"{held}, {size}: sorted to disk", part["seconds_to_build"], part))
        gathered = part["milliseconds_a_cohort_of_1000"] / 1000
        found.append(("a cohort of 1,000 of them gathered", gathered, None))
    rows = [
        [what, f"{seconds:g} s", f"{part['own_memory_mb']} MB" if part else "–"]
        for what, seconds, part in found
    ]
    note = "Memory of its own: anonymous memory beyond what importing takes, without mapped files."
    return table(("on one core", "time", "memory of its own"), rows, path, note=note)


def flower_bytes(path: str) -> str:
    made = read(path)
    rows = []
    for r in made["results"]:
        parts = ("ledger", "socket", "overhead")
        moved = [r[f"{part}_bytes_per_round{'_and_node' * (part == 'overhead')}"] for part in parts]
        cells = [f"{_kib(part['down'])} / {_kib(part['up'])} KiB" for part in moved]
        rows.append([r["arm"], *cells, f"{r['ratio']['down']:.3f} / {r['ratio']['up']:.3f}"])
    note = f"Bytes per round, {made['clients']} clients on {made['nodes']} nodes, Flower {made['flwr']}."
    head = ("", "ledger, down / up", "on the socket", "protocol, per node and round", "ratio")
    return table(head, rows, path, note=note)


def _kib(count: float) -> str:
    return f"{count / 1024:,.1f}"


def serving(path: str) -> str:
    made = read(path)
    rows = []
    for r in made["results"]:
        way = "all classes" if r["index"] == "exact" else f"{r['probes']} of {r['lists']:,} lists"
        recall = f"{100 * r['recall']:.1f} %" if "recall" in r else "100 %"
        cells = [f"{r['classes']:,}", way, recall, str(r["clients"])]
        rows.append([*cells, f"{r['p50_ms']:g}", f"{r['p99_ms']:g}", f"{r['requests_a_second']:,.0f}"])
    head = ("classes", "compared with", "of the ten best found", "clients", "p50, ms", "p99, ms")
    setting = made["setting"]
    note = f"One input of {setting['dim']} numbers a request, {setting['top']} classes in the answer; "
    note += "clients and server share the machine"
    busy = f", which had other work too (load {setting['load_average_before']:g})"
    note += (busy if setting["load_average_before"] > 1 else "") + "."
    return table((*head, "requests per second"), rows, path, note=note)
