"""Label sets in one place: both losses by hand, and that they are learned."""

import math

import pytest
import torch

import spreadout as so
from spreadout.core.types import Params, RowInfo
from spreadout.methods import CentralizedSets
from spreadout.models.build import DataShape, ModelConfig
from toys import label_sets

SHAPE = DataShape(classes=5, first_class=0, features=3, window=None)


@pytest.mark.parametrize("form", ["bce", "softmax"])
def test_losses_are_those_of_a_plain_loop(form: str) -> None:
    method = CentralizedSets(loss_form=form)  # type: ignore[arg-type]
    model = method.build_model(ModelConfig(hidden=[4]), SHAPE, seed=0)
    dense, _ = model.initial(0, torch.device("cpu"))
    sets = [[0, 3], [2], [1, 2, 4]]
    batch = {
        "x": torch.randn(3, 3, generator=torch.Generator().manual_seed(1)),
        "y": torch.tensor([[0, 3, -1], [2, -1, -1], [1, 2, 4]]),
        "mask": torch.tensor([True, True, False]),
    }
    found = method.loss(model, Params(dense, {}), batch, RowInfo({}, {}, {}, {}))
    scores = model.logits(Params(dense, {}), batch)[0].tolist()
    each = []
    for row, own in zip(scores, sets, strict=True):
        if form == "bce":
            chances = [1 / (1 + math.exp(-score)) for score in row]
            logs = [math.log(p if c in own else 1 - p) for c, p in enumerate(chances)]
            each.append(-sum(logs) / 5)
        else:
            total = math.log(sum(math.exp(score) for score in row))
            each.append(sum(total - row[c] for c in own) / len(own))
    assert float(found) == pytest.approx((each[0] + each[1]) / 2, rel=1e-5)  # the third is padding


@pytest.mark.parametrize("form", ["bce", "softmax"])
def test_label_sets_are_learned_in_one_place(form: str) -> None:
    data = label_sets(n=400)
    asked = so.Experiment.of({"rounds": 40, "method": {"name": "centralized-sets", "loss_form": form}})
    result = so.run(asked, data=data)
    assert result.metrics["P@1"] > 75
    assert result.summary["bytes"]["up"] == result.summary["bytes"]["down"] == 0
    assert result.federation.data.clients == 1
