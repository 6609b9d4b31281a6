"""FedSS: sampled softmax on classes never trained on, what requests give away, and gradients' noise."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.quote.edges import edges
from benchmarks.quote.tables import Made, Planned, latest, not_run, over_seeds, read, spread, table

MADE = {
    "five drawings a class": "results/fedss/reduced-5.json",
    "twenty drawings a class": "results/fedss/reduced-20.json",
}
TO_COME = (
    Planned(
        "twenty drawings a class, all arms, 28x28, up to 3,000 rounds",
        "results/fedss/drawings-20.json",
        "fedss --studies drawings-20",
        80,
    ),
    Planned(
        "the same with five drawings", "results/fedss/drawings-5.json", "fedss --studies drawings-5", 80
    ),
    Planned(
        "NegOnly with as many rivals as FedSS at all sizes (Fig. 6)",
        "results/fedss/matched.json",
        "fedss --studies matched",
        30,
    ),
    Planned(
        "MobileNetV3-Large with GroupNorm, the paper's encoder",
        "results/fedss/mobilenet.json",
        "fedss --studies mobilenet",
        90,
    ),
)
MARKS = (30.0, 40.0, 50.0)  # MAP@10 to be reached
MERGES = {"weighted-mean": "the mean over a row's holders (ours)", "sum": "the paper's literal sum"}
EITHER = ("fedavg", "centralized")  # all hold all rows: both merges are one


def sampled(path: str) -> str:
    """FedSS and its rivals, with what the class layer costs each."""
    made = read(path)
    names = list(made["variants"][0]["metrics"])
    full = next(v for v in made["variants"] if v["name"] == "full")
    rows = []
    for v in made["variants"]:
        share = v["metrics"]["MAP@10"]["mean"] / full["metrics"]["MAP@10"]["mean"]
        cells = [*map(spread, v["metrics"].values()), f"{100 * share:.1f} %"]
        layer, whole = (_class_rows(one) for one in (v, full))
        cells += [f"{layer / 1024:.1f}", f"{100 * layer / whole:.1f} %"] if layer else ["–", "–"]
        rows.append([v["label"], *cells])
    head = ("", *names, "MAP@10 of FullSoftmax's", "class rows down, KiB", "of FullSoftmax's")
    note = f"{over_seeds(made).removesuffix('.')}; bytes a client and round. {merges_of(made)}"
    return table(head, rows, path, note=note.strip())


def merges_of(made: Made) -> str:
    """How all arms merge the rows they sample; empty where they differ and their labels say it."""
    methods = (made["configs"][v["name"]]["method"] for v in made["variants"])
    used = {MERGES[one["merge"]] for one in methods if one["name"] not in EITHER}
    return f"Sampled rows are merged by {used.pop()}." if len(used) == 1 else ""


def by_bytes(path: str, marks: Sequence[float] = MARKS) -> str:
    """Figs. 3 and 4: rounds and bytes, of all clients both ways, until MAP@10 is so high."""
    made = read(path)
    rows = []
    for v in made["variants"]:
        each = sum(v["bytes_per_client_round"].values())
        if not each:  # in one place
            continue
        curve, cohort = v["curve"], made["configs"][v["name"]]["clients"]["per_round"]
        rounds = [_rounds_to(curve["round"], curve["MAP@10"], mark) for mark in marks]
        cells = ["–" if at is None else f"{at:.0f}" for at in rounds]
        cells += ["–" if at is None else f"{at * each * cohort / 2**30:.2f}" for at in rounds]
        rows.append([v["label"], *cells])
    heads = (f"{what} to {mark:g}" for what in ("rounds", "GiB") for mark in marks)
    note = f"Between evaluations, every 100 rounds, a straight line. {merges_of(made)}"
    return table(("", *heads), rows, path, note=note.strip())


def _rounds_to(rounds: Sequence[float], scores: Sequence[float], mark: float) -> float | None:
    """When a curve first is so high; None: it never is."""
    for at in range(1, len(scores)):
        if scores[at] >= mark:
            share = (mark - scores[at - 1]) / (scores[at] - scores[at - 1])
            return rounds[at - 1] + max(share, 0.0) * (rounds[at] - rounds[at - 1])
    return None


def studies() -> str:
    """The tables of the studies that were made, as far as they came, and one line for the others."""
    made = [
        f"**{title[0].upper()}{title[1:]}**\n\n{studied(latest(path), _tuning(path))}"
        for title, path in MADE.items()
    ]
    return "\n\n".join([*made, *not_run(TO_COME)])


def _tuning(path: str) -> str:
    return f"{path.removesuffix('.json')}-tuning.json"


def studied(path: str, tuning: str | None = None) -> str:
    """Arms with row rates, and maybe rounds, chosen on left-out alphabets, beside FullSoftmax."""
    made = read(path)
    full = next((v for v in made["variants"] if v["name"] == "full"), None)
    rows = []
    for v in made["variants"]:
        config, moved = made["configs"][v["name"]], _class_rows(v)
        share = _share(v, full) if full else "–"
        fit = v.get("fit", {}).get("P@1")
        cells = [spread(v["metrics"][name]) for name in ("MAP@10", "retrieval R@1")]
        cells += [share, "–" if fit is None else f"{fit:.1f}", f"{moved / 1024:.1f}" if moved else "–"]
        rows.append([v["label"], *cells, f"{config['clients']['row_lr']:g}", str(config["rounds"])])
    scores = ("MAP@10", "R@1", "MAP@10 of FullSoftmax's, seed by seed", "P@1 on its training data")
    head = ("", *scores, "class rows down, KiB", "row rate", "rounds")
    note = f"{over_seeds(made)} {edges(made, tuning) if tuning else ''}"
    return table(head, rows, path, note=note.strip())


def _share(variant: Made, full: Made) -> str:
    """The least and the most of what seeds have of FullSoftmax's."""
    pairs = zip(*(one["metrics"]["MAP@10"]["values"] for one in (variant, full)), strict=False)
    shares = [100 * own / whole for own, whole in pairs]
    least, most = f"{min(shares):.1f}", f"{max(shares):.1f}"
    return f"{least} %" if least == most else f"{least} … {most} %"


