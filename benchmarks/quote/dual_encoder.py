"""Dual encoders: recalls beside the paper's, and what federating costs."""

from __future__ import annotations

from benchmarks.papers.dual_encoder import CENTRALIZED, FEDERATED, LOSSES, RECALLS, drop, mean_of
from benchmarks.quote.tables import over_seeds, read, spread, table

OTHERS = ("MRR", "nDCG@10", "mean rank", "batch R@1")


def retrieval(path: str) -> str:
    """Recalls beside the paper's, where it has them."""
    made = read(path)
    paper = any(v["label"] in FEDERATED for v in made["variants"])
    head = ["", *RECALLS, *(["the paper"] if paper else []), *OTHERS, "down / up per client and round"]
    rows = []
    for v in made["variants"]:
        scores = v["metrics"]
        cells = [v["label"], *(spread(scores[name], 2) for name in RECALLS)]
        if paper:
            cells.append(" / ".join(f"{x:g}" for x in FEDERATED[v["label"]]))
        for name in OTHERS:
            cells.append(f"{scores[name]['mean']:.{0 if name == 'mean rank' else 2}f}")
        moved = (v["bytes_per_client_round"][way] / 1024 for way in ("down", "up"))
        rows.append([*cells, "{:.0f} / {:.0f} KiB".format(*moved)])
    if paper:
        best = [f"{x:.2f}" for x in CENTRALIZED["H+S"]]
        rows.append(["the paper's best centralised (H+S)", *best, *[""] * (len(head) - 4)])
    return table(head, rows, path, note=over_seeds(made))


def drops(federated: str, centralized: str) -> str:
    """What each loss loses by federating, and what the paper says it loses."""
    rows = []
    for loss in LOSSES:
        here, there = (mean_of(read(path), loss) for path in (federated, centralized))
        cells = [" / ".join(f"{side[name]:.2f}" for name in RECALLS) for side in (there, here)]
        ours = [(there[name], here[name]) for name in RECALLS]
        theirs = zip(CENTRALIZED[loss], FEDERATED[loss], strict=True)
        for pairs in (ours, theirs):
            cells.append(" / ".join(f"{100 * drop(one, other):.0f}" for one, other in pairs) + " %")
        rows.append([loss, *cells])
    head = ("", "centralised", "federated", "drop", "drop in the paper")
    return table(head, rows, centralized, note="R@1 / R@5 / R@10.")
