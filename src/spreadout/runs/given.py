"""Parts that a run is given in Python: its config says which, and does not run again without them."""

from __future__ import annotations

from collections.abc import Collection

from spreadout.config.experiment import Experiment
from spreadout.config.keys import with_value
from spreadout.core.errors import UserError
from spreadout.data.sources.python import GivenInPython
from spreadout.data.splits import Splits


def refuse_without_own(experiment: Experiment, given: Collection[str]) -> None:
    """A config of a run that had an encoder or a method of its own says nothing of what those were."""
    for part in experiment.own:
        if part not in given:
            raise UserError(
                f"own = [{part!r}]: the {part} of this run was given in Python; give it again "
                f"({part}=...), or set own = [] to train what the config names"
            )


def saying_what_was_given(experiment: Experiment, data: Splits, given: Collection[str]) -> Experiment:
    """The experiment as it is to be written down: its data and parts are those that it was given."""
    if "data" in given:
        source = GivenInPython(called=data.name or "unnamed")
        experiment = with_value(experiment, "data.source", source)
        experiment = with_value(experiment, "data.path", None)
    own = [part for part in ("encoder", "method") if part in given]
    return experiment.model_copy(update={"own": own})
