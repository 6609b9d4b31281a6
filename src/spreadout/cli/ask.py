"""`predict`: asking a trained model on the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spreadout.cli.common import note_unchecked
from spreadout.cli.data import AsJson
from spreadout.core.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from spreadout.runs.predict import Predictor

INPUT = (
    "What to ask about, in any form that the run's data may come in: a picture, a folder or archive of "
    "pictures, .npy or .npz (its x), idx images, .arff, a table (.csv; by the names of its columns), "
    "lines of feature:value (libsvm, xc-text); histories one a line, or events (.csv, .parquet, "
    "MovieLens). Labels in it are not looked at. - reads text from stdin."
)
Run = Annotated[Path, typer.Argument(help="The folder of a finished run.")]
Encoder = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="MODULE:NAME",
        help="The encoder that the run was given in Python, or a function that makes one like it.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Make them commands of the program."""
    app.command()(predict)


def predict(
    folder: Run,
    source: Annotated[Path, typer.Option("--input", help=INPUT)],
    top: Annotated[
        int, typer.Option("--top", min=1, help="How many classes or items to print per input.")
    ] = 10,
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Leave out items that are already in the history.")
    ] = False,
    decode: Annotated[
        str,
        typer.Option(
            "--decode",
            help="What ranks classes: classes (their vectors), knn (the labels of the nearest examples "
            "that the run held out for validation; its data must still be there), or both.",
        ),
    ] = "classes",
    neighbours: Annotated[
        int, typer.Option("--neighbours", min=1, help="How many vote, with --decode knn or both.")
    ] = 10,
    encoder: Encoder = None,
    as_json: AsJson = False,
) -> None:
    """The best classes, or next items, with their names and scores."""
    from dataclasses import asdict

    from spreadout.core.files import as_json as to_json
    from spreadout.data.unlabelled.files import read_inputs, read_text

    predictor = voted_by_held_out(trained(folder, encoder), folder, decode, neighbours)
    wanted = predictor.inputs.wanted
    if unseen and not wanted.histories:
        raise UserError("--unseen: is for histories; this run takes " + wanted.described)
    given = (
        read_text(sys.stdin.read().encode(), wanted)
        if str(source) == "-"
        else read_inputs(source, wanted)
    )
    asked = predictor.inputs.of(given)
    for note in asked.notes:
        typer.echo(note, err=True)
    found = predictor.predict(asked, top, unseen=unseen)
    if as_json:
        print(to_json([[asdict(guess) for guess in guesses] for guesses in found], indent=2))
        return
    names = asked.called or [str(number) for number in range(1, len(found) + 1)]
    for name, guesses in zip(names, found, strict=True):
        if len(found) > 1:
            print(f"{name}:")
        for guess in guesses:
            title = "" if guess.name == guess.id else f"  {guess.name}"
            print(f"  {guess.score:7.4f}  {guess.id}{title}")


def trained(folder: Path, encoder: str | None) -> Predictor:
    """The model of a run folder, around its own encoder where it has one."""
    from spreadout.runs.predict import Predictor

    note_unchecked(folder)
    return Predictor.load(folder, None if encoder is None else own_encoder(encoder))


def voted_by_held_out(predictor: Predictor, folder: Path, decode: str, neighbours: int) -> Predictor:
    """The model as it is, or with the votes of the examples that its run held out for validation."""
    from typing import get_args

    from spreadout.config.experiment import Experiment
    from spreadout.config.sound import data_of
    from spreadout.evaluation.config import Decode
    from spreadout.runs.files import RunFiles

    if decode not in get_args(Decode):
        raise UserError(f"--decode {decode}: must be classes, knn or both")
    if decode == "classes":
        return predictor
    experiment = Experiment.load(RunFiles.open(folder).config)
    if not experiment.data.validation_fraction:
        raise UserError(
            f"--decode {decode}: {folder} held out no validation examples to vote; train it with "
            "data.validation_fraction = 0.2"
        )
    held = data_of(experiment).validation
    assert held is not None
    return predictor.by_neighbours(held, decode, neighbours)  # type: ignore[arg-type]


def own_encoder(name: str) -> nn.Module:
    """What MODULE:NAME stands for: an encoder, or what a function of that name makes."""
    import importlib

    from torch import nn

    from spreadout.core.registry import IMPORTED, import_modules

    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UserError(f"--encoder {name}: write it as MODULE:NAME, such as my_module:encoder")
    before = list(IMPORTED)
    import_modules([module])
    IMPORTED[:] = before  # it registers nothing that a config would have to name
    found = getattr(importlib.import_module(module), attribute, None)
    if callable(found) and not isinstance(found, nn.Module):
        found = found()
    if not isinstance(found, nn.Module):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise UserError(f"--encoder {name}: is {what}; it must be a torch.nn.Module, or make one")
    return found
