"""Dual encoders: recalls beside the paper's, and what federating costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.common.paths import ROOT
from benchmarks.papers.dual_encoder import CENTRALIZED, FEDERATED, LOSSES, RECALLS, drop, mean_of
from benchmarks.quote.tables import Made, over_seeds, read, spread, table

REFERENCES = "results/dual_encoder/references.json"
OTHERS = ("MRR", "nDCG@10", "mean rank", "batch R@1")


def retrieval(path: str, beside: str | None = None) -> str:
    """Recalls beside the paper's, where it has them. beside: a file of further arms, if it is there."""
    made = read(path)
    if beside is not None and (ROOT / beside).is_file():
        made = {**made, "variants": [*made["variants"], *read(beside)["variants"]]}
    paper = any(v["label"] in FEDERATED for v in made["variants"])
    head = ["", *RECALLS, *(["the paper"] if paper else []), *OTHERS, "down / up per client and round"]
    rows = []
    for v in made["variants"]:
        scores = v["metrics"]
        cells = [v["label"], *(_with_error(v, name) for name in RECALLS)]
        if paper:
            cells.append(" / ".join(f"{x:g}" for x in FEDERATED.get(v["label"], ())))
        for name in OTHERS:
            cells.append(f"{scores[name]['mean']:.{0 if name == 'mean rank' else 2}f}")
        moved = [v["bytes_per_client_round"][way] / 1024 for way in ("down", "up")]
        rows.append([*cells, "{:.0f} / {:.0f} KiB".format(*moved) if any(moved) else "–"])
    if paper:
        best = [f"{x:.2f}" for x in CENTRALIZED["H+S"]]
        rows.append(["the paper's best centralised (H+S)", *best, *[""] * (len(head) - 4)])
    rows += list(_references(made, head))
    return table(head, rows, path, note=over_seeds(made) + _errors_note(made))


def _with_error(variant: Made, name: str) -> str:
    """A mean and its deviation over seeds; behind it the error by users, where that is known."""
    error = variant.get("user_errors", {}).get(name)
    return spread(variant["metrics"][name], 2) + ("" if error is None else f" ({error:.2f})")


def _errors_note(made: Made) -> str:
    known = any("user_errors" in v for v in made["variants"])
    return " In brackets: the standard error by test users." if known else ""


def _references(made: Made, head: Sequence[str]) -> Iterator[list[str]]:
    """Popularity, successors and item-kNN on the same test examples: of the file, or computed since."""
    found = next((v["references"] for v in made["variants"] if v.get("references")), None)
    if found is None and not (ROOT / REFERENCES).is_file():
        return
    if found is None:
        ties = _ties(made)
        known = read(REFERENCES)["references"][f"users, ties {ties}"]
        found = {name: {k: {"mean": x} for k, x in scores.items()} for name, scores in known.items()}
    for name, scores in found.items():
        cells = {metric: f"{scores[metric]['mean']:.2f}" for metric in RECALLS}
        cells |= {metric: _plain(metric, scores) for metric in OTHERS}
        yield [f"*{name}*", *(cells.get(column, "") for column in head[1:])]


def _plain(metric: str, scores: Made) -> str:
    if metric not in scores:
        return ""
    return f"{scores[metric]['mean']:.{0 if metric == 'mean rank' else 2}f}"


def _ties(made: Made) -> str:
    """How items of one second were ordered; older files have the file's order."""
    source = next(iter(made["configs"].values()))["data"]["source"]
    return str(source.get("ties", "file")) if isinstance(source, dict) else "random"


def drops(federated: str, centralized: str) -> str:
    """What each loss loses by federating, and what the paper says it loses; counts beside them."""
    halves = [read(path) for path in (centralized, federated)]
    rows = []
    for loss in LOSSES:
        there, here = (mean_of(made, loss) for made in halves)
        cells = [_three(side) for side in (there, here)]
        ours = [(there[name], here[name]) for name in RECALLS]
        theirs = zip(CENTRALIZED[loss], FEDERATED[loss], strict=True)
        for pairs in (ours, theirs):
            cells.append(" / ".join(f"{100 * drop(one, other):.0f}" for one, other in pairs) + " %")
        rows.append([loss, *cells])
    ties, known = [_ties(made) for made in halves], read(REFERENCES)["references"]
    splits = [
        known[f"{split}, ties {one}"] for split, one in zip(("examples", "users"), ties, strict=True)
    ]
    rows += [[f"*{name}*", *(_three(split[name]) for split in splits), "", ""] for name in splits[0]]
    head = ("", "centralised", "federated", "drop", "drop in the paper")
    note = "R@1 / R@5 / R@10."
    if ties[0] != ties[1]:
        note += f" Items of one second: centralised in {ties[0]} order, federated in {ties[1]} order."
    return table(head, rows, centralized, note=note)


def _three(scores: Made) -> str:
    return " / ".join(f"{scores[name]:.2f}" for name in RECALLS)
