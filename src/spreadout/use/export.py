"""A trained model for other programs: its files, its classes by id and name, and a card that says what
it is."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, get_args

from torch import nn

from spreadout import __version__
from spreadout.core.errors import UserError
from spreadout.core.files import write_atomic, write_json
from spreadout.data import feature_hashing, words
from spreadout.runs.claim import EXISTS
from spreadout.runs.predict import Predictor
from spreadout.runs.result import Result
from spreadout.use.card import Story, card
from spreadout.use.formats import WRITERS, Format
from spreadout.use.index import IndexKind
from spreadout.use.scorer import Scorer

MARK = "spreadout export"
CLASSES, ABOUT, CARD = "classes.json", "model.json", "README.md"


def export(
    what: Result | Predictor | str | Path,
    to: Format,
    out: str | Path,
    *,
    index: IndexKind | None = None,
    encoder: nn.Module | None = None,
    force: bool = False,
) -> Path:
    """Write a trained model in a format of other programs, into a folder of its own.

    what: a result, what `so.load` gives, or a run folder (with `encoder` if the run was given one).
    to: "torch-export", "onnx", "faiss" or "safetensors". index: with faiss, "flat" looks at every class
    and "ivf" at some; by default it depends on how many there are. The folder also has `classes.json`
    (ids and names, in the order of the scores), `model.json` and a model card, `README.md`.

    >>> import tempfile
    >>> import spreadout as so
    >>> result = so.run(so.Experiment(rounds=2))
    >>> folder = so.export(result, to="safetensors", out=tempfile.mkdtemp() + "/model")
    >>> sorted(file.name for file in folder.iterdir())
    ['README.md', 'classes.json', 'model.json', 'model.safetensors']
    """
    if to not in WRITERS:
        raise UserError(f"to = {to!r}: unknown; known: {', '.join(WRITERS)}")
    if index is not None and (to != "faiss" or index not in get_args(IndexKind)):
        raise UserError(f'index = {index!r}: is "flat" or "ivf", and only with to = "faiss"')
    target = Path(out)
    _refuse_taken(target, force=force)
    predictor, story = _of(what, encoder)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as fresh:
        folder = Path(fresh) / "export"
        folder.mkdir()
        scorer = WRITERS[to](predictor, folder, index)
        _describe(folder, predictor, scorer, story, to)
        _refuse_taken(target, force=force)
        if target.exists():
            shutil.rmtree(target)
        folder.rename(target)
    return target


def _of(
    what: Result | Predictor | str | Path, encoder: nn.Module | None
) -> tuple[Predictor, Story | None]:
    if isinstance(what, str | Path):
        return Predictor.load(Path(what), encoder), Story.of_folder(Path(what))
    if encoder is not None:
        raise UserError("encoder: is for a run folder; a result or a loaded model has its own")
    if isinstance(what, Result):
        return what.predictor, Story.of_result(what)
    if isinstance(what, Predictor):
        return what, None
    raise UserError(f"cannot export a {type(what).__name__}; give a result, a model or a run folder")


def _describe(
    folder: Path, predictor: Predictor, scorer: Scorer, story: Story | None, to: Format
) -> None:
    first, count = predictor.shape.first_class, predictor.class_count
    called = [predictor.classes.called(row) for row in range(first, first + count)]
    ids, names = zip(*called, strict=True)
    hashed, text = predictor.hashed, predictor.columns and predictor.columns.text
    write_json(folder / CLASSES, {"ids": ids, "names": names})
    about: dict[str, Any] = {
        "made_by": MARK,
        "version": __version__,
        "to": to,
        "classes": count,
        "inputs": [
            {
                "name": port.name,
                "type": str(port.kind).removeprefix("torch."),
                "shape": ["batch", *("length" if side is None else side for side in port.shape)],
                "about": port.about,
            }
            for port in scorer.ports
        ],
        "outputs": scorer.outputs,
        "hashed_features": predictor.hashed is not None,
        "feature_hash": None if hashed is None else feature_hashing.rule(hashed[0], signed=hashed[1]),
        "hashed_words": None if text is None else words.rule(text.width),
        "columns": None if predictor.columns is None else predictor.columns.as_json(),
        "run": None if story is None else story.short,
    }
    write_json(folder / ABOUT, about)
    columns = () if predictor.columns is None else predictor.columns.described
    steps = [] if text is None else words.rule_in_words(text.width)
    if hashed is not None:
        steps = [feature_hashing.rule_in_words(hashed[0], signed=hashed[1])]
    write_atomic(folder / CARD, card(about, story, called[0], columns, steps).encode())


def _refuse_taken(target: Path, *, force: bool) -> None:
    if not target.exists():
        return
    if not force:
        raise UserError(f"{target}: {EXISTS}")
    ours = (target / ABOUT).is_file() and MARK in (target / ABOUT).read_text(errors="replace")[:200]
    if not ours:
        raise UserError(f"{target}: was not made by `spreadout export`; it is left alone")