def _class_rows(variant: Made) -> float:
    moved = variant["bytes"]
    return float(moved["rows_down"] / max(moved["participations"], 1))


def observed(path: str) -> str:
    """What requests give away, and what it costs not to."""
    made = read(path)
    after = list(made["draws"][0]["after"])
    rows = []
    for one in made["draws"]:
        looks = one["after"]
        sure = (f"{looks[t]['sure']:.0f} %" for t in after)
        exposed = f"{looks[after[-1]]['exposed']:.0f} %"
        rows.append([f"`{one['draw']}`", *sure, exposed, spread(one["MAP@10"])])
    head = ("draw", *(f"sure after {t}" for t in after), f"exposed after {after[-1]}", "MAP@10")
    return table(head, rows, path)


def gradients(path: str) -> str:
    """Bias and spread of sampled gradients, relative to the full one."""
    made = read(path)
    rows = []
    for size in dict.fromkeys(r["negatives"] for r in made["results"]):
        both = {r["corrected"]: r for r in made["results"] if r["negatives"] == size}
        cells = (f"{both[c][name]:.2f}" for c in (True, False) for name in ("bias", "spread"))
        rows.append([str(size), *cells])
    head = ("negatives", "bias", "spread", "bias, not corrected", "spread, not corrected")
    note = f"Of the full gradient's length; {made['draws']} draws for each of {made['clients']} clients."
    return table(head, rows, path, note=note)


def row_gradients(path: str) -> str:
    """Bias and spread of the class rows' merged change, by how rows are merged."""
    made = read(path)
    rows = []
    for size in dict.fromkeys(r["negatives"] for r in made["results"]):
        both = {r["merge"]: r for r in made["results"] if r["negatives"] == size}
        cells = (f"{both[m][name]:.2f}" for m in ("sum", "weighted-mean") for name in ("bias", "spread"))
        rows.append([str(size), *cells])
    head = ("negatives", "sum: bias", "sum: spread", "mean of holders: bias", "mean of holders: spread")
    note = (
        f"Of the length of the full softmax's change; {made['draws']} draws, {made['clients']} clients."
    )
    return table(head, rows, path, note=note)
