"""Table 3 of FedAwS at extreme shapes, and the price of seeing nothing, from runs of every point."""

from __future__ import annotations

import statistics
import string
from collections.abc import Iterator, Mapping

from benchmarks.papers.extreme import RANKED, chosen, test_scores
from benchmarks.papers.extreme_arms import ARMS, SETS, Arm, neighbour_arms, rows_arms
from benchmarks.papers.ten_rows import POINTS
from benchmarks.quote.fedss import MERGES
from benchmarks.quote.tables import Made, read, table

WAYS = {"without": "", "prior": " + prior"}
TAIL = "PSP@5"
DRAWN = {"fedaws": "drawn by size", "uniform": "drawn uniformly"}


def arms(*shapes: str) -> str:
    """Every arm, each with the point that validation examples chose, on the test part."""
    rows, paths = [], []
    for shape in shapes:
        path = f"results/extreme/arms-{shape}.json"
        made, size = read(path), SETS[shape].scale
        paths.append(path)
        name = shape if size == 1 else f"{shape}, {size:g} of it"
        for label, tried, found in _found(made, ARMS):
            cells = [_spread(found, metric) for metric in (*RANKED, TAIL)]
            rows.append([name, label, *cells, str(tried), str(len(found))])
        floor = (f"{made['constant'][metric]:.1f}" for metric in RANKED)
        rows.append([name, "Always the most frequent labels", *floor, "–", "–", "–"])
    note = f"{_merge_of('ten')} Where one seed was run there is no deviation."
    return table(("", "", *RANKED, TAIL, "points", "seeds"), rows, *paths, note=note)


def _merge_of(arm: str) -> str:
    return f"Random rows are merged by {MERGES[ARMS[arm].changes['method']['merge']]}."


def points(*shapes: str) -> str:
    """Validation P@1 of all points, without and with the prior; the chosen ones in bold."""
    rows = []
    for shape in shapes:
        made = read(f"results/extreme/arms-{shape}.json")
        for name, arm in ARMS.items():
            best = {way: chosen(made, name, way) for way in WAYS}
            if not any(best.values()):  # an arm that was not tried at these sizes
                continue
            made_too = [point for point in arm.further if f"{name} {point} 0" in made["runs"]]
            cells = [_point(made, name, point, best) for point in (*arm.points, *made_too)]
            rows.append([shape, arm.label, *cells])
    paths = [f"results/extreme/arms-{shape}.json" for shape in shapes]
    wide = max(map(len, rows))
    head = ("P@1, validation", "", *("point " + c for c in string.ascii_lowercase[: wide - 2]))
    return table(head, [row + [""] * (wide - len(row)) for row in rows], *paths)


def cohorts(*shapes: str) -> str:
    """FedAwS with clients drawn by size and uniformly, at the points that both were tried with."""
    rows, paths = [], []
    for shape in shapes:
        path = f"results/extreme/cohorts-{shape}.json"
        made = read(path)
        paths.append(path)
        points = {
            arm: {key.split()[1] for key in made["runs"] if key.split()[0] == arm} for arm in DRAWN
        }
        both = set.intersection(*points.values())
        runs = {key: one for key, one in made["runs"].items() if key.split()[1] in both}
        cells = []
        for arm in DRAWN:
            best = {way: chosen({"runs": runs}, arm, way) for way in WAYS}
            cells.append(
                " → ".join(_spread(test_scores(made, arm, best[way], way), "P@1") for way in WAYS)
            )
        rows.append([shape, *cells])
    return table(("P@1", *DRAWN.values()), rows, *paths, note="Without → with the prior.")


def rows_seen(*shapes: str) -> str:
    """P@k and bytes by the rows that a client gets beside its own."""
    lines, paths = [], []
    for shape in shapes:
        path = f"results/extreme/rows-{shape}.json"
        made = read(path)
        paths.append(path)
        for name in rows_arms():
            point = {way: chosen(made, name, way) for way in WAYS}
            if None in point.values():
                continue
            cells = [
                " → ".join(_spread(test_scores(made, name, point[way], way), metric) for way in WAYS)
                for metric in (*RANKED, TAIL)
            ]
            moved = made["runs"][f"{name} {point['prior']} 0"]["bytes"]
            kib = " / ".join(f"{moved[way] / 1024:.1f}" for way in ("down", "up"))
            tried = sum(key.startswith(f"{name} ") and key.endswith(" 0") for key in made["runs"])
            lines.append([shape, name, *cells, f"{kib} KiB" if name != "all" else "–", str(tried)])
    head = ("", "rows beside its own", *RANKED, TAIL, "down / up a round", "points")
    note = f"Without → with the prior. Bytes are of one client. {_merge_of('ten')}"
    return table(head, lines, *paths, note=note)


