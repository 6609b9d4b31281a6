"""Commands that put a trained model to work elsewhere: `export`, `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from spreadout.cli.ask import Encoder, Run, own_encoder
from spreadout.cli.common import note_unchecked


def add_to(app: typer.Typer) -> None:
    """Make them commands of the program."""
    app.command()(export)
    app.command()(serve)


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


def serve(
    folder: Run,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; by default this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0 takes a free one.")] = 8000,
    index: Annotated[
        str,
        typer.Option("--index", help="exact, ivf (faiss), or auto: ivf from 100,000 classes on."),
    ] = "auto",
    probes: Annotated[
        int | None, typer.Option("--probes", min=1, help="With ivf: how many lists to search.")
    ] = None,
    max_body_mb: Annotated[
        float, typer.Option("--max-body-mb", min=0.001, help="The longest request, in MiB.")
    ] = 8.0,
    max_inputs: Annotated[
        int, typer.Option("--max-inputs", min=1, help="The most inputs in a request.")
    ] = 256,
    max_top: Annotated[
        int, typer.Option("--max-top", min=1, help="The most classes for an input.")
    ] = 100,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Of the model; by default one if it is small.")
    ] = None,
    encoder: Encoder = None,
) -> None:
    """Answer over HTTP: JSON in, ranked classes out (extra `serve`)."""
    from spreadout.use.serve.limits import Limits
    from spreadout.use.serve.server import serve as listen

    note_unchecked(folder)
    limits = Limits(body=int(max_body_mb * 2**20), inputs=max_inputs, top=max_top)
    own = None if encoder is None else own_encoder(encoder)
    found = cast(Any, index)  # checked there
    listen(
        folder,
        host=host,
        port=port,
        index=found,
        probes=probes,
        encoder=own,
        limits=limits,
        threads=threads,
    )
