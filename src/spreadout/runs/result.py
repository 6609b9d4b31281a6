"""What a finished run leaves: in Python, in a notebook, and as a table of pandas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from spreadout.core.errors import UserError
from spreadout.core.state import ServerState
from spreadout.core.traffic import human_bytes
from spreadout.core.types import Record
from spreadout.evaluation.references import Reference
from spreadout.federated.federation import Federation
from spreadout.runs.curves import drawings, plot
from spreadout.runs.folder import RunFolder
from spreadout.runs.predict import Predictor
from spreadout.runs.questions import Guess
from spreadout.runs.tables import data_frame, html_table

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(repr=False)
class Result:
    """A finished run: `metrics` at its end, `history` on the way, and the trained model.

    `predict`, `embed`, `encoder` and `class_vectors` are those of its `predictor`; `save` it for later.

    >>> import spreadout as so
    >>> result = so.run(so.Experiment(rounds=2, clients={"local_steps": 1}))
    >>> result.summary["bytes"]["participations"], len(result.history)
    (20, 3)
    >>> result.to_pandas()["round"].tolist()
    [0, 1, 2]
    """

    summary: dict[str, Any]  # as in summary.json
    history: list[Record]  # one record per evaluation, as in metrics.jsonl
    state: ServerState
    federation: Federation
    predictor: Predictor  # the trained model, as `so.load` gives it of a run folder
    folder: Path | None = None
    leave: Callable[[RunFolder], None] | None = field(default=None, compare=False)  # writes it all down

    def predict(self, inputs: Any, top: int = 10, *, unseen: bool = False) -> list[list[Guess]]:
        """The best classes of every input, best first: see `Predictor`."""
        return self.predictor.predict(inputs, top, unseen=unseen)

    def embed(self, inputs: Any) -> Tensor:
        """Every input as it is compared with `class_vectors`: (n, dim)."""
        return self.predictor.embed(inputs)

    @property
    def encoder(self) -> nn.Module:
        """The trained encoder; the one given to `so.run` keeps the weights it came with."""
        return self.predictor.encoder

    @property
    def class_vectors(self) -> Tensor:
        """What embeddings are compared with, a row for every class: (C, dim)."""
        return self.predictor.class_vectors

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the run into a folder, as `so.run(out=…)` does, for `so.load` and every command.

        It has no checkpoint: it is finished, and cannot be resumed.

        >>> import tempfile
        >>> import spreadout as so
        >>> result = so.run(so.Experiment(rounds=2))
        >>> folder = result.save(tempfile.mkdtemp() + "/mine")
        >>> blank = [[0.0] * 64]
        >>> so.load(folder).predict(blank)[0][0].id == result.predict(blank)[0][0].id
        True
        """
        if self.leave is None:
            raise UserError("this result cannot be saved: it was not made by so.run or so.resume")
        written = RunFolder.claimed(Path(folder), force=force)
        try:
            self.leave(written)
        finally:
            written.release()
        return written.path

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

    def plot(self, *names: str, axes: Axes | None = None) -> Axes:
        """Curves over rounds by matplotlib: of the metrics, or of anything else that was recorded.

        axes: to draw several runs into one figure.

        >>> import spreadout as so
        >>> result = so.run(so.Experiment(rounds=2))
        >>> axes = result.plot()
        >>> axes = result.plot("loss", axes=axes.figure.add_subplot(2, 1, 2))
        >>> axes.get_ylabel()
        'loss'
        """
        return plot(self.history, names or list(self.metrics), axes, self.summary["name"])

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
        table = html_table(head, [[*names, *scores, _moved(summary), f"{summary['seconds']:.1f}"]])
        return table + drawings(self.history, [*self.metrics, "loss"])


def _moved(summary: dict[str, Any]) -> str:
    moved = summary["bytes"]
    return f"{human_bytes(moved['down'])} down, {human_bytes(moved['up'])} up"