def neighbours(shape: str) -> str:
    """Each k with every strength on validation examples, and the test scores of the best one."""
    path = f"results/extreme/neighbours-{shape}.json"
    made, rows = read(path), []
    known = neighbour_arms()
    for name, arm in known.items():
        best = {way: chosen(made, name, way) for way in WAYS}
        cells = [_plain_point(made, name, point, best["without"]) for point in arm.points]
        for way in WAYS:
            found = test_scores(made, name, best[way], way)
            cells.append(" / ".join(_spread(found, metric) for metric in RANKED))
        rows.append(["all pairs, Eq. 7" if name == "hinge" else name.replace("-", " = "), *cells])
    strengths = (f"λ = {point}" for point in next(iter(known.values())).points)
    head = ("", *strengths, *(f"test{called}, {' / '.join(RANKED)}" for called in WAYS.values()))
    seeds = {key.rpartition(" ")[2] for key in made["runs"]}
    note = (
        f"P@1 on validation examples without a prior, by λ; {len(seeds)} seed{'s' * (len(seeds) > 1)}."
    )
    return table(head, rows, path, note=note)


def _plain_point(made: Made, arm: str, point: str, best: str | None) -> str:
    one = made["runs"].get(f"{arm} {point} 0")
    if one is None or "failed" in one:
        return "–"
    value = f"{one['validation']['without']['P@1']:.1f}"
    return f"**{value}**" if point == best else value


def ten_rows(path: str) -> str:
    """Arms with ten rows of others and without, at small shapes: one seed, the point that is chosen."""
    lines, tried = [], set[int]()
    for shape, kept in read(path)["sets"].items():
        for arm, points in POINTS.items():
            tried.add(sum(f"{arm} {point} 0" in kept["runs"] for point in points))
            point = {way: chosen(kept, arm, way) for way in WAYS}
            if None in point.values():
                continue
            one = {way: kept["runs"][f"{arm} {point[way]} 0"] for way in WAYS}
            seen = f"{one['prior']['validation']['prior']['P@1']:.1f}"
            cells = [
                " → ".join(f"{one[way]['test'][way][metric]:.1f}" for way in WAYS)
                for metric in (*RANKED, TAIL)
            ]
            moved = one["prior"]["bytes"]
            kib = " / ".join(f"{moved[way] / 1024:.1f}" for way in ("down", "up"))
            kib = "–" if arm == "softmax" else f"{kib} KiB"
            lines.append([f"{shape}, {kept['scale']:g} of it", ARMS[arm].label, seen, *cells, kib])
        floor = (f"{kept['constant'][metric]:.1f}" for metric in RANKED)
        lines.append([lines[-1][0], "Always the most frequent labels", "–", *floor, "–", "–"])
    head = ("", "", "validation P@1", *RANKED, TAIL, "down / up a round")
    note = f"One seed, {' or '.join(map(str, sorted(tried)))} of three points tried. "
    note += "Test part, without → with the prior; validation with it."
    return table(head, lines, path, note=note)


def ten_rows_points(path: str) -> str:
    """Validation P@1 of the three points of every arm at small shapes."""
    lines = []
    for shape, kept in read(path)["sets"].items():
        for arm, points in POINTS.items():
            best = {way: chosen(kept, arm, way) for way in WAYS}
            lines.append([shape, ARMS[arm].label, *(_point(kept, arm, point, best) for point in points)])
    return table(("P@1, validation", "", "point a", "point b", "point c"), lines, path)


def _found(made: Made, known: Mapping[str, Arm]) -> Iterator[tuple[str, int, list[Made]]]:
    """What an arm is called, how many points were tried, and test scores of the chosen one by seed."""
    for name, arm in known.items():
        tried = sum(f"{name} {point} 0" in made["runs"] for point in arm.every)
        for way, called in WAYS.items():
            if point := chosen(made, name, way):
                yield arm.label + called, tried, test_scores(made, name, point, way)


def score(made: Made, arm: str, metric: str) -> float:
    """Of an arm with the prior, at its chosen point: the mean over seeds on the test part."""
    found = test_scores(made, arm, chosen(made, arm, "prior"), "prior")
    return statistics.fmean(one[metric] for one in found)


def _spread(found: list[Made], metric: str) -> str:
    values = [one[metric] for one in found]
    mean = f"{statistics.fmean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def _point(made: Made, arm: str, point: str, best: Mapping[str, str | None]) -> str:
    one = made["runs"].get(f"{arm} {point} 0")
    if one is None or "failed" in one:
        return f"{point}: –"
    cells = []
    for way in WAYS:
        score = f"{one['validation'][way]['P@1']:.1f}"
        cells.append(f"**{score}**" if best[way] == point else score)
    return f"{point}: {' → '.join(cells)}"
