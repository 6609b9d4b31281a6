"""What a finished run leaves: in Python, in a notebook, and as a table of pandas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spreadout.core.state import ServerState
from spreadout.core.traffic import human_bytes
from spreadout.core.types import Record
from spreadout.evaluation.references import Reference
from spreadout.federated.federation import Federation
from spreadout.runs.predict import Predictor
from spreadout.runs.tables import data_frame, html_table

if TYPE_CHECKING:
    import pandas


@dataclass(repr=False)
class Result:
    """A finished run: `metrics` at its end, `history` on the way, `predictor` to ask the model.

    >>> import spreadout as so
    >>> result = so.run(so.Experiment(rounds=2, clients={"local_steps": 1}))
    >>> result.summary["bytes"]["participations"], len(result.history)
    (20, 2)
    >>> result.to_pandas()["round"].tolist()
    [0, 2]
    """

    summary: dict[str, Any]  # as in summary.json
    history: list[Record]  # one record per evaluation, as in metrics.jsonl
    state: ServerState
    federation: Federation
    predictor: Predictor  # the trained model, as `so.load` gives it of a run folder
    folder: Path | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the last evaluation, by name."""
        return dict(self.summary["metrics"])

    @property
    def references(self) -> dict[str, Reference]:
        """What to compare the metrics with, by name: trivial and cheap central predictions.

        >>> import spreadout as so
        >>> result = so.run(so.Experiment(rounds=2))
        >>> result.references["most frequent"].metrics["P@1"] < result.references["ridge"].metrics["P@1"]
        True
        """
        return {name: Reference(name, **one) for name, one in self.summary["references"].items()}

    def to_pandas(self) -> pandas.DataFrame:
        """The history, a row for every evaluation; `refused` is how many updates were, so far."""
        return data_frame([{**one, "refused": sum(one["refused"].values())} for one in self.history])

    def __repr__(self) -> str:
        summary = self.summary
        scores = ", ".join(f"{name} {value:.2f}" for name, value in self.metrics.items())
        where = f", in {self.folder}" if self.folder else ""
        return (
            f"<Result {summary['name']}: {summary['method']} on {summary['dataset']}, "
            f"{summary['rounds']} rounds, {scores}\n"
            f" {_moved(summary)}, {summary['seconds']:.1f} s{where}>"
        )

    def _repr_html_(self) -> str:
        summary = self.summary
        head = ["run", "method", "data", "clients", "rounds", *self.metrics, "traffic", "seconds"]
        names = [str(summary[key]) for key in ("name", "method", "dataset", "clients", "rounds")]
        scores = [f"{value:.2f}" for value in self.metrics.values()]
        return html_table(head, [[*names, *scores, _moved(summary), f"{summary['seconds']:.1f}"]])


def _moved(summary: dict[str, Any]) -> str:
    moved = summary["bytes"]
    return f"{human_bytes(moved['down'])} down, {human_bytes(moved['up'])} up"
