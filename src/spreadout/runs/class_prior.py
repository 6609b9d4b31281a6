"""The prior over classes of a run: put into its scores at every evaluation, weighed up at its end.

Its counts are those that clients have told, or, with `method.prior = "validation"`, those of the
validation part's labels, which clients have no part in.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.core.tables import Sharded
from spreadout.data.held_out import Examples
from spreadout.evaluation import cautious_prior, prior, prior_alone
from spreadout.evaluation.evaluate import frequencies
from spreadout.evaluation.own_vote import own_votes
from spreadout.evaluation.prior_gain import with_and_without
from spreadout.evaluation.scoring import log_prior
from spreadout.federated.federation import Federation


def set_(f: Federation, state: ServerState, validation: Examples | None) -> float | None:
    """Put the prior over classes into the scores: τ · log n_c, τ by the validation examples."""
    counts, tau = state.scoring.get("counts"), f.method.prior
    if tau == "validation":
        return _set_held_out(f, state, validation)
    if counts is None or tau == 0:  # they may be there for the loss alone
        return None
    if isinstance(tau, str):
        tau = prior.found(tau, f.model, state, counts, validation, known=f.method.known_prior)
    state.scoring["prior"] = tau * log_prior(counts)
    return tau


def _set_held_out(f: Federation, state: ServerState, validation: Examples | None) -> float | None:
    """The same by counts of the validation part.

    A model of histories begins with none: its softmax has learnt what is frequent as far as order does
    not say more, and a likelihood would count that twice (docs/defaults_found.md).
    """
    if validation is None:
        return None
    counts, tau = _held_out_counts(state, validation), 0.0
    if not f.method.takes_histories:
        tau = cautious_prior.choose(f.model, state, counts, validation, own=True)
    state.scoring["prior"] = tau * log_prior(counts)
    return tau


def set_alone_(
    f: Federation, state: ServerState, validation: Examples | None, tau: float | None
) -> float | None:
    """Weigh the prior more, or leave the ranking to it, where the model is not surely better; its τ.

    Only where τ is found by ranking (`auto`, `validation`), and in one process: a table that is split
    over several keeps its τ.
    """
    held_out = f.method.prior == "validation"
    sharded = any(isinstance(table, Sharded) for table in state.tables.values())
    if tau is None or validation is None or sharded or not (held_out or f.method.prior == "auto"):
        return tau
    counts = _held_out_counts(state, validation) if held_out else state.scoring["counts"]
    learnt = f.method.row_access != "own"  # a loss over others' classes, too, knows what is frequent
    tau = prior_alone.weighed(f.model, state, counts, validation, tau, own=held_out, learnt=learnt)
    state.scoring["prior"] = tau * log_prior(counts)
    return tau


def own_votes_in(
    f: Federation, state: ServerState, validation: Examples | None, tau: float | None
) -> Tensor | None:
    """What each validation label adds to the prior by itself; None where they are not its counts.

    To be taken off where validation examples are scored: no example is to vote for itself.
    """
    if f.method.prior != "validation" or validation is None or not tau:
        return None
    return own_votes(_held_out_counts(state, validation), tau)


def _held_out_counts(state: ServerState, validation: Examples) -> Tensor:
    table = state.tables["classes"]
    return cautious_prior.counted(validation, len(table)).to(table.device)


def gain_of(
    f: Federation,
    whole: ServerState,
    tau: float | None,
    scored: Examples,
    validation: Examples | None,
    propensity: tuple[float, float],
) -> dict[str, Any] | None:
    """What the prior gains on the examples that are scored; None where there is none.

    whole: the model that the run leaves; tau: of its evaluation.
    """
    sharded = any(isinstance(table, Sharded) for table in whole.tables.values())
    if tau is None or "prior" not in whole.scoring or sharded:
        return None
    counts = whole.scoring.get("counts")
    if counts is None and not f.executor.clients_elsewhere:
        # Nobody told; what is frequent is a matter of the training data all the same.
        counts = frequencies(f.data, 1).counts
    if counts is None and validation is not None:  # a server of real clients has none
        counts = _held_out_counts(whole, validation)
    if counts is None:
        return None
    votes = own_votes_in(f, whole, validation, tau) if scored is validation else None
    return with_and_without(f.model, whole, scored, tau, propensity, counts, votes)
