"""The arms of the tables at extreme shapes: what they share, and what is tried of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spreadout.config.experiment import Experiment
from spreadout.config.values import overlay

Made = dict[str, Any]


@dataclass(frozen=True)
class Set:
    """A shape at some size, and how many clients and examples a round of it has."""

    scale: float
    shown: float
    rounds: int
    per_round: int
    batch: int
    pooled: int  # examples of a step in one place
    held_out: float  # of the training instances, for validation

    def resized(self, scale: float | None, rounds: int | None) -> Set:
        """Another part of the shape, with so much smaller cohorts, for a quick look."""
        share = 1.0 if scale is None else scale / self.scale
        return replace(
            self,
            scale=scale or self.scale,
            rounds=rounds or self.rounds,
            per_round=max(8, round(self.per_round * share)),
            pooled=max(64, round(self.pooled * share)),
            held_out=min(0.2, self.held_out / share),
        )


# AmazonCat is whole. Of the others a part with the same means, law and noise: the most for which four
# points of every arm fit the time there is. `shown` is such that the softmax in one place is near the
# published one: it was set between two values tried at these sizes, by validation examples.
SETS = {
    "amazoncat-13k": Set(1.0, 0.28, 400, 2048, 16, 32_768, 0.005),
    "wikilshtc-325k": Set(0.25, 0.12, 500, 4096, 16, 16_384, 0.01),
    "amazon-670k": Set(0.2, 0.37, 600, 6144, 16, 12_288, 0.04),
}
BASE: Made = {
    "chosen": [],
    "data": {"targets": "each"},
    "model": {"encoder": "lookup", "width": 256, "hidden": [], "dim": 256, "pooling": "sqrtn"},
    "clients": {
        "selection": "by_size", "request_features": "seen", "local_steps": 1,
        "lr": 1.0, "input_lr": 1.0, "lr_decay": "cosine",
    },
    "server": {"optimizer": "adam", "lr": 0.02, "eps": 1e-8, "lr_decay": "cosine"},
    "eval": {
        "split": "validation", "metrics": ["P@1", "P@3", "P@5"], "keep": "best", "references": False,
    },
    "run": {"memory_gb": 8.0, "precision": "bf16", "checkpoint_every": 1_000_000},
}  # fmt: skip
BY_SIZE: Made = {"method": {"weighting": "examples"}}


@dataclass(frozen=True)
class Arm:
    """A label, what makes it, and the points that are tried, by their names."""

    label: str
    changes: Made
    points: Mapping[str, Made] = field(default_factory=dict)
    further: Mapping[str, Made] = field(default_factory=dict)  # tried where all arms have them

    @property
    def every(self) -> dict[str, Made]:
        return {**self.points, **self.further}


def _points(knob: str, values: Sequence[float], rates: Sequence[float]) -> dict[str, Made]:
    """Rates of the server by values of the arm's own knob."""
    section, name = knob.split(".")
    return {
        f"{rate:g}-{value:g}": {"server": {"lr": rate}, section: {name: value}}
        for value in values
        for rate in rates
    }


def _adam(rows: float) -> Made:
    """Class rows move by Adam too: at a rate of their own, as they are of unit length."""
    return {"classes": {"optimizer": "adam", "eps": 1e-8, "lr": rows}}


def _softmax(rows: float, **method: float) -> dict[str, Made]:
    """Two rates of the server by two scales."""
    return {
        f"{rate:g}-{scale:g}": {
            "method": {"scale": scale, **method},
            "server": {"lr": rate, "tables": _adam(rows)},
        }
        for scale in (10.0, 20.0)
        for rate in RATES
    }


def _softmax_by_rows(tried: Sequence[tuple[float, float, float]], **method: float) -> dict[str, Made]:
    """Rates of the server and of class rows, and scales."""
    return {
        f"{rate:g}-{rows:g}-{scale:g}": {
            "method": {"scale": scale, **method},
            "server": {"lr": rate, "tables": _adam(rows)},
        }
        for rate, rows, scale in tried
    }


def _spread(tried: Sequence[tuple[float, float]]) -> dict[str, Made]:
    """Rates of the server and of class rows."""
    return {
        f"{rate:g}-{rows:g}": {"server": {"lr": rate}, "clients": {"row_lr": rows}}
        for rate, rows in tried
    }


RATES = (0.005, 0.02)
# A client draws its negatives uniformly and is drawn by its size: without log n_c in its logits, rows of
# rare classes, which are negatives nearly always, would be pushed to one side to say how rare they are.
SAMPLED = _softmax(0.0005, logit_adjustment=1.0)
WHOLE = _softmax(0.002)
SPREAD = _spread(((0.01, 0.5), (0.03, 0.5), (0.005, 0.5), (0.03, 0.2)))
SPREAD_SAMPLED = {  # rates of the server and of class rows, strengths of its step
    f"{rate:g}-{rows:g}-{strength:g}": {
        "method": {"scale": 10.0, "logit_adjustment": 1.0, "strength": strength},
        "server": {"lr": rate, "tables": _adam(rows)},
    }
    for rate, rows, strength in (
        (0.02, 5e-4, 0.003),
        (0.02, 2e-3, 0.003),
        (0.02, 5e-4, 0.001),
        (0.02, 2e-3, 0.01),
    )
}
# Beyond the first four: past the corners of the grids, and with faster class rows. At Amazon-670K's
# shape, with four instances a class, FedAwS and FedAwS with ten rows were better with their faster ones.
FASTER = ((0.02, 0.005), (0.02, 0.01))
FURTHER: dict[str, dict[str, Made]] = {
    "softmax": _softmax_by_rows(
        ((0.02, 0.002, 40.0), (0.05, 0.002, 20.0), (0.02, 0.005, 20.0), (0.05, 0.005, 40.0))
    ),
    "fedaws": _spread(((0.03, 1.0), (0.01, 1.0), (0.05, 0.5), (0.05, 1.0))),
    "ten": _softmax_by_rows(
        [(*rates, scale) for scale in (10.0, 20.0) for rates in ((0.02, 0.002), (0.02, 0.005))],
        logit_adjustment=1.0,
    ),
    "fedaws-ten": {
        f"{name}-spread": overlay(point, {"method": {"strength": 0.003}})
        for name, point in _softmax_by_rows(
            [(*rates, scale) for scale in (10.0, 20.0) for rates in FASTER], logit_adjustment=1.0
        ).items()
    },
    "fedaws-sees-ten": _spread(((0.03, 1.0), (0.01, 1.0), (0.05, 0.5), (0.05, 1.0))),
    "baseline-2": _points("method.margin", (0.7, 0.9), (0.002, 0.01)),
    "baseline-1": _points("clients.row_lr", (0.02, 0.05), (0.02, 0.05)),
}
MINED: Made = {"spreadout_form": "topk", "k": 10, "candidates": 32_768}


