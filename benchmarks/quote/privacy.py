"""What hiding costs: requests, private retrieval, secure aggregation."""

from __future__ import annotations

from benchmarks.quote.tables import read, table


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
