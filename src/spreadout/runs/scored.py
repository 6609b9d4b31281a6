"""What a model is worth as it is: the prior over classes that it gets, and its scores with that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from spreadout.core.errors import UserError
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.types import Record
from spreadout.data.splits import Splits
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.early_stopping import CHANCE, VALIDATION, chance, judged_by
from spreadout.evaluation.evaluate import Evaluation, evaluate, needed_frequencies
from spreadout.evaluation.frequencies import Frequencies
from spreadout.evaluation.known import KnownExamples, known_examples
from spreadout.federated.federation import Federation
from spreadout.runs import class_prior
from spreadout.runtime import distributed


@dataclass(frozen=True)
class Scored:
    """One evaluation of a model."""

    evaluation: Evaluation  # of the part that the run is judged by
    tau: float | None  # of the prior over classes; None: there is none
    validated: Record  # scores of the validation part, where those choose a model or an end


@dataclass(frozen=True)
class Judge:
    """Scores a model round after round, always in the same way."""

    federation: Federation
    data: Splits
    config: EvalConfig

    def scored(self, state: ServerState) -> Scored:
        """The model as it is; the prior over classes is put into the state."""
        f, config, held = self.federation, self.config, self.data.validation
        learnt = tau = class_prior.set_(f, state, held)
        known = known_examples(config, f.model, state, held)
        found = None
        if config.split == "validation":
            found = self._evaluation(state, "validation", config.metrics, tau, known)
        # What chooses a model is what it learnt, not what is frequent.
        validated = self._validated(state, tau, found)
        if config.decode == "classes":
            tau = class_prior.set_alone_(f, state, held, tau)
        if found is None or tau != learnt:
            found = self._evaluation(state, config.split, config.metrics, tau, known)
        return Scored(found, tau, validated)

    def _evaluation(
        self,
        state: ServerState,
        part: Literal["test", "validation"],
        names: Sequence[str],
        tau: float | None,
        known: KnownExamples | None = None,
    ) -> Evaluation:
        """No validation example votes for itself in the prior."""
        f, held, examples = self.federation, self.data.validation, self.data.scored(part)
        assert examples is not None
        votes = class_prior.own_votes_in(f, state, held, tau) if part == "validation" else None
        return evaluate(f.model, state, examples, names, seen=self._seen, known=known, votes=votes)

    def _validated(self, state: ServerState, tau: float | None, found: Evaluation | None) -> Record:
        """Scores on the validation part, where that chooses a model or an end; how far chance goes.

        found: those of the part the run is judged by, if it is this one.
        """
        config, held = self.config, self.data.validation
        if held is None or (config.keep == "last" and config.patience is None):
            return {}
        names = judged_by(config)
        scores = (found or self._evaluation(state, "validation", names, tau)).metrics
        kept = {VALIDATION + name: scores[name] for name in names}
        return {**kept, CHANCE: chance(config, scores[names[0]], len(held))}

    @cached_property
    def _seen(self) -> Frequencies | None:
        return needed_frequencies(self.federation.data, self.config)


def refuse_diverged(state: ServerState) -> None:
    """A model with a number that is none cannot be scored."""
    for name, value in (*state.tables.items(), *state.dense.items()):
        if distributed.any_of(not bool(local_of(value).isfinite().all())):
            what = f"the table of {name}" if name in state.tables else name
            raise UserError(
                f"diverged by round {state.round}: {what} is not finite; "
                "lower the rates (clients.lr, clients.row_lr, server.lr, method.strength)"
            )