def _sampled(rows: int) -> Made:
    method = {"name": "fedss", "negatives": rows, "correct": True, "merge": "sum"}
    return {"method": {**method, "weighting": "examples", "prior": "auto"}, "clients": {"row_lr": 1.0}}


def _spread_sampled(rows: int) -> Made:
    """FedAwS whose clients get some rows beside their own: FedSS, with spreadout on the server."""
    return overlay(_sampled(rows), {"method": {"name": "fedaws-softmax", **MINED}})


def _spread_seen(rows: int) -> Made:
    """FedAwS whose clients' encoders learn from some rows beside their own; the rows do not move."""
    return overlay({"method": {"name": "fedaws", "prior": "auto", "negatives": rows, **MINED}}, BY_SIZE)


ARMS = {
    "softmax": Arm(
        "Softmax in one place",
        {"method": {"name": "centralized", "prior": "auto"}, "clients": {"row_lr": 1.0}},
        WHOLE,
    ),
    "fedaws": Arm(
        "FedAwS", overlay({"method": {"name": "fedaws", "prior": "auto", **MINED}}, BY_SIZE), SPREAD
    ),
    "ten": Arm("Ten random rows (FedSS)", _sampled(10), SAMPLED),
    "fedaws-ten": Arm("FedAwS with ten random rows", _spread_sampled(10), SPREAD_SAMPLED),
    "fedaws-sees-ten": Arm("FedAwS whose encoder sees ten random rows", _spread_seen(10), SPREAD),
    "baseline-2": Arm(
        "Baseline-2",
        overlay({"method": {"name": "baseline-2", "prior": "auto"}}, BY_SIZE),
        _points("method.margin", (0.5, 0.9), RATES),
    ),
    "baseline-1": Arm(
        "Baseline-1",
        overlay({"method": {"name": "baseline-1", "prior": "auto"}}, BY_SIZE),
        _points("clients.row_lr", (0.1, 0.5), RATES),
    ),
}


SAME = {"0": "fedaws", "10": "ten", "all": "softmax"}  # arms of both tables, by their rows


ARMS = {name: replace(arm, further=FURTHER[name]) for name, arm in ARMS.items()}


def rows_arms() -> dict[str, Arm]:
    """By how many rows a client gets beside its own: none is FedAwS, all is a softmax over all."""
    return {
        "0": ARMS["fedaws"],
        **{
            str(rows): Arm(str(rows), _sampled(rows), ARMS["ten"].points) for rows in (1, 3, 10, 30, 100)
        },
        "all": ARMS["softmax"],
    }


PUSHED: dict[str, Made] = {  # from which classes: Eq. 8 with its k, and Eq. 7
    **{f"k-{k}": {"spreadout_form": "topk", "k": k} for k in (10, 100, 500)},
    "k-all": {"spreadout_form": "far"},
    "hinge": {"spreadout_form": "hinge"},
}


def neighbour_arms() -> dict[str, Arm]:
    """By how many neighbours a row is pushed from; a plain step, as the paper has it.

    It is pushed by the mean over its neighbours, so that a strength means the same for any k.
    """
    plain: Made = {"name": "fedaws", "prior": "auto", "spreadout_step": "plain", "reduction": "row"}
    points = {
        f"{strength:g}": {
            "method": {"strength": strength},
            "server": {"lr": 0.03},
            "clients": {"row_lr": 0.5},
        }
        for strength in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    }
    return {
        name: Arm(name, overlay({"method": {**plain, **form}}, BY_SIZE), points)
        for name, form in PUSHED.items()
    }


def experiment(
    shape: str, one: Set, arm: str, point: str, seed: int = 0, more: Sequence[str] = ()
) -> Experiment:
    """A point of an arm at a shape; more: changes for a quick look."""
    known = ARMS | rows_arms() | neighbour_arms()
    changes = known[arm].every[point]
    central = known[arm].changes["method"]["name"] == "centralized"
    of_set = {
        "name": f"{shape}-{arm}",
        "seed": seed,
        "rounds": one.rounds,
        "data": {
            "source": {"name": "synthetic", "shape": shape, "scale": one.scale, "shown": one.shown},
            "validation_fraction": one.held_out,
        },
        "clients": {"batch": one.pooled}
        if central
        else {"batch": one.batch, "per_round": one.per_round},
        "eval": {"every": max(1, one.rounds // 8)},
    }
    made = overlay(overlay(BASE, of_set), overlay(known[arm].changes, changes))
    if central:
        made["clients"] = {key: value for key, value in made["clients"].items() if key != "selection"}
    return Experiment.of(made, f"{shape} {arm}", more)
