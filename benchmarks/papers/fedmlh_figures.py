"""Figures 3 to 5 of Dai et al. (2021), drawn from result files: by round, by bytes, by R and B."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common.record import read
from benchmarks.papers.drawing import chart, table, write_report
from spreadout.report.charts import Line

Made = Mapping[str, Any]
SHAPES = ("eurlex", "wiki31", "amztitle", "wikititle")
DRAWN = (*SHAPES, *(f"{shape}-matched" for shape in SHAPES), "bibtex")
DEPTHS = (1, 3, 5)


def write_page(results: Path, out: Path) -> None:
    """All figures there are files for."""
    made = {shape: results / f"{shape}.json" for shape in DRAWN}
    found = {shape: read(path) for shape, path in made.items() if path.is_file()}
    sections = [section for shape, one in found.items() for section in sections_of(shape, one)]
    write_report(out, "Federated multiple label hashing", "FedMLH and FedAvg", sections)


def sections_of(shape: str, made: Made) -> Iterator[str]:
    both = [v for v in made["variants"] if v["name"] in ("fedmlh", "fedavg")]
    yield f"<h2>{shape}</h2>"
    figures = [*figure_3(both), *figure_4(made, both)]
    yield f"<section class=grid2>{''.join(figures)}</section>"
    if len(made["variants"]) > len(both):
        yield f"<h3>Figure 5: R and B</h3>{figure_5(made)}"


def figure_3(both: list[Made]) -> Iterator[str]:
    """By round: all classes, the frequent ones and the others, at 1, 3 and 5."""
    for of in ("", " frequent", " infrequent"):
        for depth in DEPTHS:
            name = f"P@{depth}{of}"
            lines = [
                Line(v["label"], v["curve"]["round"], v["curve"][name])
                for v in both
                if name in v["curve"]
            ]
            if lines:
                yield chart(f"Figure 3: {name}", lines, "round", f"{name} (%)")


def figure_4(made: Made, both: list[Made]) -> Iterator[str]:
    """By what all clients have sent and got."""
    for depth in DEPTHS:
        lines = []
        for v in both:
            visits = made["configs"][v["name"]]["clients"]["per_round"]
            each = sum(v["bytes_per_client_round"].values()) * visits / 2**20
            sent = [each * round for round in v["curve"]["round"]]
            lines.append(Line(v["label"], sent, v["curve"][f"P@{depth}"]))
        yield chart(f"Figure 4: P@{depth} by bytes", lines, "MiB sent", f"P@{depth} (%)")


def figure_5(made: Made) -> str:
    """Accuracy by the number of tables and of buckets."""
    rows = []
    for v in made["variants"]:
        method = made["configs"][v["name"]]["method"]
        size = [str(method.get(key, "–")) for key in ("hash_tables", "buckets")]
        scores = [f"{v['metrics'][f'P@{depth}']['mean']:.1f}" for depth in DEPTHS]
        rows.append((v["label"], [*size, *scores]))
    return table(["R", "B", *(f"P@{depth}" for depth in DEPTHS)], rows)
