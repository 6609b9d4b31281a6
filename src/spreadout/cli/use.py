"""Commands that put a trained model to work elsewhere: `export`, `serve`, `rows-server`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from spreadout.cli.ask import Encoder, Run, own_encoder
from spreadout.cli.common import note_unchecked
from spreadout.core.errors import UserError


def add_to(app: typer.Typer) -> None:
    """Make them commands of the program."""
    app.command()(export)
    app.command()(serve)
    app.command()(rows_server)


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


def rows_server(
    folder: Annotated[
        Path | None, typer.Argument(help="A finished run, whose class rows it serves.")
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", help="A secret; whoever has it may hand over other tables."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; by default this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0 takes a free one.")] = 8100,
    max_rows: Annotated[
        int, typer.Option("--max-rows", min=1, help="The most queries in a request.")
    ] = 1024,
    max_table_mb: Annotated[
        float, typer.Option("--max-table-mb", min=0.001, help="The longest table, in MiB.")
    ] = 1024.0,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="A certificate, to be reached by https://.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="The certificate's private key.")
    ] = None,
) -> None:
    """Answer for class rows without learning which: one of two servers (extra `serve`)."""
    from spreadout.use.rows.server import serve_rows

    if (tls_cert is None) != (tls_key is None):
        raise UserError("--tls-cert and --tls-key: give both, or neither")
    certificate = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    if folder is not None:
        note_unchecked(folder)
    serve_rows(
        folder,
        key_file,
        host=host,
        port=port,
        rows=max_rows,
        table_mb=max_table_mb,
        certificate=certificate,
    )
