"""`spreadout rows-server`: one of two, on a socket, until it is stopped."""

from __future__ import annotations

from pathlib import Path

from spreadout.core.errors import UserError
from spreadout.use.rows.table import Form, Table
from spreadout.use.serve.listening import LOOPBACK, address_of, listening, refuse_without_libraries

LEAST_KEY = 16  # bytes


def serve_rows(
    folder: Path | None,
    key_file: Path | None,
    *,
    host: str = "127.0.0.1",
    port: int = 8100,
    rows: int = 1024,
    table_mb: float = 1024.0,
    certificate: tuple[Path, Path] | None = None,
) -> None:
    """Answer queries of a run's class table, or of the tables that whoever has the key hands over.

    certificate: it and its private key, for TLS. rows: the most queries in a request.
    """
    refuse_without_libraries("rows-server")
    import uvicorn

    from spreadout.use.rows.app import RowLimits, create_app

    if folder is None and key_file is None:
        raise UserError("rows-server: has no table; name a run, or give --key-file and hand one over")
    table = None if folder is None else table_of_run(folder)
    key = None if key_file is None else read_key(key_file)
    limits = RowLimits(rows=rows, table=int(table_mb * 2**20))
    hosts = LOOPBACK if host in LOOPBACK else ("*",)
    chain, private = certificate or (None, None)
    for path in certificate or ():
        if not path.is_file():
            raise UserError(f"{path}: no such file")
    settings = uvicorn.Config(
        create_app(table, key, limits, hosts=hosts),
        log_config=None,  # its own would close the log handlers of the program that serves
        log_level="warning",
        access_log=False,
        ws="none",
        limit_concurrency=limits.connections,
        timeout_keep_alive=5,
        server_header=False,
        ssl_certfile=chain,
        ssl_keyfile=private,
    )
    try:
        settings.load()
    except OSError as error:  # of TLS too
        raise UserError(f"{chain}, {private}: no certificate with its key ({error})") from None
    with listening(host, port) as listener:
        has = "no table yet" if table is None else _described(Form.of(table))
        print(f"listening on {address_of(listener, 'https' if chain else 'http')} ({has})", flush=True)
        if host not in LOOPBACK and chain is None:
            print(
                "without --tls-cert whoever listens on the way to both servers learns which rows are "
                "asked for; put a proxy with TLS in front of it",
                flush=True,
            )
        uvicorn.Server(settings).run(sockets=[listener])


def _described(form: Form) -> str:
    return f"{form.rows:,} rows of {form.width} numbers"


def read_key(path: Path) -> bytes:
    """The secret by which tables are taken; nobody else may read it."""
    try:
        found, mode = path.expanduser().read_bytes(), path.expanduser().stat().st_mode
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if mode & 0o077:
        raise UserError(f"{path}: others can read it; `chmod 600` it")
    if len(found) < LEAST_KEY:
        raise UserError(f"{path}: is shorter than {LEAST_KEY} bytes; draw 32 at random")
    return found


def table_of_run(path: Path) -> Table:
    """The class rows of a finished run, one for each class in their order."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    from spreadout.runs.claim import CONFIG
    from spreadout.runs.files import WEIGHTS, RunFiles
    from spreadout.runs.sums import check

    RunFiles.open(path)
    check(path, CONFIG, WEIGHTS)
    try:
        tensors = load_file(path / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path / WEIGHTS}: is damaged ({error}); run it again") from None
    if "table.classes" not in tensors:
        raise UserError(f"{path}: its method has no class rows to serve")
    table: Table = tensors["table.classes"]
    return table
