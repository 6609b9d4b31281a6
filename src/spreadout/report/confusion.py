"""What a model takes one client's classes for (FedSS, Fig. 7): a matrix, and a page that shows it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from spreadout.config.experiment import Experiment
from spreadout.config.sound import data_of
from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.core.state import ServerState
from spreadout.data.columns import Lists
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.evaluation.embed import ranked
from spreadout.models.embedding import EmbeddingModel
from spreadout.report.charts import matrix
from spreadout.report.document import document
from spreadout.runs.audit import refuse_own_parts
from spreadout.runs.folder import RunFolder
from spreadout.runs.predict import Predictor


def confusion(
    model: EmbeddingModel, state: ServerState, view: FederatedDataset
) -> tuple[Tensor, Tensor]:
    """The client's classes (m,), and for each how many of its examples are taken for which class:
    (m, m + 1), the last column for classes the client does not hold."""
    every = torch.arange(view.examples)
    label = view.columns["y"].take(every).cpu()
    inputs = {name: column for name, column in view.columns.items() if name != "y"}
    examples = Examples(inputs, Ragged(torch.arange(view.examples + 1), label))
    blocks = [
        ranked(model, state, examples, some, 1).ids[:, 0].cpu() for some in torch.split(every, 1024)
    ]
    classes = torch.unique(label)
    true = torch.searchsorted(classes, label)
    taken = torch.cat(blocks).cpu()
    place = torch.searchsorted(classes, taken).clamp_max(len(classes) - 1)
    place = torch.where(classes[place] == taken, place, len(classes))
    counts = torch.zeros(len(classes), len(classes) + 1)
    counts.index_put_((true, place), torch.ones(len(label)), accumulate=True)
    return classes, counts


def write_confusion(counts: Tensor, names: Sequence[str], output: Path, *, title: str) -> Path:
    """A page with the matrix; the last column is all classes the client does not hold."""
    columns = [*names, "a class it does not hold"]
    shares = counts / counts.sum(1, keepdim=True)
    right = float(torch.diagonal(shares).mean())
    cells = [(i, j, float(shares[i, j]), int(counts[i, j])) for i, j in counts.nonzero().tolist()]
    note = (
        f"Rows: the client's {len(names)} classes; columns: what its examples are taken for, among all "
        f"classes, the last column for those it does not hold. {100 * right:.0f} % are right, in the "
        "mean over its classes."
    )
    drawn = matrix(
        title, names, columns, cells, row_title="its class", column_title="what it is taken for"
    )
    figure = f"{drawn}<p class=note>{html.escape(note)}</p>"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        document(title, "confusion on one client's own examples", [figure]), encoding="utf-8"
    )
    return output


def draw_confusion(path: Path, client: int, output: Path) -> Path:
    """The page for one client of a finished run."""
    folder = RunFolder.open(path)
    refuse_own_parts(folder)
    predictor = Predictor.load(path)
    experiment = Experiment.load(folder.config)
    splits = data_of(experiment)
    if client >= splits.train.clients:
        raise UserError(
            f"--client {client}: the run has {splits.train.clients} clients, numbered from 0"
        )
    view = splits.train.view(client)
    if isinstance(view.columns["y"], Lists):
        raise UserError(f"{path}: its examples have label sets; a confusion matrix needs one label each")
    if not view.examples:
        raise UserError(f"--client {client}: has no examples")
    classes, counts = confusion(predictor.model, predictor.state, view)
    names = [splits.class_names[c] if c < len(splits.class_names) else str(c) for c in classes.tolist()]
    return write_confusion(counts, names, output, title=f"{experiment.name}, client {client}")
