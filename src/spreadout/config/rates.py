"""Rates, optimisers and widths that follow from the data and the method.

A rate that is right for one set is wrong for another, unless something takes its scale away. Here that
is Adam on the server: with one local step a client's rate only scales what Adam divides by. The numbers
were chosen once, over twelve sets, each time without the one that was then looked at
(docs/defaults_found.md).
"""

from __future__ import annotations

from typing import Any

from spreadout.config.choices import (
    EVERYBODY,
    can_spare_features,
    has_rare_words,
    is_small,
    is_text,
    one_step,
    sees_pictures,
)
from spreadout.config.experiment import Experiment
from spreadout.config.keys import is_open
from spreadout.config.known import hides_sizes
from spreadout.core.optimizers import Optimizer
from spreadout.data.splits import Splits
from spreadout.evaluation.early_stopping import judged_by
from spreadout.methods import DualEncoder, FedMLH
from spreadout.methods.base import Method
from spreadout.methods.positive_only import PositiveOnly
from spreadout.models.build import DataShape

LOCAL = frozenset({"optimizer", "momentum", "local_steps", "local_epochs"})  # what rates are meant for
SERVER = frozenset({"optimizer", "tables"})
PLAIN_RATE = 0.1  # of plain steps in several epochs, for an output of the network …
LARGEST_PLAIN_RATE = 10.0  # … up to so much in all
RARE_WORDS = 3e-4  # ε of Adam on the server where features are words, by which a rare one moves less
OF_SGD = frozenset({"lr", "momentum"})  # the server's: without an optimiser they are for the plain one


