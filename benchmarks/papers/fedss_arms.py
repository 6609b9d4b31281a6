"""The arms of FedSS's studies on Omniglot, each with the settings it may choose from.

- `drawings-5`, `drawings-20`: five or twenty drawings of a character to train on, both merges.
- `matched`: NegOnly with as many rivals as FedSS has (§4.4, Fig. 6); FedSS itself is in `drawings-20`.
- `mobilenet`: the encoder of the paper, MobileNetV3-Large with GroupNorm, at a tenth of the classes.

Settings are chosen on the last background alphabets, whose characters are not trained on.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.common.paths import CONFIGS
from benchmarks.papers.two_stage import Candidate

BASE = CONFIGS / "fedss" / "omniglot-base.toml"
STUDIES = ("drawings-20", "drawings-5", "matched", "mobilenet")
SHARES = {3: 29, 4: 39, 6: 58, 10: 96}  # percent of the 964 classes → rows a client requests
MERGES = {"mean": "weighted-mean", "sum": "sum"}  # over the holders of a row, or Σ n_k/n Δ_k literally
# A row's step under "sum" is a small part of its holders' mean: its rates lie above the other's.
ROW_LR: Mapping[str, Sequence[float]] = {
    "weighted-mean": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
    "sum": [0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
}
LONG: dict[str, Any] = {"rounds": 3000, "eval": {"every": 100, "best_by": ["MAP@10"], "patience": 6}}
SCALE = 10.0


def arms(study: str) -> dict[str, Candidate]:
    """The arms of a study; all have equally many row rates to choose from."""
    found: dict[str, Candidate] = {}
    if study == "mobilenet":
        full = _arm("full-sum", "FullSoftmax", "sum", {"name": "fedavg"})
        found = _sampled(10, "sum", "sampled") | _sampled(10, "sum", "negatives") | full
        return {**found, "centralized": _in_one_place()}
    if study == "matched":
        for merge, share in itertools.product(MERGES, SHARES):
            found |= _sampled(share, merge, "negatives", matched=True)
        return found
    for merge in MERGES:
        for share in SHARES:
            found |= _sampled(share, merge, "sampled") | _sampled(share, merge, "negatives")
        found |= _arm(f"posonly-{merge}", "PosOnly", merge, {"name": "fedss", "loss_form": "positives"})
        found |= _arm(f"full-{merge}", "FullSoftmax", merge, {"name": "fedavg"})
        spread = {"name": "fedaws-softmax", "strength": 0.3, "spreadout_step": "plain", "prior": 0.0}
        found |= _arm(f"fedaws-softmax-{merge}", "FedAwS with softmax", merge, spread)
    return {**found, "centralized": _in_one_place()}


def changes_of(study: str) -> dict[str, Any]:
    """What a study changes of all arms: the drawings of a character to train on, or the encoder."""
    if study == "mobilenet":
        return {"model": {"encoder": "mobilenet_v3_large", "dim": 64}, "rounds": 1000}
    if study != "drawings-5":
        return {}
    return {"data": {"source": {"drawings": 5}, "partition": {"examples": 100, "classes": 20}}}


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
