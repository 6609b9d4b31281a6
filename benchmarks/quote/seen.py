"""What clients see of the classes, and what the server knows of them."""

from __future__ import annotations

from benchmarks.quote.tables import read, spread, table

ARMS = {"none": "no features", "features": "features", "shuffled": "features of other classes"}


def rows(path: str) -> str:
    """P@k and bytes by the rows that a client gets beside its own."""
    made = read(path)
    lines = []
    for count, found in made["arms"].items():
        cells = [
            f"{spread(found['without'][name])} → {spread(found['prior'][name])}"
            for name in ("P@1", "P@3", "P@5", "PSP@5")
        ]
        kib = " / ".join(f"{found['bytes'][way] / 1024:.1f}" for way in ("down", "up"))
        chosen = ", ".join(map(str, found["chosen"]))
        lines.append([count, *cells, f"{kib} KiB", chosen])
    head = ("rows beside its own", "P@1", "P@3", "P@5", "PSP@5", "down / up a round", "chosen")
    note = f"Without → with the prior, over {made['seeds']} seeds. Bytes are of one client."
    return table(head, lines, path, note=note)


def class_features(*paths: str) -> str:
    """Frequent, rare and unseen classes apart."""
    lines = []
    for path in paths:
        made = read(path)
        for arm, label in ARMS.items():
            found = made["arms"][arm]["test"]
            keys = ("P@1", "P@5", "frequent", "rare", "unseen")
            lines.append([made["data"], label, *(spread(found[key]) for key in keys)])
    head = ("", "rows from", "P@1", "P@5", "frequent", "rare", "unseen")
    return table(head, lines, *paths, note="Mean ± standard deviation over 3 seeds.")
