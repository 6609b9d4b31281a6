"""`spreadout serve`: the application on a socket, until it is stopped."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from spreadout.core.errors import UserError
from spreadout.runs.predict import Predictor
from spreadout.runs.result import Result
from spreadout.use.card import Story
from spreadout.use.index import ClassIndex, kind_for
from spreadout.use.serve.limits import Limits
from spreadout.use.serve.listening import LOOPBACK, address_of, listening, refuse_without_libraries

SMALL = 4_000_000  # numbers that an input is multiplied with
Finding = Literal["auto", "exact", "ivf"]


def serve(
    what: Result | Predictor | str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    index: Finding = "auto",
    probes: int | None = None,
    encoder: nn.Module | None = None,
    limits: Limits | None = None,
    threads: int | None = None,
) -> None:
    """Answer over HTTP until stopped: `POST /predict` with JSON, `GET /health`, `/model` and `/docs`.

    what: a result, what `so.load` gives, or a run folder. host: this machine alone, unless told
    otherwise; there are no passwords and no TLS, so put a proxy in front of any other. port: 0 takes a
    free one. index: "exact" compares with every class, "ivf" with some (faiss); "auto" takes the second
    from 100,000 classes on. threads: of the model; by default one if it is small.

    >>> import inspect
    >>> import spreadout as so
    >>> inspect.signature(so.serve).parameters["host"].default  # so.serve(result) would not return
    '127.0.0.1'
    """
    refuse_without_libraries("serve")
    import uvicorn

    from spreadout.use.serve.app import create_app

    predictor, run = _of(what, encoder)
    predictor, found = _indexed(predictor, index, probes)
    torch.set_num_threads(threads or _threads(predictor))
    bounds = limits or Limits()
    hosts = LOOPBACK if host in LOOPBACK else ("*",)
    app = create_app(predictor, bounds, run=run, index=found, hosts=hosts)
    with listening(host, port) as listener:
        takes = predictor.inputs.wanted.described
        said = f"{takes} in, {predictor.class_count:,} classes, {found}"
        print(f"listening on {address_of(listener)} ({said}); /docs describes it", flush=True)
        if host not in LOOPBACK:
            print("anybody who reaches this address may ask: it has no passwords and no TLS", flush=True)
        settings = uvicorn.Config(
            app,
            log_config=None,  # its own would close the log handlers of the program that serves
            log_level="warning",
            limit_concurrency=bounds.connections,
            timeout_keep_alive=5,
            server_header=False,
        )
        uvicorn.Server(settings).run(sockets=[listener])


def _of(
    what: Result | Predictor | str | Path, encoder: nn.Module | None
) -> tuple[Predictor, dict[str, Any] | None]:
    if isinstance(what, str | Path):
        return Predictor.load(Path(what), encoder), Story.of_folder(Path(what)).short
    if isinstance(what, Result):
        return what.predictor, Story.of_result(what).short
    if isinstance(what, Predictor):
        return what, None
    raise UserError(f"cannot serve a {type(what).__name__}; give a result, a model or a run folder")


def _indexed(predictor: Predictor, index: Finding, probes: int | None) -> tuple[Predictor, str]:
    """The model with the way it finds classes, and what that is called."""
    if index not in ("auto", "exact", "ivf"):
        raise UserError(f"--index {index}: unknown; known: auto, exact, ivf")
    if index == "auto":
        many = kind_for(predictor.class_count) == "ivf" and predictor.model.has_class_table
        index = "ivf" if many and importlib.util.find_spec("faiss") is not None else "exact"
    if index == "exact":
        if probes is not None:
            raise UserError("--probes: is for --index ivf")
        return predictor, "exact"
    made = ClassIndex.of(predictor, "ivf", probes)
    return replace(predictor, index=made), f"ivf, {made.index.nprobe} of {made.index.nlist} lists"


def _threads(predictor: Predictor) -> int:
    """One for a small model: what threads gain on few numbers they lose waiting for each other."""
    numbers = sum(value.numel() for value in predictor.state.dense.values())
    if predictor.index is None and predictor.model.has_class_table:
        numbers += predictor.class_vectors.numel()
    return 1 if numbers < SMALL else torch.get_num_threads()
