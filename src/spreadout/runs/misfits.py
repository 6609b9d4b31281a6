"""What does not go together: data, method, model, metrics, optimisers, rules; each refused by name."""

from __future__ import annotations

import torch

from spreadout.config.effect import refuse_idle
from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.data.columns import Dense, Lists
from spreadout.data.declared import refuse_fitted
from spreadout.data.splits import Splits
from spreadout.evaluation.class_scores import ONE_LABEL, of_sets
from spreadout.evaluation.metrics import find_metric
from spreadout.methods.base import Method
from spreadout.runs.unprotected import refuse_unprotected

RETRIEVAL = "private-retrieval"  # the executor of that name


def refuse_misfits(e: Experiment, splits: Splits, method: Method) -> None:
    """Raise an error for parts that do not go together."""
    data = splits.train
    if problem := method.validate_data(data):
        raise UserError(problem)
    if "x" not in data.columns and not method.takes_histories:
        raise UserError(
            f"method.name = {method.name!r}: takes an input x, and the data has histories; "
            'take method.name = "dual_encoder"'
        )
    y = data.columns["y"]
    named = y.values if isinstance(y, Lists | Dense) else torch.empty(0)
    if len(named) and int(named.max()) >= data.classes:
        raise UserError(
            f"a training label is {int(named.max())}: there are {data.classes} classes, numbered from 0"
        )
    if len(named) and int(named.min()) < 0:
        raise UserError(f"a training label is {int(named.min())}: classes are numbered from 0")
    if isinstance(y, Lists) and not method.label_sets:
        remedy = 'give one class each, with a source of ours by data.targets = "each" or "one"'
        if e.data.partition.name == "frequent_classes":
            remedy = 'data.partition = "frequent_classes" keeps whole label sets: take another'
        these = "these have one each, but as sets of one" if y.longest <= 1 else "these have label sets"
        raise UserError(
            f"method.name = {method.name!r}: trains on one label an example, and {these}; {remedy}"
        )
    if method.prior and not method.has_class_table:
        raise UserError(f"method.prior: method.name = {method.name!r} has no class scores to add it to")
    refuse_unprotected(e, method)
    if e.privacy is not None:
        refuse_fitted(data.input_columns)
    _refuse_other_weights(e, method)
    refuse_idle(e, splits, method)
    _refuse_without_validation(e, splits, method)
    _refuse_unknown_neighbours(e, method)
    refuse_named_rows(e, method)
    metrics = [find_metric(name) for name in e.eval.metrics]
    ranked = [metric for metric in metrics if metric.needs_trained_classes]
    if e.eval.split == "test" and len(splits.test) and _unseen(splits) and ranked:
        raise UserError(
            f"data.source = {splits.name!r}: its test classes are never trained on, so they have no "
            f"{ranked[0].name}; take MAP@10, MAP@R or retrieval R@k, or set "
            'data.validation_fraction and eval.split = "validation"'
        )
    scored = splits.scored(e.eval.split)
    sets = scored is not None and len(scored) > 0 and int(scored.labels.lengths.max()) > 1
    for metric in metrics:
        if sets and metric.name in ONE_LABEL:
            raise UserError(f"eval.metrics: {of_sets(metric.name)}")
        if not method.has_class_table and metric.needs_embeddings:
            raise UserError(
                f"eval.metrics: {metric.name} needs a score of every class; "
                f"method.name = {method.name!r} has the best only: take P@k, R@k, nDCG@k or PSP@k"
            )
        if metric in ranked and (metric.looks_at or 0) > data.class_count:
            raise UserError(
                f"eval.metrics: {metric.name} needs more classes than the {data.class_count} there are"
            )


def _refuse_without_validation(e: Experiment, splits: Splits, method: Method) -> None:
    """What needs validation examples, where none are held out."""
    if splits.validation is not None and len(splits.validation):
        return
    # The server counts for a prior: a node, which scores nothing, has nothing to count by.
    counts = method.prior == "validation" and len(splits.test) > 0
    tuned = "by test examples would be to tune on them"
    needs = {
        'method.prior = "validation"': ("to count", counts),
        'eval.keep = "best"': (f"to choose by, and to choose {tuned}", e.eval.keep == "best"),
        f"eval.patience = {e.eval.patience}": (
            f"to stop by, and to stop {tuned}",
            e.eval.patience is not None,
        ),
        'eval.split = "validation"': ("to score", e.eval.split == "validation"),
        f'eval.decode = "{e.eval.decode}"': ("to vote", e.eval.decode != "classes"),
    }
    for asked, (purpose, is_asked) in needs.items():
        if is_asked:
            raise UserError(
                f"{asked}: there are no validation examples {purpose}; set "
                "data.validation_fraction = 0.1, or give Splits of your own a validation part"
            )


