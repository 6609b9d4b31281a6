"""One answer to everything, held to a plain loop over all guesses."""

import pytest
import torch

import spreadout as so
from faulty import rare, skewed
from spreadout.evaluation import only_answer as module
from spreadout.evaluation.only_answer import only_answer
from toys import tagged, tagged_config


@pytest.mark.parametrize("prior", [0, 1.0])
@pytest.mark.parametrize("at_once", [7, 256])
def test_it_is_what_all_guesses_have_in_common(
    prior: float, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    data = rare(0.8, validation=30)
    method = {"name": "fedavg", "prior": prior}
    result = so.run(so.Experiment.of({"rounds": 30, "method": method}), data=data)
    guesses = {
        int(one[0].id) for one in result.predict(data.test.inputs["x"].take(torch.arange(300)), top=1)
    }
    assert (len(guesses) == 1) == bool(prior)
    found = only_answer(result.federation.model, result.state, data.test, 3)
    assert found == (guesses.pop() if prior else None)


def test_of_examples_of_one_class_it_says_nothing() -> None:
    data = skewed()
    result = so.run(so.Experiment.of({"rounds": 1, "method": {"name": "fedavg"}}), data=data)
    labels = data.test.labels
    alike = so.Examples(data.test.inputs, type(labels)(labels.offsets, labels.values * 0))
    assert only_answer(result.federation.model, result.state, alike, 4) is None


def test_label_sets_are_asked_for_what_comes_first() -> None:
    data = tagged()
    result = so.run(tagged_config({"name": "fedavg"}, rounds=30), data=data)
    assert only_answer(result.federation.model, result.state, data.test, 6) is None
