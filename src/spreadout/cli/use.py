"""Commands that put a trained model to work elsewhere: `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from spreadout.cli.ask import Encoder, Run, own_encoder
from spreadout.cli.common import note_unchecked


def add_to(app: typer.Typer) -> None:
    """Make them commands of the program."""
    app.command()(export)


def export(
    folder: Run,
    to: Annotated[
        str,
        typer.Option("--to", help="torch-export, onnx, faiss or safetensors.", metavar="FORMAT"),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The folder to write; default: RUN-FORMAT beside the run."),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option("--index", help="With faiss: flat looks at every class, ivf at some of them."),
    ] = None,
    encoder: Encoder = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
) -> None:
    """Write a finished run's model for other programs, with its classes and a model card."""
    from spreadout.use.export import export as write

    note_unchecked(folder)
    target = out or folder.resolve().with_name(f"{folder.resolve().name}-{to}")
    own = None if encoder is None else own_encoder(encoder)
    chosen = {"to": cast(Any, to), "index": cast(Any, index)}  # both are checked there
    print(write(folder, out=target, encoder=own, force=force, **chosen))
