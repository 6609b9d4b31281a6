"""What clients would tell besides their noised updates: refused where a config says that it is hidden.

Under `[privacy]` nothing leaves a client without noise, and where a method hides how many examples a
client has (FedALC's dummies), no weight may tell it.
"""

from __future__ import annotations

from torch import nn

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.evaluation.metrics import find_metric
from spreadout.methods.base import Method
from spreadout.models.nn.scaling import standardized_in
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.mechanism import GaussianMechanism

TELLS_SIZES = "that a client trains tells that it has at least clients.batch examples"


def refuse_unprotected(e: Experiment, method: Method) -> None:
    """Raise an error, with the remedy, for what would travel beside the noise."""
    private = e.privacy is not None
    if not (private or method.hides_sizes):
        return
    where = "[privacy]" if private else "method.dummies"
    told = "without noise" if private else "though dummies are to hide it"
    rules = method.rules()
    if method.is_centralized:
        raise UserError(f"privacy: method.name = {method.name!r} pools the data; nothing is private")
    if e.privacy is not None and e.privacy.on_the_server:
        _refuse_for_sums(e, method)
    if e.privacy is not None and e.privacy.model == "example":
        _refuse_for_examples(e, method)
    if e.privacy is not None and e.privacy.needs_others and method.returns_own_rows:
        raise UserError(
            f"method.name = {method.name!r}: clients send back fewer rows than they request, and the "
            'server of privacy.model = "distributed" knows by requests alone how many clients a sum of '
            "rows is of; set method.negatives = 0"
        )
    if rules.counted:
        table = min(rules.counted)
        raise UserError(
            f"method.name = {method.name!r}: merges the rows of {table} by how many positives a client "
            f'has, which it would tell {told}; with {where} take "fedaws", or method.merge = "mean"'
        )
    for table, rule in rules.rows.items():
        if rule == "weighted-mean":
            raise UserError(
                f"method.merge = {rule!r}: clients would tell their numbers of examples {told} to weigh "
                f'the rows of {table}; with {where} set method.merge = "mean"'
            )
    if rules.weighting == "examples":
        raise UserError(
            f"method.weighting = 'examples': clients would tell their numbers of examples {told}; "
            f'with {where} set method.weighting = "uniform"'
        )
    if getattr(method, "weighted", False):
        raise UserError(
            f"method.weighted = true: needs how many examples a class has, told {told}; "
            f"with {where} set method.weighted = false"
        )
    if e.clients.selection in ("weighted", "by_size") and not (e.privacy and e.privacy.on_the_server):
        raise UserError(
            f"clients.selection = {e.clients.selection!r}: chooses clients by their numbers of "
            f'examples, told {told}; with {where} set clients.selection = "uniform"'
        )
    if e.clients.drop_remainder and not (e.privacy and e.privacy.on_the_server):
        raise UserError(
            f"clients.drop_remainder = true: {TELLS_SIZES}; with {where} set "
            "clients.drop_remainder = false"
        )
    if e.model.input_scaling != "none":
        raise UserError(
            f'model.input_scaling = "{e.model.input_scaling}": clients would tell the mean and variance '
            f'of their features {told}; with {where} scale features yourself and set "none"'
        )
    if e.privacy is not None:
        _refuse_setup(method)
        _refuse_frequencies(e)
        if not e.privacy.on_the_server and e.privacy.model != "example":
            refuse_empty_budget(e.privacy, epsilon_of(e.privacy.noise, 1, e.privacy.delta))
        if e.privacy.needs_others and e.clients.max_update_norm is not None:
            raise UserError(
                f"clients.max_update_norm = {e.clients.max_update_norm:g}: with privacy.model = "
                '"distributed" the server sees no single update to measure; privacy.clip bounds them'
            )


def refuse_own_scaling(e: Experiment, method: Method, encoder: nn.Module) -> None:
    """A layer of an own encoder that asks clients for the moments of their features."""
    if (e.privacy is not None or method.hides_sizes) and standardized_in(encoder) is not None:
        where = "[privacy]" if e.privacy is not None else "method.dummies"
        raise UserError(
            "encoder: has so.Standardized: clients would tell the mean and variance of their features; "
            f"with {where} scale features by numbers that are public, without it"
        )


def _refuse_for_examples(e: Experiment, method: Method) -> None:
    """Noise in every step hides an example only where that moves the step's sum by its clip."""
    example = 'privacy.model = "example"'
    if e.clients.local_steps is None:
        raise UserError(
            "clients.local_epochs: their steps would tell how many examples a client has; with "
            f"{example} set clients.local_steps"
        )
    if e.clients.batch == "full" or e.clients.drop_remainder:
        key = "clients.drop_remainder = true" if e.clients.drop_remainder else 'clients.batch = "full"'
        raise UserError(
            f"{key}: depends on how many examples a client has; with {example} set clients.batch to a "
            "number: so many are in a step in the mean"
        )
    if not method.loss_is_of_each_example:
        raise UserError(
            f"method.name = {method.name!r}: its loss of an example depends on the client's others "
            "(those of a batch, how many there are, or which classes are its own), so that one of them "
            f"changes their gradients; with {example} take a loss of each example by itself: "
            f"{_alone(method)}"
        )
    if e.clients.max_examples is not None:
        raise UserError(
            f"clients.max_examples = {e.clients.max_examples}: without one of the first examples "
            f"another takes its place, and both move the sums; with {example} leave it out"
        )
    if e.clients.request_features == "seen":
        raise UserError(
            'clients.request_features = "seen": requests would name the features of the examples that '
            f'were drawn, and ε counts on nobody knowing these; with {example} set "own"'
        )


