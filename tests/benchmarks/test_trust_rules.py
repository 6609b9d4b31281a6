"""Rules of how far a model is trusted, on cosines that were kept: the default one is the package's own."""

from pathlib import Path

import numpy as np
import pytest
import torch

import spreadout as so
from benchmarks.defaults.cosines import PLAIN, cosines_of
from benchmarks.defaults.jobs import Job
from benchmarks.defaults.trust_rules import HIDDEN, RULES, scores
from benchmarks.quote.defaults import TRUST


def table(signal: float, place: Path) -> dict[str, str]:
    rng = np.random.default_rng(1)
    y = rng.choice(3, 300, p=(0.75, 0.2, 0.05))
    x = (rng.normal(size=(300, 6)) + signal * np.eye(6)[y]).astype(np.float32)
    np.savez(place / "table.npz", x=x, y=y)
    return {"source": "npz", "path": str(place / "table.npz")}


@pytest.mark.parametrize("method", sorted(TRUST))
@pytest.mark.parametrize("signal", [0.0, 1.0])
def test_the_default_rule_says_what_a_run_reaches(method: str, signal: float, tmp_path: Path) -> None:
    data, short = table(signal, tmp_path), "rounds=100"
    kept = cosines_of(Job("table", method, 0, (*PLAIN, short), data=data))
    found = so.run(Job("table", method, 0, (short,), data=data).experiment(), device="cpu")
    assert scores(kept, own=method in HIDDEN)[TRUST[method]] == pytest.approx(found.metrics["P@1"])


def test_cosines_that_know_what_is_frequent_are_not_given_a_prior_as_well() -> None:
    """Logits of a calibrated softmax: one example in five is of the rare class."""
    generator = torch.Generator().manual_seed(0)
    counts, kappa = torch.tensor([240.0, 60.0]), 12
    parts = {}
    for name, rows in (("validation", 40), ("test", 4000)):
        logits = torch.randn(rows, 2, generator=generator) * 1.5 + (counts / counts.sum()).log()
        drawn = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
        parts[name] = logits[None] / kappa
        parts[f"{name} labels"] = torch.nn.functional.one_hot(drawn, 2).bool()
    found = scores({**parts, "counts": counts}, own=True)
    assert set(RULES) < set(found)
    assert found["exponent 0.5"] > found["2 errors, else likeliest beyond 3.84"] + 2
    assert found["exponent 0.5"] > found["most frequent"]
