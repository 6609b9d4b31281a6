"""Parts given in Python, in the forms in which people give them; others are refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from spreadout.config.experiment import Experiment, as_experiment
from spreadout.config.whereabouts import places_of
from spreadout.core.errors import UserError
from spreadout.core.registry import near
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits
from spreadout.methods.base import Method

OWN_DATA = {"data": {"source": "python"}}  # what takes the place of a preset's
SPLITS = 'so.Splits("name", train, test), or (train, test)'


def as_splits(data: Splits | Sequence[Any] | None) -> Splits | None:
    """`(train, test)` or `(train, test, validation)` as splits; what is none is left to be refused."""
    if not isinstance(data, tuple | list):
        return data  # type: ignore[return-value]
    if len(data) not in (2, 3):
        raise UserError(f"data: has {len(data)} parts; give {SPLITS}")
    for name, part, kind in zip(("train", "test", "validation"), data, _KINDS, strict=False):
        if not isinstance(part, kind):
            made = "so.FederatedDataset.from_arrays(x, y, client)"
            made = made if kind is FederatedDataset else "so.Examples.from_arrays(x, y)"
            raise UserError(f"data: its {name} part is a {type(part).__name__}; give {made}")
    return Splits("own data", *data)


_KINDS = (FederatedDataset, Examples, Examples)


def as_described(
    given: Experiment | str | Path | Mapping[str, Any],
    data: object,
    method: Method | type[Method] | str | None,
) -> Experiment:
    """An experiment; of a preset that is given other data or another method, the rest is chosen anew."""
    if not isinstance(given, str | Path) or Path(given).exists():
        return as_experiment(given)
    replaced: dict[str, Any] = {} if data is None else dict(OWN_DATA)
    if isinstance(method, str):
        return Experiment.load(given, [f'method.name="{method}"'], replaced)
    kind = method if inspect.isclass(method) else type(method)
    if isinstance(kind, type) and issubclass(kind, Method):
        replaced["method"] = {"name": kind.model_fields["name"].default}
    return Experiment.load(given, (), replaced)


def refuse_nameless(values: Mapping[str, Any], function: str) -> None:
    """Plain values that name no data, where none was given."""
    described = values.get("data", {})
    if isinstance(described, Mapping) and "source" not in described:
        raise UserError(
            f"so.{function}: nothing says what to train on; give data=…, or {{'data': {{'source': …}}}}"
        )


def refuse_replaced(values: Mapping[str, Any], data: object, encoder: object, method: object) -> None:
    """Keys of plain values in whose section's place a part is given beside them."""
    parts = {"data": data, "model": encoder, "method": None if isinstance(method, str) else method}
    for section, part in parts.items():
        described = values.get(section)
        if part is None or not described or set(described) == {"input_scaling"}:
            continue  # that one says how inputs are dropped out, whatever the encoder
        key = next(iter(described)) if isinstance(described, Mapping) else ""
        given = "encoder" if section == "model" else section
        raise UserError(
            f"{section}{'.' * bool(key)}{key}: has no effect, as {given}=… takes the place of "
            f"[{section}]; leave one of them out"
        )


def chosen_method(
    experiment: Experiment, method: Method | type[Method] | str | None
) -> tuple[Experiment, Method | None]:
    """A name chooses the method of the config; a class is made one, if it needs no arguments."""
    if isinstance(method, str):
        said = experiment.model_dump(mode="json", exclude_unset=True)
        return Experiment.of(said, "experiment", [f'method.name="{method}"']), None
    if inspect.isclass(method) and issubclass(method, Method):
        try:
            return experiment, method.model_validate({})
        except ValueError:  # pydantic: it has keys without defaults
            name = method.__name__
            raise UserError(
                f"method: {name} has keys without defaults; give an instance, {name}(…)"
            ) from None
    return experiment, method


def refuse_other_kinds(data: object, encoder: object, method: object) -> None:
    """Parts that are not what they should be, by name."""
    wanted = {
        "data": (data, Splits, SPLITS),
        "encoder": (encoder, nn.Module, "a torch.nn.Module, or name one in model.encoder"),
        "method": (method, Method, "an instance of a so.Method, or name one in method.name"),
    }
    for name, (given, kind, remedy) in wanted.items():
        if inspect.isclass(given):
            raise UserError(f"{name}: is the class {given.__name__}; give {remedy}")
        if given is not None and not isinstance(given, kind):
            raise UserError(f"{name}: is a {type(given).__name__}; give {remedy}")


def refuse_unheard(observer: object, stop: object) -> None:
    """Those who hear of a run and stop it, if they cannot."""
    if observer is not None and (inspect.isclass(observer) or not hasattr(observer, "round_done")):
        kind = observer.__name__ if inspect.isclass(observer) else type(observer).__name__
        raise UserError(f"observer: is {kind}; give an instance of a so.Observer")
    if stop is not None and not callable(stop):
        raise UserError(f"stop: is a {type(stop).__name__}; give a function that says whether to stop")


def refuse_unknown(
    unnamed: Sequence[object], given: Mapping[str, object], function: Callable[..., object]
) -> None:
    """Arguments that a function does not have: most are keys of a config, which come first."""
    if unnamed:
        raise UserError(
            f"so.{function.__name__}: takes one config, and a {type(unnamed[0]).__name__} behind it; "
            "give what follows by name, such as data=…"
        )
    for name, value in given.items():
        said = f"so.{function.__name__}: has no argument {name!r}"
        if places := places_of(name):
            values: object = value
            for part in reversed(places[0].split(".")):
                values = {part: values}
            written = repr(values).replace("'", '"')
            raise UserError(f"{said}; keys of a config come first: so.{function.__name__}({written}, …)")
        known = inspect.signature(function).parameters.values()
        named = [one.name for one in known if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        raise UserError(said + near(name, named))