def _refuse_unknown_neighbours(e: Experiment, method: Method) -> None:
    """Votes of validation examples, where they are what is scored, or nothing is near to them."""
    if e.eval.decode == "classes":
        return
    asked = f'eval.decode = "{e.eval.decode}"'
    if e.eval.split == "validation":
        raise UserError(f'{asked}: validation examples vote, so others are scored: eval.split = "test"')
    if not method.has_class_table:
        raise UserError(f"{asked}: method.name = {method.name!r} has no embeddings to be near to")


def _refuse_other_weights(e: Experiment, method: Method) -> None:
    """Clients that are drawn by size stand for the mean by n_i/n, with the weights that belong to it."""
    if e.clients.selection != "by_size":
        return
    if method.weighting != "examples":
        raise UserError(
            "clients.selection = 'by_size': stands for the mean by examples, n_i/n; set "
            'method.weighting = "examples", or take clients.selection = "weighted"'
        )
    twice = sorted(set(method.rules().rows.values()) - {"replace", "sum"})
    if twice:
        raise UserError(
            f"clients.selection = 'by_size': method.merge = {twice[0]!r} would weigh rows by how they "
            'were drawn and by n_i again; set method.merge = "sum", or clients.selection = "uniform"'
        )
    if e.clients.drift is not None and e.clients.drift.keeps_state:
        raise UserError(
            f"clients.drift = {e.clients.drift.name!r}: weighs the states of all clients by n_i/n, not "
            'by how they were drawn; with it take clients.selection = "uniform"'
        )


def refuse_named_rows(e: Experiment, method: Method) -> None:
    """Rows that are fetched without being named must not be named by what comes back."""
    if e.run.executor != RETRIEVAL:
        return
    where = f"run.executor = {RETRIEVAL!r}"
    if method.name != "fedss" or method.needs_public_state:
        raise UserError(f'{where}: fetches the class rows of method.name = "fedss", and tells no counts')
    if e.privacy is None or not e.privacy.needs_others:
        raise UserError(
            f"{where}: an update would name the rows that it hides; add [privacy] with "
            'model = "distributed", which sums over all rows'
        )
    if method.row_merge()["classes"] != "sum":
        raise UserError(
            f'{where}: nobody knows how many clients hold a row, to divide by; set method.merge = "sum"'
        )
    if e.model.features_are_rows:
        raise UserError(f"{where}: rows of features would be named; take another model.encoder")


def refuse_unfit_optimizers(e: Experiment, method: Method) -> None:
    """A drift correction may be sound with some optimisers only."""
    if e.clients.drift is None:
        return
    if e.privacy is not None and e.clients.drift.keeps_state:
        raise UserError(
            f"clients.drift = {e.clients.drift.name!r}: keeps states that noise would drive "
            'off their mean; with [privacy] take "fedprox"'
        )
    if method.hides_sizes and e.clients.drift.keeps_state:
        raise UserError(
            f"clients.drift = {e.clients.drift.name!r}: a state follows from a client's number of "
            f'examples, which method.name = {method.name!r} with dummies hides; take "fedprox", or '
            "method.dummies = 0"
        )
    for server in (e.server.optimizer_for(), *e.server.tables.values()):
        problem = e.clients.drift.validate_optimizers(e.clients.optimizer_for(), server)
        if problem and method.is_centralized:
            raise UserError(
                f"clients.drift = {e.clients.drift.name!r}: method.name = {method.name!r} pools the "
                "data, and no client can drift; leave clients.drift out"
            )
        if problem:
            raise UserError(problem)


def unfit_for_robust_rules(e: Experiment) -> str | None:
    """Why a config's updates cannot be judged one by one, or None."""
    if e.privacy is not None and e.privacy.needs_others:
        return (
            'privacy.model = "distributed" shows the server sums and no single update; honest clients '
            'are held to privacy.clip: take "mean"'
        )
    if e.privacy is not None and e.privacy.on_the_server:
        return 'privacy.model = "central" clips every update and noises their sum; take "mean"'
    if e.clients.drift is not None and e.clients.drift.keeps_state:
        return (
            f"clients.drift = {e.clients.drift.name!r} has a control that is the mean of whatever "
            'clients send, which no rule guards; take "fedprox", or no drift correction'
        )
    return None


def _unseen(splits: Splits) -> bool:
    """Whether no test class has a row in the table."""
    labels = splits.test.labels.values
    return len(labels) > 0 and int(labels.min()) >= splits.train.classes
