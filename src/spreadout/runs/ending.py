"""A run that has come to its end: what it is compared with, what is wrong with it, what it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spreadout.config.experiment import Experiment
from spreadout.config.rates import could_take_prior
from spreadout.config.sound import usual_rounds
from spreadout.core.state import ServerState
from spreadout.core.types import Record
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits
from spreadout.evaluation.activity import Activity, activity_of
from spreadout.evaluation.early_stopping import shown_of
from spreadout.evaluation.geometry import Geometry
from spreadout.evaluation.only_answer import only_answer
from spreadout.evaluation.projection import projection_of
from spreadout.evaluation.references import ReferenceSet, remembered_references
from spreadout.federated.federation import Federation
from spreadout.methods import Baseline1, Flag
from spreadout.models.build import DataShape
from spreadout.runs import class_prior, diagnosis
from spreadout.runs.alike import FAR_OFF
from spreadout.runs.details import details_of
from spreadout.runs.evidence import evidence
from spreadout.runs.far_below import Setting, compares_nothing, has_central
from spreadout.runs.finding import Finding
from spreadout.runs.folder import RunFolder
from spreadout.runs.keeping import kept_model
from spreadout.runs.predict import Predictor, with_weights
from spreadout.runs.result import Result
from spreadout.runs.summary import summarize
from spreadout.runtime import distributed

LONGEST = 40  # letters of a class's name that a finding shows
SCALE_FREE = ("adam", "yogi", "adagrad", "dog")  # optimisers that divide by how long gradients are


@dataclass(frozen=True)
class Ending:
    """All that is known of a run when its last round is over."""

    experiment: Experiment
    data: Splits
    federation: Federation
    state: ServerState
    whole: ServerState  # the model that is kept, all its rows in the process that writes
    history: list[Record]
    seconds: float
    own: Sequence[str]  # the parts given in Python instead of described in the config
    data_notes: Sequence[str]  # what was said of the data before training

    def result(self, folder: RunFolder | None) -> Result:
        """What the run comes to; written to its folder, unless it was resumed at its very end."""
        written = folder is not None and folder.finished
        references = ReferenceSet() if written else self._references()
        summary = summarize(
            self.experiment,
            self.data,
            self.federation,
            self.state,
            self.history,
            self.seconds,
            references,
            self._findings(references),
            None if written else self._prior_gain(),
            self.data_notes,
        )
        with_weights(self.federation.model, self.whole)  # who looks at the encoder finds it trained
        asked = Predictor.of(self.experiment.data, self.data, self.federation, self.whole)
        if folder is not None and written:
            summary = folder.summary()
        elif folder is not None:
            self._leave(folder, summary, asked)

        def leave(other: RunFolder) -> None:
            other.begin(self.experiment.to_toml())
            for record in self.history:
                other.append(record)
            self._leave(other, summary, asked)

        path = folder.path if folder else None
        state = kept_model(self.state)
        return Result(summary, self.history, state, self.federation, asked, path, leave)

    @property
    def _examples(self) -> Examples:
        """Those that are scored."""
        scored = self.data.scored(self.experiment.eval.split)
        assert scored is not None
        return scored

    @property
    def _shown(self) -> Record:
        """The evaluation of the model that is kept."""
        return self.history[shown_of(self.experiment.eval, self.history)]

    def _references(self) -> ReferenceSet:
        """What the run is to be compared with, by the process that writes it down."""
        wanted = self.experiment.eval.references and self.experiment.privacy is None
        if not (wanted and distributed.is_first()):
            return ReferenceSet()
        return remembered_references(self.data, self.experiment.eval, self.federation.device)

    def _findings(self, references: ReferenceSet) -> list[Finding]:
        """What is wrong with the run, by the process that writes it down."""
        if not distributed.is_first():
            return []
        e, f = self.experiment, self.federation
        geometry, seen = None, activity_of(f.model, self.whole, self._examples)
        if self._shown.get("collapsing"):
            geometry = Geometry(**{name: self._shown[name] for name in Geometry.__dataclass_fields__})
        return diagnosis.diagnose(
            e.eval,
            self.history,
            rounds=e.rounds,
            decays="none" not in (e.clients.lr_decay, e.server.lr_decay),
            examples=len(self._examples),
            usual=usual_rounds(e, self.data),
            takes_prior=could_take_prior(f.method) and e.privacy is None,
            collapse_advice=f.method.collapse_advice(geometry) if geometry else None,
            activity=seen if e.model.input_scaling == "none" else replace(seen, offset=None),
            references=references.references,
            copies=references.copies,
            mirrored=e.clients.image_flip and "clients.image_flip" in (e.chosen or []),
            scale_free=self._is_scale_free,
            **self._beside_references(references, seen),
        )

    def _beside_references(self, references: ReferenceSet, seen: Activity) -> dict[str, Any]:
        """What is looked at only where there is a reference to be compared with."""
        if not references.references:
            return {}
        e, train, method = self.experiment, self.data.train, self.federation.method
        shape, plain = DataShape.of(train), e.model.encoder == "mlp" and "encoder" not in e.own
        setting = Setting(
            alone=compares_nothing(method),
            unpushed=isinstance(method, Baseline1 | Flag),
            adam=plain and self._is_scale_free and train.has_numbers,
            wide=(shape.features or 0) >= train.examples,
            standardised=e.model.input_scaling == "standard" and "encoder" not in e.own,
            centred=(seen.offset or 0.0) <= FAR_OFF,
            hidden=e.model.hidden != [],
            rates_chosen={"clients.lr", *["server.lr"] * self._is_scale_free} <= set(e.chosen or []),
            has_central=has_central(method),
        )
        return {"only_answer": self._only_answer(), "setting": setting}

    @property
    def _is_scale_free(self) -> bool:
        """Whether the server's optimiser takes the scale of the clients' one step away."""
        e = self.experiment
        return e.server.optimizer in SCALE_FREE and e.clients.local_steps == 1

    def _only_answer(self) -> str | None:
        """The class that all examples are taken for, by name."""
        found = only_answer(self.federation.model, self.whole, self._examples, self.data.train.classes)
        if found is None:
            return None
        name = dict(enumerate(self.data.class_names)).get(found, "")
        return " ".join(name.split())[:LONGEST] or f"class {found}"

    def _prior_gain(self) -> dict[str, Any] | None:
        """What the prior over classes gains, by the process that has the whole model."""
        if not distributed.is_first():
            return None
        tau, propensity = self._shown.get("prior"), self.experiment.eval.propensity
        held = self.data.validation
        return class_prior.gain_of(self.federation, self.whole, tau, self._examples, held, propensity)

    def _leave(self, folder: RunFolder, summary: dict[str, Any], asked: Predictor) -> None:
        """What a finished run leaves in a folder."""
        drawable = "classes" in self.state.tables
        projection = (
            projection_of(self.federation.model, asked.state, self.data.test) if drawable else None
        )
        given = evidence(self.federation, self.state)
        details = details_of(self.federation, asked.state, self._examples)
        folder.finish(summary, asked.state, projection, asked.about(self.own), given, details)
