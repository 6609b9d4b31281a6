"""The arms of FedSS's studies on Omniglot, each with the settings it may choose from.

- `drawings-5`, `drawings-20`: five or twenty drawings of a character to train on, both merges.
- `matched`: FedSS beside NegOnly with as many rivals (§4.4, Fig. 6).

Settings are chosen on the last background alphabets, whose characters are not trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.common.paths import CONFIGS
from benchmarks.papers.two_stage import Candidate

BASE = CONFIGS / "fedss" / "omniglot-base.toml"
STUDIES = ("drawings-20", "drawings-5", "matched")
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
    """The arms of a study; all have six row rates to choose from."""
    found: dict[str, Candidate] = {}
    if study == "matched":
        for share in SHARES:
            found |= _sampled(share, "mean", "sampled") | _sampled(share, "mean", "negatives")
            found |= _sampled(share, "mean", "negatives", matched=True)
        return found
    for merge in MERGES:
        for share in SHARES:
            found |= _sampled(share, merge, "sampled") | _sampled(share, merge, "negatives")
        found |= _arm(f"posonly-{merge}", "PosOnly", merge, {"name": "fedss", "loss_form": "positives"})
        found |= _arm(f"full-{merge}", "FullSoftmax", merge, {"name": "fedavg"})
        spread = {"name": "fedaws-softmax", "strength": 0.3, "spreadout_step": "plain", "prior": 0.0}
        found |= _arm(f"fedaws-softmax-{merge}", "FedAwS with softmax", merge, spread)
    found["centralized"] = Candidate(
        "Centralized",
        {**LONG, "method": {"name": "centralized", "scale": SCALE}, "clients": _IN_ONE_PLACE},
        {"clients.row_lr": ROW_LR["weighted-mean"]},
    )
    return found


def data_of(study: str) -> dict[str, Any]:
    """What a study changes of the data: how many drawings of a character there are to train on."""
    if study != "drawings-5":
        return {}
    return {"data": {"source": {"drawings": 5}, "partition": {"examples": 100, "classes": 20}}}


_IN_ONE_PLACE = {"local_steps": 4, "batch": 1024}  # as many steps as clients take
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
