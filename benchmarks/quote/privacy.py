"""What hiding costs: requests, private retrieval, secure aggregation."""

from __future__ import annotations

from statistics import mean, stdev

from benchmarks.privacy import COUNT, GUESS
from benchmarks.quote.tables import mib, read, table
from spreadout.privacy.accounting import least_noise


def requests(path: str) -> str:
    """What an observer of requests knows, and the bytes of a request's rows."""
    made = read(path)
    after = list(made["draws"][0]["after"])
    rows = []
    for one in made["draws"]:
        looks = one["after"]
        sure = (f"{100 * looks[t]['sure']:.0f} %" for t in after)
        exposed = f"{100 * looks[after[-1]]['exposed']:.0f} %"
        cost = f"{one['rows']:.0f}", f"{one['bytes'] / 1024:.1f}"
        rows.append([f"`{one['draw']}`", *cost, *sure, exposed])
    sure_after = (f"sure after {t}" for t in after)
    head = ("draw", "rows", "KiB down", *sure_after, f"exposed after {after[-1]}")
    return table(head, rows, path, note="A client has 20 of 964 classes.")


def retrieval(path: str) -> str:
    """Bytes and time of one row that two servers send without learning which."""
    rows = []
    for one in read(path)["tables"]:
        cost = (f"{one[key] / 1024:.1f} KiB" for key in ("up_bytes", "down_bytes"))
        took = f"{one['query_ms'] + one['read_ms']:.2f} ms", f"{one['answer_ms']:.1f} ms"
        rows.append([f"{one['rows']:,}", str(one["group"]), mib(one["table_bytes"], 1), *cost, *took])
    head = ("rows", "rows a block", "table", "up", "down", "time of the client", "time of a server")
    note = "Of one row of 64 numbers, to and from both servers together."
    return table(head, rows, path, note=note)


def row_servers(path: str) -> str:
    """Bytes and time of a fetch from two row servers over HTTP."""
    made = read(path)
    rows = []
    for one in made["tables"]:
        cost = (f"{one[key] / 1024:,.1f} KiB" for key in ("up_bytes", "down_bytes"))
        took = f"{one['fetch_ms']:.0f} ms", f"{one['slowest_ms']:.0f} ms"
        published = f"{one['publish_seconds']:.1f} s"
        rows.append([f"{one['rows']:,}", mib(one["table_bytes"], 1), *cost, *took, published])
    head = ("rows", "table", "up", "down", "time", "slowest", "handing over the table")
    note = (
        f"{made['fetched']} rows of {made['width']} numbers at a time, both servers together; the "
        f"machine had other work too (load {made['load_average_before']})."
    )
    return table(head, rows, path, note=note)


BASE = 1000  # clients with noise on the server at ε = 8, which others are compared with
LEVELS: tuple[float | None, ...] = (1.0, 2.0, 4.0, 8.0, None)  # ε; None: no noise


def utility(path: str) -> str:
    """Scores on the test part by who adds the noise and ε: mean and spread over seeds.

    What counts labels stands below the methods, and last what needs no noise.
    """
    made = read(path)
    found: dict[tuple[str, str, str], dict[float | None, list[float]]] = {}
    for run in made["runs"]:
        if run["split"] == "test":
            cell = found.setdefault((run["set"], run["arm"], run["model"]), {})
            cell.setdefault(run["epsilon"], []).append(run["score"] or 0.0)
    rows, seeds = [], set()
    for name, metric in made["metric"].items():
        arms = list(dict.fromkeys(arm for data, arm, _ in sorted(found) if data == name))
        noised = [arm for arm in arms if (name, arm, "central") in found]
        for model in ("central", "local"):
            for arm in sorted(noised, key=lambda one: (one == COUNT, one)):
                cell = {**found.get((name, arm, "none"), {}), **found.get((name, arm, model), {})}
                rows.append([f"{name}, {metric}", arm, model, *(_seeds(cell.get(e)) for e in LEVELS)])
                seeds |= {len(scores) for scores in cell.values()}
        for arm in sorted(set(arms) - set(noised), key=lambda one: (one == GUESS, one)):
            scores = found[name, arm, "none"][None]
            last = _seeds(scores[:1] if arm == GUESS else scores)  # of a guess seeds are all alike
            shown = [last if arm == GUESS else "–"] * (len(LEVELS) - 1)
            rows.append([f"{name}, {metric}", arm, "none", *shown, last])
    head = ("data", "method", "noise", *(f"ε = {e:g}" if e else "ε = ∞" for e in LEVELS))
    fewest = "" if len(seeds) == 1 else f"{min(seeds)} to "
    note = f"Mean ± deviation over {fewest}{max(seeds)} seeds, δ = {made['delta']:g}."
    return table(head, rows, path, note=note)


def clients() -> str:
    """How many clients make up for less ε, or for noise on each of them, if all are in every round.

    The mean over K clients has noise of z/K clips from the server, or of z'/√K from the clients. Both
    grow with the root of the rounds, which cancels.
    """
    levels, delta = (1.0, 2.0, 4.0, 8.0), 1e-5
    server = {e: least_noise(e, 1, delta, 1.0) for e in levels}
    aim = server[8.0] / BASE
    on_server = [server[e] / aim for e in levels]
    on_clients = [(least_noise(e, 1, delta) / aim) ** 2 for e in levels]
    rows = [
        [model, *(f"{_rounded(each):,}" for each in needed)]
        for model, needed in (("central", on_server), ("local", on_clients))
    ]
    head = ("noise", *(f"ε = {e:g}" for e in levels))
    return table(head, rows, note=f"Clients in every round for the same noise, δ = {delta:g}.")


def _rounded(count: float) -> int:
    """To two digits."""
    return int(float(f"{count:.1e}"))


def _seeds(scores: list[float] | None) -> str:
    if not scores:
        return "–"
    return f"{mean(scores):.1f} ± {stdev(scores):.1f}" if len(scores) > 1 else f"{scores[0]:.1f}"


def sums(path: str) -> str:
    """What a secure sum costs a node and the server."""
    rows = []
    for one in read(path)["sums"]:
        took = (f"{one[key]:.0f} ms" for key in ("prepare_ms", "mask_ms", "unmask_ms"))
        sent = (f"{one[key] / 1024:,.1f} KiB" for key in ("masked_bytes", "letter_bytes"))
        rows.append([str(one["nodes"]), f"{one['numbers']:,}", *took, *sent])
    head = ("nodes", "numbers", "a node: keys and shares", "a node: masks", "the server", "numbers up")
    note = "One node leaves before its numbers. Without masks, numbers are as long."
    return table((*head, "letters"), rows, path, note=note)