def _alone(method: Method) -> str:
    """Which setting of a method has such a loss."""
    if method.needs_counts is not None:
        return "method.margin_by_frequency = 0 and method.logit_adjustment = 0"
    if method.name == "fedss":
        return 'method.loss_form = "sampled" with method.correct = false, or method.name = "fedavg"'
    if method.name == "dual_encoder":
        return 'method.loss_form = "hinge" or "global_softmax", without spreadout in the batch'
    return 'such as that of method.name = "fedavg"'


def _refuse_for_sums(e: Experiment, method: Method) -> None:
    """Noise on a sum hides a client only where the sum moves by no more than its clip."""
    central = 'privacy.model = "central"'
    for table, rule in sorted(method.rules().rows.items()):
        if rule != "sum":
            why = {
                "replace": "a row would be one client's own value, which no sum hides",
                "mean": "is divided by how many clients hold a row, which depends on who came",
            }.get(rule, "is divided by how many examples stand behind a row, which depends on who came")
            raise UserError(
                f'method.merge = {rule!r}: of {table}, {why}; with {central} set method.merge = "sum"'
            )
    if e.clients.selection not in ("poisson", "uniform", "full"):
        why = {
            "nonempty": "depends on which clients have examples",
            "weighted": "draws clients by their numbers of examples",
            "by_size": "draws clients by their numbers of examples",
            "fixed": "draws the same clients every round, and sampling hides nobody",
        }[e.clients.selection]
        raise UserError(
            f'clients.selection = {e.clients.selection!r}: {why}; with {central} take "poisson"'
        )
    if e.server.robust is not None and e.server.robust.name != "mean":
        raise UserError(
            f"server.robust = {e.server.robust.name!r}: moves by more than one client's clip when a "
            f"client is added; with {central} leave it out: every update is clipped anyway"
        )
    if e.clients.max_update_norm is not None:
        raise UserError(
            "clients.max_update_norm: how many updates are refused would be told without noise; with "
            f"{central} leave it out: longer updates are clipped"
        )


def refuse_empty_budget(mechanism: GaussianMechanism, one: float) -> None:
    """A budget that the first round would exceed trains nothing; one: what that gives away."""
    if mechanism.epsilon is not None and one > mechanism.epsilon:
        raise UserError(
            f"privacy.epsilon = {mechanism.epsilon:g}: one round with privacy.noise = "
            f"{mechanism.noise:g} gives away ε = {one:.3g}; `spreadout plan-privacy` says how much "
            "noise a budget needs"
        )


def _refuse_setup(method: Method) -> None:
    """What is sent before the first round has no noise."""
    if method.prior and method.prior_costs_counts:
        raise UserError(
            f"method.prior = {method.prior!r}: clients would send their label counts without noise; "
            "with [privacy] set method.prior = 0"
        )
    if method.prior == "validation":
        raise UserError(
            'method.prior = "validation": scores would be made of exact counts of labels; with '
            "[privacy] set method.prior = 0"
        )
    if method.needs_counts == "all":
        raise UserError(
            "method.logit_adjustment: clients would send their label counts without noise; with "
            "[privacy] set method.logit_adjustment = 0"
        )
    if method.collects_counts and not method.prior:
        raise UserError(
            "method.class_features: clients would send their label counts without noise; with [privacy] "
            "leave it out"
        )
    if method.sends_at_setup is not None:
        raise UserError(
            f"method.name = {method.name!r}: clients would send {method.sends_at_setup} without noise; "
            f"with [privacy] take {method.without_setup}"
        )
    if not _declares_setup(type(method)):
        raise UserError(
            f"method.name = {method.name!r}: has a client_setup of its own and no sends_at_setup, which "
            "says what clients send there without noise; with [privacy] leave client_setup out"
        )


def _declares_setup(method: type[Method]) -> bool:
    """Whether the class that says what clients send at first, or one below it, says what that tells."""
    order = method.__mro__
    sends, declares = (
        next(place for place, one in enumerate(order) if name in vars(one))
        for name in ("client_setup", "sends_at_setup")
    )
    return declares <= sends


def _refuse_frequencies(e: Experiment) -> None:
    """Scores made of how often clients have each class are in the run's folder without noise."""
    for name in e.eval.metrics:
        if "frequencies" in find_metric(name).needs:
            raise UserError(
                f"eval.metrics: {name} needs how often clients have each class, told without noise; "
                "with [privacy] take P@k, R@k or nDCG@k"
            )
