"""Dual encoders: recalls beside the paper's, and what federating costs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.common.paths import ROOT
from benchmarks.papers.dual_encoder import CENTRALIZED, FEDERATED, LOSSES, RECALLS, drop, mean_of
from benchmarks.papers.dual_encoder_choice import candidates
from benchmarks.papers.two_stage import Candidate
from benchmarks.quote.edges import edges
from benchmarks.quote.tables import Made, latest, over_seeds, read, spread, table

REFERENCES = "results/dual_encoder/references.json"
OTHERS = ("MRR", "nDCG@10", "mean rank", "batch R@1")
UNSEEN = "without the history"  # recalls where its items are left out
NEVER_THE_HISTORY = ("item-kNN",)  # which leaves them out itself
IN_ONE_PLACE = "all data in one place, its validation examples"
ORDERS = {"random": "at random", "file": "in the order of the file: the easier task"}


def retrieval(
    path: str, in_one_place: str | None = None, tuning: str | None = None, beside: str | None = None
) -> str:
    """Recalls beside the paper's, where it has them. in_one_place: points of batch softmax with all data
    in one place, the best of which is shown. tuning: the points of these arms. beside: a file of arms
    that are shown in the same table."""
    paths = [latest(one) for one in (path, beside) if one]
    made = dict(read(paths[0]))
    made["variants"] = [variant for one in paths for variant in read(one)["variants"]]
    paper = any(v["label"] in FEDERATED for v in made["variants"])
    unseen = [UNSEEN] if any("unseen" in v for v in made["variants"]) else []
    head = ["", *RECALLS, *(["the paper"] if paper else []), *unseen, *OTHERS]
    head.append("down / up per client and round")
    rows = []
    for v in made["variants"]:
        scores = v["metrics"]
        cells = [v["label"], *(_with_error(v, name) for name in RECALLS)]
        if paper:
            cells.append(_paper(v["label"]))
        if unseen:
            cells.append(_three(v["unseen"]) if "unseen" in v else "")
        for name in OTHERS:
            cells.append(f"{scores[name]['mean']:.{0 if name == 'mean rank' else 2}f}")
        moved = [v["bytes_per_client_round"][way] / 1024 for way in ("down", "up")]
        rows.append([*cells, "{:.0f} / {:.0f} KiB".format(*moved) if any(moved) else "–"])
    if paper:
        known = {v["label"] for v in made["variants"]}
        for loss in (loss for loss in LOSSES if loss not in known):
            rows.append([loss, "–", "–", "–", _paper(loss), *[""] * (len(head) - 5)])
        best = [f"{x:.2f}" for x in CENTRALIZED["H+S"]]
        rows.append(["the paper's best centralised (H+S)", *best, *[""] * (len(head) - 4)])
    if in_one_place is not None:
        point = _best([one for one in read(in_one_place)["points"] if one["arm"] == "bs"])
        shown = {name: f"{point[name]:.2f}" for name in (*RECALLS, *OTHERS)}
        shown["mean rank"] = f"{point['mean rank']:.0f}"
        rows.append([f"*BS, {IN_ONE_PLACE}*", *(shown.get(column, "") for column in head[1:])])
    rows += list(_references(made, head))
    note = f"{over_seeds(made)}{_errors_note(made)} Items of one second: {ORDERS[ties_of(made)]}."
    note += f" {edges(made, tuning)}" if tuning else ""
    return table(head, rows, *paths, *([in_one_place] if in_one_place else []), note=note.strip())


def _paper(label: str, figures: Mapping[str, Sequence[float]] = FEDERATED) -> str:
    return " / ".join(f"{x:g}" for x in figures.get(label, ()))


def _with_error(variant: Made, name: str) -> str:
    """A mean and its deviation over seeds; behind it the error by users, where that is known."""
    return _behind(spread(variant["metrics"][name], 2), variant.get("user_errors", {}).get(name))


def _behind(cell: str, error: float | None) -> str:
    return cell if error is None else f"{cell} ({error:.2f})"


def _errors_note(made: Made) -> str:
    known = any("user_errors" in v for v in made["variants"])
    return " In brackets: the standard error by test users." if known else ""


def _references(made: Made, head: Sequence[str]) -> Iterator[list[str]]:
    """Popularity, successors and item-kNN on the same test examples: of the file, or computed since."""
    found = next((v["references"] for v in made["variants"] if v.get("references")), None)
    if found is None and not (ROOT / REFERENCES).is_file():
        return
    if found is None:
        ties = ties_of(made)
        known = read(REFERENCES)["references"][f"users, ties {ties}"]
        found = {name: {k: {"mean": x} for k, x in scores.items()} for name, scores in known.items()}
    for name, scores in found.items():
        cells = {metric: f"{scores[metric]['mean']:.2f}" for metric in RECALLS}
        cells |= {metric: _plain(metric, scores) for metric in OTHERS}
        if name in NEVER_THE_HISTORY:
            cells[UNSEEN] = _three({metric: scores[metric]["mean"] for metric in RECALLS})
        yield [f"*{name}*", *(cells.get(column, "") for column in head[1:])]


def _plain(metric: str, scores: Made) -> str:
    if metric not in scores:
        return ""
    return f"{scores[metric]['mean']:.{0 if metric == 'mean rank' else 2}f}"


def ties_of(made: Made) -> str:
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
    ties, known = [ties_of(made) for made in halves], read(REFERENCES)["references"]
    splits = [
        known[f"{split}, ties {one}"] for split, one in zip(("examples", "users"), ties, strict=True)
    ]
    rows += [[f"*{name}*", *(_three(split[name]) for split in splits), "", ""] for name in splits[0]]
    head = ("", "centralised", "federated", "drop", "drop in the paper")
    note = f"R@1 / R@5 / R@10. Items of one second: {ORDERS[ties[0]]}."
    if ties[0] != ties[1]:
        note = f"R@1 / R@5 / R@10. Items of one second, centralised: {ORDERS[ties[0]]}; "
        note += f"federated: {ORDERS[ties[1]]}."
    return table(head, rows, centralized, note=note)


def chosen(suite: str, tuning: str, tested: str) -> str:
    """What each arm chose on validation data, what it scored there, and then on test data."""
    made, scores = read(tuning), read(latest(tested))
    split, paper = ("examples", CENTRALIZED) if suite == "centralized" else ("users", FEDERATED)
    test = {v["name"]: f"{_means(v)} ({_seeds(v)})" for v in scores["variants"]}
    rows = []
    for name, arm in candidates(suite).items():
        points = [one for one in made["points"] if one["arm"] == name and "failed" not in one]
        planned = len(arm.points())
        if not points:
            rows.append([arm.label, f"0 of {planned}", "", "–", "–", _paper(arm.label, paper)])
            continue
        best = _best(points)
        setting = _setting(arm, best["point"])
        cells = [str(planned) if len(points) == planned else f"{len(points)} of {planned}", setting]
        rows.append([arm.label, *cells, _three(best), test.get(name, "–"), _paper(arm.label, paper)])
    parts = (f"validation {split}", f"test {split}")
    head = ("R@1 / R@5 / R@10", "points", "the best", *parts, "the paper")
    note = f"The best point by the mean of the three, seed 0. {edges(scores, tuning)}"
    return table(head, rows, tuning, note=note.strip())


def tried(part: str, *suites: tuple[str, str]) -> str:
    """Every point of arms without a test run, beside what needs no model on the same examples.

    part: the key of `references.json`; suites: each with its file of points.
    """
    known = read(REFERENCES)
    rows, short, shown = [], [], ("MRR", "mean rank", "batch R@1")
    for suite, path in suites:
        for name, arm in candidates(suite).items():
            points = [one for one in read(path)["points"] if one["arm"] == name]
            for one in points:
                mark = "**" if one is _best(points) else ""
                cells = [f"{mark}{one[metric]:.2f}{mark}" for metric in RECALLS]
                cells += [f"{one[metric]:.{0 if metric == 'mean rank' else 2}f}" for metric in shown]
                rows.append([arm.label, _setting(arm, one["point"]), *cells])
            if points and len(points) < len(arm.points()):
                short.append(f"{arm.label}: {len(points)} of {len(arm.points())}")
    for name, scores in known["references"][part].items():
        errors = known["user_errors"].get(part, {}).get(name, {})
        cells = [_behind(f"{scores[metric]:.2f}", errors.get(metric)) for metric in RECALLS]
        cells += [f"{scores['MRR']:.2f}", f"{scores['mean rank']:.0f}", ""]
        rows.append([f"*{name}*", "", *cells])
    head = ("", "point", *RECALLS, *shown)
    note = "Seed 0. Bold: an arm's best point by the mean of the three recalls. In brackets: the "
    note += "standard error by users."
    note += f" Points so far: {'; '.join(short)}." if short else ""
    return table(head, rows, *(path for _, path in suites), REFERENCES, note=note)


def _best(points: Sequence[Made]) -> Made:
    return max(points, key=lambda one: sum(one[metric] for metric in RECALLS))


def _setting(arm: Candidate, point: str) -> str:
    """The values of a point, by its name."""
    named = (name for name, _ in arm.points())
    values = dict(zip(named, itertools.product(*arm.grid.values()), strict=True))[point]
    return ", ".join(f"`{key}` {value:g}" for key, value in zip(arm.grid, values, strict=True))


def _means(variant: Made) -> str:
    return _three({name: variant["metrics"][name]["mean"] for name in RECALLS})


def _seeds(variant: Made) -> str:
    count = len(variant["seeds"])
    return f"{count} seeds" if count > 1 else "one seed"


def order(path: str) -> str:
    """The mean and attention, with random ties and the file's: each setting, and its bytes."""
    made = read(latest(path))
    head = ("", *RECALLS, "MRR", "mean rank", "down / up per client and round")
    rows = []
    for v in made["variants"]:
        scores = v["metrics"]
        cells = [f"{scores[name]['mean']:.2f}" for name in (*RECALLS, "MRR")]
        moved = [v["bytes_per_client_round"][way] / 1024 for way in ("down", "up")]
        kib = "{:.0f} / {:.0f} KiB".format(*moved)
        rows.append([v["label"], *cells, f"{scores['mean rank']['mean']:.0f}", kib])
    config = next(iter(made["configs"].values()))
    note = f"Validation users; sampled softmax, temperature 0.1, {config['rounds']} rounds, one seed."
    return table(head, rows, latest(path), note=note)


def _three(scores: Made) -> str:
    return " / ".join(f"{scores[name]:.2f}" for name in RECALLS)
