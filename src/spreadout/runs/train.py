"""Running an experiment, and going on with one that was cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Never

from torch import nn

from spreadout.config.experiment import Experiment
from spreadout.config.sound import settled
from spreadout.core.errors import UserError
from spreadout.data.splits import Splits
from spreadout.methods.base import Method
from spreadout.runs import checkpoint
from spreadout.runs.build import build_federation
from spreadout.runs.folder import RunFolder
from spreadout.runs.observer import Observer, Several
from spreadout.runs.parts import (
    as_described,
    as_splits,
    chosen_method,
    refuse_nameless,
    refuse_replaced,
    refuse_unheard,
    refuse_unknown,
)
from spreadout.runs.progress import Progress
from spreadout.runs.result import Result
from spreadout.runs.session import Builder, Session
from spreadout.runs.stopping import stoppable
from spreadout.runtime import distributed


def run(
    experiment: Experiment | str | Path | Mapping[str, Any] | None = None,
    *unnamed: Never,
    out: str | Path | None = None,
    force: bool = False,
    device: str = "auto",
    data: Splits | Sequence[Any] | None = None,
    encoder: nn.Module | None = None,
    method: Method | type[Method] | str | None = None,
    build: Builder = build_federation,
    observer: Observer | None = None,
    progress: bool | None = None,
    stop: Callable[[], bool] | None = None,
    **keys: Never,
) -> Result:
    """Train and evaluate an experiment, a config file, a preset by name, or plain values.

    With `data` it may be left out: then all is chosen. Without `out`, nothing is written to disk.

    `data`, `encoder` and `method` replace what `[data]`, `[model]` and `[method]` describe; what a
    preset had set for its own data or method is chosen anew. Training starts from the encoder's own
    weights and leaves them as they are: `result.encoder` is the trained one. `data` may be
    `(train, test)`, `method` a name or a class. `build` puts the parts together: another one may have
    clients that are not in this process.

    A bar shows how far it is, on a terminal and in a notebook; elsewhere a line now and then. With an
    `observer` of your own there is none unless `progress=True`; `progress=False` is quiet.

    Ctrl-C, or a notebook's stop button, ends the round, saves, and raises `so.Interrupted`. `stop` is
    another way to ask for that: it is called after every round.

    >>> import numpy as np
    >>> import spreadout as so
    >>> y = np.repeat(np.arange(3), 4)
    >>> x = 5 * np.eye(3)[y]
    >>> train = so.FederatedDataset.from_arrays(x, y, client=y)
    >>> data = so.Splits("toy", train, so.Examples.from_arrays(x, y))
    >>> so.run(so.Experiment(rounds=10), data=data).metrics
    {'P@1': 100.0}
    """
    refuse_unknown(unnamed, keys, run)
    experiment = {} if experiment is None else experiment
    if isinstance(experiment, Mapping):
        refuse_replaced(experiment, data, encoder, method)
        if data is None:
            refuse_nameless(experiment, "run")
    experiment, method = chosen_method(as_described(experiment, data, method), method)
    own = (as_splits(data), encoder, method)
    place = None if out is None else partial(RunFolder.claimed, Path(out), force=force)
    with _writing(place) as folder, _heard(folder, observer, progress, stop) as (heard, asked):
        session = Session.build(experiment, device, own, build, heard, asked)
        if folder is not None:
            folder.begin(session.experiment.to_toml())
        session.write_to(folder)
        return session.train()


@contextmanager
def _heard(
    folder: RunFolder | None,
    observer: Observer | None,
    progress: bool | None,
    stop: Callable[[], bool] | None,
) -> Iterator[tuple[Observer, Callable[[], bool]]]:
    """Who hears what the run does, and how it is asked to stop."""
    refuse_unheard(observer, stop)
    shown = (observer is None if progress is None else progress) and distributed.is_first()
    with ExitStack() as held:
        observers = [] if observer is None else [observer]
        if shown:
            observers.append(held.enter_context(Progress(chosen=folder is not None)))
        heard = Several(observers)
        yield heard, held.enter_context(stoppable(stop))


@contextmanager
def _writing(take: Callable[[], RunFolder] | None) -> Iterator[RunFolder | None]:
    """The run folder, held by the process that writes it; if that cannot have it, no process goes on."""
    folder, problem = None, None
    if take is not None and distributed.is_first():
        try:
            folder = take()
        except (UserError, OSError) as error:
            problem = error
    if distributed.any_of(problem is not None):
        raise problem or UserError("the first process cannot write the run folder")
    try:
        yield folder
    except OSError as error:
        told = None if folder is None else folder.explained(error)
        raise told or error from None
    finally:
        if folder is not None:
            folder.release()


def resume(
    folder: str | Path,
    *,
    device: str = "auto",
    data: Splits | Sequence[Any] | None = None,
    encoder: nn.Module | None = None,
    method: Method | None = None,
    build: Builder = build_federation,
    observer: Observer | None = None,
    progress: bool | None = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Go on from a run folder's last checkpoint, to the same end as if never interrupted.

    Give `data`, `encoder` and `method` again if the run was given them. The others are as in `run`.

    >>> import tempfile
    >>> import spreadout as so
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> try:
    ...     so.run(so.Experiment(rounds=3), out=folder, stop=lambda: True)  # as if Ctrl-C came at once
    ... except so.Interrupted:
    ...     so.resume(folder).summary["rounds"]
    3
    """
    path, own = Path(folder), (as_splits(data), encoder, method)
    with (
        _writing(partial(RunFolder.reopened, path)) as opened,
        _heard(opened, observer, progress, stop) as (heard, asked),
    ):
        left = opened or RunFolder.open(path)
        experiment = settled(Experiment.load(left.config))  # as it was run, whatever is chosen today
        session = Session.build(experiment, device, own, build, heard, asked)
        session.write_to(opened)
        if left.has_checkpoint:
            sharded = distributed.sharded(session.federation, experiment.run.shard_mb)
            saved = checkpoint.load(left.checkpoint, session.federation.device, sharded)
            session.go_on_from(left, *saved)
        elif opened is not None:  # it died before its first checkpoint: from the beginning
            session.observer.warned(f"{path}: no checkpoint yet; starting from round 0")
        return session.train()