def rates(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """Values of keys by their dotted names.

    Rates are meant for an optimiser and a number of steps: whoever sets others chooses the rates too. A
    rate that is set leaves the other keys to be chosen.
    """
    method = experiment.method
    local, server = _rates_of(experiment, splits)
    found = _widths(experiment, splits)
    if _is_refused(experiment, local):
        # As long, by plain steps. A mean over outputs has gradients as many times smaller.
        outputs = method.buckets if isinstance(method, FedMLH) else splits.train.classes
        rate = min(PLAIN_RATE * outputs, LARGEST_PLAIN_RATE)
        local = {"lr": rate, "local_epochs": local["local_epochs"], "lr_decay": "cosine"}
    if _agrees(experiment.clients, local, LOCAL):
        found |= {f"clients.{key}": value for key, value in local.items()}
    # A drift correction is sound with some optimisers only: those are the user's to choose.
    free = experiment.clients.drift is None and not rate_alone(experiment)
    if free and _agrees(experiment.server, server, SERVER):
        found |= {f"server.{key}": value for key, value in server.items()}
    if method.has_class_table:
        found |= _prior(experiment, splits)
    plain = "x" in splits.train.columns and DataShape.of(splits.train).image is None
    if plain and method.has_class_table:
        found["clients.input_dropout"] = 0.2 if can_spare_features(experiment, splits) else 0.0
    return found


def _is_refused(experiment: Experiment, local: dict[str, Any]) -> bool:
    """Whether the drift correction takes plain steps on clients and not the optimiser to be chosen."""
    drift, clients = experiment.clients.drift, experiment.clients
    if drift is None or experiment.method.is_centralized or "local_epochs" not in local:
        return False
    server = experiment.server.optimizer_for()
    chosen = clients.model_copy(update=local).optimizer_for()
    if drift.validate_optimizers(chosen, server) is None:
        return False
    return drift.validate_optimizers(Optimizer(), server) is None


def _prior(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """What no loss here learns of p(class); its weight is found on examples that are held out.

    Where clients hide their classes among others, counts of them would tell what they hide: there the
    server counts the labels of the validation part, which is its own. So it does with histories, whose
    users are asked for no counts whichever items they request.
    """
    method, hidden = experiment.method, hides_sizes(experiment)
    if judged_by(experiment.eval) == ["balanced_accuracy"]:
        return {"method.prior": 0.0}  # every class counts alike: how frequent it is must not
    own = method.is_centralized or (method.names_own_rows and not hidden)
    if own and not method.takes_histories:
        return {"method.prior": "auto"}
    return {} if hidden or not splits.validation else {"method.prior": "validation"}


def could_take_prior(method: Method) -> bool:
    """Whether a prior over classes by clients' counts could be added to a method's scores."""
    return method.has_class_table and not method.hides_sizes and method.prior in (0, "validation")


def rate_alone(experiment: Experiment) -> bool:
    """Whether the server's rate is set without its optimiser: 1.0 is one of SGD, 0.003 one of Adam."""
    given = experiment.server.model_fields_set
    return bool(OF_SGD & given) and "optimizer" not in given


def _agrees(section: Optimizer, chosen: dict[str, Any], keys: frozenset[str]) -> bool:
    """Whether those of the keys that the user has set are as they would be chosen."""
    known = type(section).model_fields
    return all(
        getattr(section, key) == chosen.get(key, known[key].get_default(call_default_factory=True))
        for key in keys & section.model_fields_set
    )


def _rates_of(experiment: Experiment, splits: Splits) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of clients and server."""
    method = experiment.method
    falling = {"optimizer": "adam", "lr": 0.003, "eps": 1e-8, "lr_decay": "cosine"}
    if method.is_centralized:  # one place: the server only takes what comes out
        rate = 0.003 if method.has_class_table else 0.001
        return {"optimizer": "adam", "lr": rate, "eps": 1e-8, "lr_decay": "cosine"}, {}
    if not method.has_class_table and not one_step(
        experiment, splits
    ):  # FedMLH and its kind: their paper's
        return {"optimizer": "adam", "lr": 0.001, "beta2": 0.999, "eps": 1e-8, "local_epochs": 5}, {}
    if isinstance(method, DualEncoder):
        return {"lr": 0.1, "local_steps": 1, "lr_decay": "cosine"}, {**falling, "lr": 0.01}
    if not method.has_class_table:
        return {"lr": 0.1, "local_steps": 1, "lr_decay": "cosine"}, falling
    if isinstance(method, PositiveOnly):
        falling["eps"] = _epsilon(experiment, splits, 0.1)
        return {"lr": 0.1, "row_lr": 1.0, "local_steps": 1, "lr_decay": "cosine"}, falling
    # A small step: in a large one, rows on the sphere do something else than follow their gradient.
    slow = is_small(experiment, splits) or sees_pictures(experiment, splits)
    local = {"lr": 0.01, "local_steps": 1, "lr_decay": "cosine"}
    falling["eps"] = _epsilon(experiment, splits, 0.01)
    return local, {**falling, "lr": 0.001} if slow else falling


def _epsilon(experiment: Experiment, splits: Splits, rate: float) -> float:
    """ε of Adam on the server; rate: the clients' own that it is meant for: it goes with theirs.

    Without one, a word seen once moves as far as one of every tenth text, and texts of few words are
    soon learned by heart. Tried with one label a text and up to 150 clients: a mean over thousands is of
    another scale.
    """
    if hides_sizes(experiment) or experiment.model.encoder != "mlp" or not has_rare_words(splits):
        return 1e-8
    clients, busy = experiment.clients, int((splits.train.sizes > 0).sum())
    taking = busy if clients.per_round == "all" else min(busy, clients.per_round)
    if taking > EVERYBODY:
        return 1e-8
    return RARE_WORDS * (1.0 if is_open(experiment, "clients.lr") else clients.lr / rate)


def _widths(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """Room for the classes: rows of 128 numbers or more; a hidden layer unless features are words."""
    if experiment.model.encoder not in ("mlp", "lookup", "convnet"):
        return {}
    wide = splits.train.classes > 2000
    found: dict[str, Any] = {"model.dim": 256 if wide else 128}
    if experiment.model.encoder == "mlp" and experiment.method.has_class_table:
        found["model.hidden"] = [] if is_text(experiment, splits) else [512] if wide else [256]
    if experiment.model.encoder == "lookup":  # a hidden layer was worse, and √n keeps rare words loud
        found |= {"model.hidden": [], "model.width": 256, "model.pooling": "sqrtn"}
    return found
