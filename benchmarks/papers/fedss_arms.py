"""The arms of FedSS's studies on Omniglot, each with the settings it may choose from.

- `drawings-5`, `drawings-20`: five or twenty drawings of a character to train on, both merges.
- `matched`: NegOnly with as many rivals as FedSS has (§4.4, Fig. 6); FedSS itself is in `drawings-20`.
- `reduced-5`, `reduced-20`: the arms that the question needs (is a tenth of the classes enough, under
  either merge, and is it the correction?), at a fraction of the cost: 20x20 pixels, a client's 100
  drawings in four batches of 25, four row rates compared after 400 rounds, then 800 on all classes.
- `mobilenet`: the encoder of the paper, MobileNetV3-Large with GroupNorm, at a tenth of the classes.
- `mobilenet-one-step`: the same encoder where a client takes one step a round on all its 100 drawings,
  so that the encoder needs no copies; two rates of the encoder by two of rows, 200 rounds, then 800.

Settings are chosen on the last background alphabets, whose characters are not trained on.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.common.paths import CONFIGS
from benchmarks.papers.two_stage import Candidate

BASE = CONFIGS / "fedss" / "omniglot-base.toml"
REDUCED = ("reduced-20", "reduced-5")
ONE_STEP = "mobilenet-one-step"
STUDIES = ("drawings-20", "drawings-5", "matched", "mobilenet", *REDUCED, ONE_STEP)
SHARES = {3: 29, 4: 39, 6: 58, 10: 96}  # percent of the 964 classes → rows a client requests
MERGES = {"mean": "weighted-mean", "sum": "sum"}  # over the holders of a row, or Σ n_k/n Δ_k literally
# A row's step under "sum" is a small part of its holders' mean: its rates lie above the other's.
ROW_LR: Mapping[str, Sequence[float]] = {
    "weighted-mean": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
    "sum": [0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
    "full": [0.03, 0.1, 0.3, 1.0, 3.0, 10.0],  # all hold all rows: both merges are one
}
# Around what was best in results/fedss/tuning.json, and beyond its edge. Without the correction, rows
# that few hold must move less: at 1 NegOnly fails under "sum".
FEW_ROW_LR: Mapping[str, Sequence[float]] = {
    "full": [0.1, 0.3, 1.0, 3.0],
    "fedss-10-sum": [0.3, 1.0, 3.0, 10.0],
    "fedss-6-sum": [0.3, 1.0, 3.0, 10.0],
    "fedss-10-mean": [0.01, 0.02, 0.04, 0.08],
    "negonly-10-sum": [0.03, 0.1, 0.3, 1.0],
    "negonly-matched-10-sum": [0.03, 0.1, 0.3, 1.0],
}
# One step on all of a client's drawings in place of four on a quarter each: about four times the rate.
ONE_STEP_GRID: Mapping[str, Mapping[str, Sequence[float]]] = {
    name: {"clients.lr": [0.03, 0.1], "clients.row_lr": rates}
    for name, rates in {
        "full": [1.0, 4.0],
        "fedss-10-sum": [1.0, 4.0],
        "negonly-10-sum": [0.3, 1.0],
    }.items()
}
SHORT: dict[str, Any] = {
    "eval": {"every": 100, "best_by": ["MAP@10"], "references": False},
}
LONG: dict[str, Any] = {"rounds": 3000, "eval": {"every": 100, "best_by": ["MAP@10"], "patience": 6}}
SCALE = 10.0


def arms(study: str) -> dict[str, Candidate]:
    """The arms of a study; all have equally many row rates to choose from."""
    found: dict[str, Candidate] = {}
    full = Candidate(
        "FullSoftmax",
        {**LONG, "method": {"name": "fedavg", "scale": SCALE}},
        {"clients.row_lr": ROW_LR["full"]},
    )
    if study in REDUCED:
        found = {"full": full} | _sampled(10, "sum", "sampled") | _sampled(10, "mean", "sampled")
        found |= _sampled(10, "sum", "negatives", matched=True) | _sampled(10, "sum", "negatives")
        found |= _sampled(6, "sum", "sampled")
        return {name: _reduced(arm, {"clients.row_lr": FEW_ROW_LR[name]}) for name, arm in found.items()}
    if study == ONE_STEP:
        found = {"full": full} | _sampled(10, "sum", "sampled") | _sampled(10, "sum", "negatives")
        return {name: _reduced(arm, ONE_STEP_GRID[name], 200) for name, arm in found.items()}
    if study == "mobilenet":
        found = _sampled(10, "sum", "sampled") | _sampled(10, "sum", "negatives")
        return {**found, "full": full, "centralized": _in_one_place()}
    if study == "matched":
        for merge, share in itertools.product(MERGES, SHARES):
            found |= _sampled(share, merge, "negatives", matched=True)
        return found
    for merge in MERGES:
        for share in SHARES:
            found |= _sampled(share, merge, "sampled") | _sampled(share, merge, "negatives")
        found |= _arm(f"posonly-{merge}", "PosOnly", merge, {"name": "fedss", "loss_form": "positives"})
        spread = {"name": "fedaws-softmax", "strength": 0.3, "spreadout_step": "plain", "prior": 0.0}
        found |= _arm(f"fedaws-softmax-{merge}", "FedAwS with softmax", merge, spread)
    return {**found, "full": full, "centralized": _in_one_place()}


def _reduced(arm: Candidate, grid: Mapping[str, Sequence[float]], rounds: int = 400) -> Candidate:
    """The same with rounds of its own and few rates."""
    return Candidate(arm.label, {**arm.changes, **SHORT, "rounds": rounds}, grid)


def rounds_of(study: str) -> int | None:
    """Of the second stage; None: as many as were best."""
    return {ONE_STEP: 800, **dict.fromkeys(REDUCED, 800)}.get(study)


def changes_of(study: str) -> dict[str, Any]:
    """What a study changes of all arms: the drawings of a character to train on, or the encoder."""
    if study == "mobilenet":
        return {"model": {"encoder": "mobilenet_v3_large", "dim": 64}, "rounds": 1000}
    if study == ONE_STEP:
        return {"model": {"encoder": "mobilenet_v3_large", "dim": 64}, "clients": {"batch": 100}}
    source: dict[str, Any] = {"drawings": 5} if study.endswith("-5") else {}
    if study in REDUCED:
        return {"data": {"source": {**source, "size": 20}}, "clients": {"batch": 25}}
    return {"data": {"source": source}} if source else {}


def _in_one_place() -> Candidate:
    steps = {"local_steps": 4, "batch": 1024}  # as many steps as clients take
    method = {"name": "centralized", "scale": SCALE}
    return Candidate(
        "Centralized",
        {**LONG, "method": method, "clients": steps},
        {"clients.row_lr": ROW_LR["weighted-mean"]},
    )


_NAMES = {"sampled": "FedSS", "negatives": "NegOnly"}


def _sampled(share: int, merge: str, form: str, *, matched: bool = False) -> dict[str, Candidate]:
    method = {"name": "fedss", "sampled_rows": SHARES[share], "loss_form": form}
    said = f"{_NAMES[form]}{', matched' if matched else ''}, {share} %"
    name = f"{_NAMES[form].lower()}{'-matched' if matched else ''}-{share}-{merge}"
    return _arm(name, said, merge, {**method, **({"matched": True} if matched else {})})


def _arm(name: str, label: str, merge: str, method: Mapping[str, Any]) -> dict[str, Candidate]:
    chosen = {**method, "merge": MERGES[merge], "scale": SCALE}
    said = f"{label}, {'mean of holders' if merge == 'mean' else 'literal sum'}"
    return {name: Candidate(said, {**LONG, "method": chosen}, {"clients.row_lr": ROW_LR[MERGES[merge]]})}
