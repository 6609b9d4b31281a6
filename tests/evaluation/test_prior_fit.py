"""τ by likelihood, and what the prior gains on frequent and on rare classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from test_prior import config, skewed

import spreadout as so
from spreadout.data.load import load_data
from spreadout.evaluation import prior
from spreadout.evaluation.embed import class_vectors, embed
from spreadout.evaluation.frequencies import Frequencies
from spreadout.evaluation.prior_gain import frequent_count
from spreadout.report.prior_view import prior_table
from spreadout.runs.arms import arms_of


def test_kappa_is_where_the_likelihood_is_largest() -> None:
    """Against trying many: log softmax in doubles, label by label, some examples with two."""
    draw = torch.Generator().manual_seed(0)
    scores = torch.rand(60, 9, generator=draw) * 2 - 1
    owner = torch.arange(90) % 60
    label = (scores + 0.3 * torch.randn(60, 9, generator=draw)).argsort(1, descending=True)
    label = torch.cat([label[:, 0], label[:30, 1]])
    bias = torch.log(torch.arange(1.0, 10.0))
    tried = torch.linspace(2, 40, 1901, dtype=torch.float64)
    likely = [
        float((k * scores.double() + bias).log_softmax(1)[owner, label].sum()) for k in tried.tolist()
    ]
    best = float(tried[int(np.argmax(likely))])
    assert prior.steepness(scores, owner, label, bias) == pytest.approx(best, abs=0.02)
    assert 2.5 < best < 39  # within the bounds, or it would show nothing


def test_where_scores_say_nothing_kappa_stays_within_its_bounds() -> None:
    scores = torch.zeros(4, 3)
    pairs = torch.arange(4), torch.tensor([0, 1, 2, 0])
    found = prior.steepness(scores, *pairs, torch.zeros(3))
    assert prior.FLATTEST <= found <= prior.STEEPEST
    wrong = torch.eye(3)  # the lower a class scores, the more often it is right
    assert prior.steepness(wrong, torch.arange(3), torch.tensor([1, 2, 0]), torch.zeros(3)) < 2.1


def test_a_run_ranks_with_the_likely_tau_and_it_helps() -> None:
    data = skewed()
    run = so.run(config(prior="likelihood"), data=data)
    without = so.run(config(prior=0), data=data)
    tau = run.history[-1]["prior"]
    assert run.metrics["P@1"] > without.metrics["P@1"] + 5
    held, state, model = data.validation, run.state, run.federation.model
    assert held is not None
    cosine = embed(model, state, held, torch.arange(len(held))) @ class_vectors(model, state).T
    n = state.scoring["counts"]

    def likelihood(tau: float) -> float:
        logits = (cosine / tau + torch.log(n)).double()
        return float(logits.log_softmax(1)[torch.arange(len(held)), held.labels.values].sum())

    assert likelihood(tau) > max(likelihood(1.05 * tau), likelihood(tau / 1.05))
    alone = so.Splits("alone", data.train, data.test, None)
    assert so.run(config(prior="likelihood"), data=alone).history[-1]["prior"] == prior.UNKNOWN


def test_a_summary_says_what_the_prior_gains_and_for_whom(tmp_path: Path) -> None:
    """Against runs that have it, and have it not, with the groups written out."""
    data = skewed()
    so.run(config(prior=0.3), data=data, out=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    gain = summary["prior"]
    assert gain["weight"] == 0.3
    assert gain["examples"] == 800
    assert gain["frequent_classes"] == 2  # the first class has a little less than half of all
    assert gain["with_prior"]["P@1"] == pytest.approx(summary["metrics"]["P@1"])
    off = so.run(config(prior=0), data=data)
    assert gain["without"]["P@1"] == pytest.approx(off.metrics["P@1"])
    assert "prior" not in off.history[-1]
    assert off.summary["prior"] is None
    for scores in (gain["with_prior"], gain["without"]):
        parts = scores["P@1 frequent"] + scores["P@1 infrequent"]
        assert parts == pytest.approx(scores["P@1"])
    assert gain["with_prior"]["P@1 frequent"] > gain["without"]["P@1 frequent"]
    assert gain["with_prior"]["P@1 infrequent"] < gain["without"]["P@1 infrequent"]  # what it costs
    page = prior_table(arms_of(tmp_path / "run"))
    assert f"{gain['without']['P@1']:.1f} → <b>{gain['with_prior']['P@1']:.1f}</b>" in page
    so.run(config(prior=0), data=data, out=tmp_path / "off")
    assert prior_table(arms_of(tmp_path / "off")) == ""


def test_frequent_classes_have_half_of_all_labels() -> None:
    counts = torch.tensor([1.0, 8, 2, 4, 0, 1])
    many = frequent_count(counts)
    assert many == 1
    assert Frequencies(counts, 16, many).is_frequent.tolist() == [
        False,
        True,
        False,
        False,
        False,
        False,
    ]
    assert frequent_count(torch.ones(10)) == 5


def test_a_closed_form_for_positives_alone_is_far_off() -> None:
    """κ ≈ R (d − R²) / (1 − R²) takes examples to scatter in all d dimensions; they do in few."""
    experiment = so.Experiment.load("digits-fedaws", ["rounds=30"])
    run = so.run(experiment, device="cpu")
    model, state = run.federation.model, run.state
    held = load_data(experiment.data, experiment.seed).test
    rows = class_vectors(model, state)
    cosine = (embed(model, state, held, torch.arange(len(held))) * rows[held.labels.values]).sum(1)
    near, dim = float(cosine.mean()), rows.shape[1]
    closed = near * (dim - near**2) / (1 - near**2)
    counts = torch.bincount(held.labels.values, minlength=10).float()
    assert closed > 3 / prior.most_likely(model, state, counts, held)
