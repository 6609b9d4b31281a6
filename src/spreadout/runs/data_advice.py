"""What is odd about the data of a run, one line each, said before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.data.columns import Dense, Lists
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits
from spreadout.models.nn.scaling import standardized_in

LOOKED_AT = 2000  # examples whose features are looked at
APART = 1e3  # times that deviations of features may differ
HUGE = 1e15  # numbers whose squares, in sums, leave 32 bits
MANY, OWN = 20, 0.9  # examples, and classes of each, from which on classes look like names of examples
SHOWN = 5  # names of classes in a line


def of_data(e: Experiment, data: Splits, encoder: nn.Module) -> list[str]:
    """Every warning about the data of a run; data that cannot be trained on is refused."""
    if not data.train.clients or not data.train.examples:  # a deployment's server has seen no example
        return []
    held = _held(data.train)
    scored = data.scored(e.eval.split)
    found = [one_class(data, held), numbered_from_one(data, held)]
    found.append(scale_of_features(e, data.train, encoder))
    if not e.method.ranks_unseen:
        found.append(never_trained(data, held, scored))
    return [said for said in found if said]


def one_class(data: Splits, held: Tensor) -> str | None:
    """There is nothing to tell apart."""
    if len(held) != 1:
        return None
    return f"all training examples have one class, {_called(data, held.tolist())}: any answer is right"


def numbered_from_one(data: Splits, held: Tensor) -> str | None:
    """Labels that start at 1 leave a class that nobody has."""
    train = data.train
    if train.first_class or data.class_names or train.classes < 3:
        return None
    if len(held) != train.classes - 1 or int(held[0]) != 1:
        return None
    return (
        f"no training example has class 0, and all from 1 to {train.classes - 1} occur: if labels start "
        "at 1, subtract 1, or give them as text"
    )


def never_trained(data: Splits, held: Tensor, scored: Examples | None) -> str | None:
    """Classes of the examples to be scored that no client has: no model can learn them."""
    if scored is None:
        return None
    asked = torch.unique(scored.labels.values)
    new = asked[~torch.isin(asked, held)]
    if not len(new) or int(asked.min()) >= data.train.classes:  # those are retrieved, as is meant
        return None
    share = float(torch.isin(scored.labels.values, new).float().mean())
    return (
        f"{len(new)} of the {len(asked)} classes to be scored have no training example "
        f"({_called(data, new.tolist())}): {100 * share:.1f} % of the answers cannot be right"
        + _like_ids(data.train, held)
    )


def _like_ids(train: FederatedDataset, held: Tensor) -> str:
    """Where nearly every example has a class of its own."""
    if train.examples < MANY or len(held) < OWN * train.examples:
        return ""
    return (
        f"; {train.examples} examples have {len(held)} classes: that looks like ids or a quantity, and "
        "classes are needed that several examples share"
    )


def scale_of_features(e: Experiment, train: FederatedDataset, encoder: nn.Module) -> str | None:
    """Features of very different scale, where nothing brings them to one."""
    x = train.columns.get("x")
    if not isinstance(x, Dense) or x.values.dim() != 2 or standardized_in(encoder) is not None:
        return None
    some = torch.linspace(0, train.examples - 1, min(train.examples, LOOKED_AT)).long()
    seen = x.take(some).double()
    largest = float(seen.abs().max())
    remedy = 'set model.input_scaling = "standard", or scale the features'
    if "encoder" in e.own:  # which that key does not reach
        width = x.values.shape[1]
        remedy = f"scale the features, or begin your encoder with so.Standardized({width})"
    if e.privacy is not None:  # clients tell no moments of theirs
        remedy = "scale the features by numbers that are public"
    if largest > HUGE:
        raise UserError(f"x has the value {largest:.1e}, too large for sums in 32 bits; {remedy}")
    deviation = seen.std(0, correction=0)
    varying = deviation[deviation > 0]
    if not len(varying) or float(varying.max() / varying.min()) <= APART or largest <= APART:
        return None
    return (
        f"deviations of features go from {float(varying.min()):.2g} to {float(varying.max()):.2g}: the "
        f"largest alone will count; {remedy}"
    )


def _held(train: FederatedDataset) -> Tensor:
    """The classes that some client has, ascending."""
    y = train.columns["y"]
    labels = y.ragged().values if isinstance(y, Lists) else y.take(torch.arange(train.examples))
    found: Tensor = torch.unique(labels.cpu()).long()
    return found


def _called(data: Splits, classes: Sequence[int]) -> str:
    names = data.class_names
    shown = [names[c] if c < len(names) and names[c] else str(c) for c in classes[:SHOWN]]
    return ", ".join(shown) + (" …" if len(classes) > SHOWN else "")
