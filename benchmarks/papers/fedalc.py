"""One label a client (An et al. 2024, Tables V and VI, Fig. 6) on real and made-up sets: tune and run.

    python -m benchmarks.papers.fedalc --sets bibtex delicious --jobs 12
    python -m benchmarks.papers.fedalc --sets eurlex-shape --jobs 12    # made up, of EURLex's shape
    python -m benchmarks.papers.fedalc --only oracle-bce oracle-softmax --jobs 12    # the oracles again
    python -m benchmarks.papers.fedalc --linear --points 3    # the default network for words, on a CPU
    python -m benchmarks.papers.fedalc --bytes     # Table IV, from the ledger in the result file

λ, rates, the clients' weights and the rounds of every arm are chosen on a fifth of the training
instances, ten points an arm, or as --points says. Writes results/fedalc/SET-tuning.json and SET.json,
with --linear SET-linear-tuning.json and SET-linear.json. The study of pair weights is `correlations.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.common.record import read
from benchmarks.papers.correlations import (
    LINEAR,
    MINED_HIGHER,
    MORE_CLASSES,
    PLAIN,
    SCALED,
    SETS,
    base_of,
    middle_of,
    on_ladder,
    study_of,
)
from benchmarks.papers.side_by_side import add_running, running_of
from benchmarks.papers.two_stage import Candidate, TwoStage, add_extend, choose_and_run, done_before
from spreadout.config.values import changes_of, overlay, read_toml
from spreadout.core.errors import UserError

BASE = CONFIGS / "fedalc" / "bibtex-base.toml"
HINGE = {"spreadout_margin": 1.0}
MINED: dict[str, Any] = {"spreadout_form": "topk", "k": 5}
LONG = {"rounds": 500}
# Clients weigh 1/C in Algorithm 1; n_i/n is Eq. 5 of FedAwS.
WEIGHTING = {"method.weighting": ["uniform", "examples"]}
RATES = {"clients.lr": [0.1, 0.3, 1.0, 3.0, 10.0]}  # where there is no λ to choose
METRICS = read_toml(str(BASE))["eval"]["metrics"]
BY_BEST = [name for name in METRICS if name != "mAP"]  # of networks that name the best classes only
# In one place, whole label sets: mini-batches of Adam, about an epoch of Bibtex a round.
SETS_IN_ONE_PLACE: dict[str, Any] = {
    "rounds": 40,
    "model": {"encoder": "mlp", "hidden": [512, 1024, 1024]},
    "clients": {"optimizer": "adam", "batch": 128, "local_steps": 38, "beta2": 0.999, "eps": 1e-8},
    "server": {"optimizer": "sgd", "lr": 1.0},
    "eval": {"every": 2, "metrics": BY_BEST},
}
SETS_GRID = {
    "clients.lr": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2],
    "clients.input_dropout": [0.3, 0.6],
}


def _oracle(label: str, loss: str) -> Candidate:
    changes = {**SETS_IN_ONE_PLACE, "method": {"name": "centralized-sets", "loss_form": loss}}
    return Candidate(label, changes, SETS_GRID)


ARMS = {
    # With its rows fixed at random, as the paper compares it, FLAG is FedAvg-fixed weighed by examples.
    "flag": Candidate("FLAG", {"method": {"name": "flag"}}, {**RATES, **WEIGHTING}),
    "fedmlh": Candidate(
        "FedMLH, R = 4",
        # Its networks take features, so the lookup of 512 is their first layer.
        {
            "method": {"name": "fedmlh", "hash_tables": 4},
            "model": {"encoder": "mlp", "hidden": [512, 1024, 1024]},
            "eval": {"metrics": BY_BEST},
        },
        {"method.buckets": [20, 40, 60, 80, 120], **WEIGHTING},
    ),
    "fedmlh-fixed": Candidate(
        "FedMLH, rows fixed",
        {**LONG, "method": {"name": "baseline-2", "hash_tables": 4}},
        {"method.buckets": [20, 40, 60, 80, 120], **WEIGHTING},
    ),
    "fedavg": Candidate("FedAvg", {"method": {"name": "baseline-1"}}, {**RATES, **WEIGHTING}),
    "fedaws": Candidate(
        "FedAwS", {"method": {"name": "fedaws", **HINGE}}, {"method.strength": PLAIN, **WEIGHTING}
    ),
    "fedalc": Candidate(
        "FedALC", {"method": {"name": "fedalc", **HINGE}}, {"method.strength": SCALED, **WEIGHTING}
    ),
    "fedaws-mined": Candidate(
        "FedAwS, K = 5",
        {"method": {"name": "fedaws", **MINED}},
        {"method.strength": PLAIN, **WEIGHTING},
    ),
    "fedalc-mined": Candidate(
        "FedALC, K = 5",
        {"method": {"name": "fedalc", **MINED, **HINGE, "mined_form": "hinge"}},
        {"method.strength": SCALED, **WEIGHTING},
    ),
    "fedavg-fixed": Candidate(
        "FedAvg-fixed", {**LONG, "method": {"name": "baseline-2"}}, {**RATES, **WEIGHTING}
    ),
    "fedalc-fixed": Candidate(
        "FedALC-fixed",
        {**LONG, "method": {"name": "fedalc-fixed"}},
        {"method.pull": [0.03, 0.1, 0.3, 1.0, 3.0], **WEIGHTING},
    ),
    "softmax": Candidate(
        "Softmax oracle (centralised)",
        {"method": {"name": "centralized", "prior": 0.0}, "clients": {"row_lr": 1.0}},
        {"method.scale": [5.0, 10.0, 15.0, 20.0, 30.0], "clients.input_dropout": [0.3, 0.6]},
    ),
    "oracle-bce": _oracle("Label sets in one place, BCE", "bce"),
    "oracle-softmax": _oracle("Label sets in one place, softmax", "softmax"),
}


# Of the linear network, all arms have the base's rounds. The server's Adam takes the clients' rate out
# of the encoder's step, so where there is no λ, the rate of the rows is chosen; where they are fixed,
# the server's.
FLAT: dict[str, Any] = {"encoder": "mlp", "hidden": []}
ROW_RATES = {"clients.row_lr": [0.01, 0.03, 0.1, 0.3, 1.0]}
SERVER_RATES = {"server.lr": [3e-4, 1e-3, 3e-3, 1e-2, 3e-2]}
RIDGE_SETTINGS: dict[str, Any] = {
    "method": {"name": "fedaws", **HINGE, "strength": 0.1},
    "clients": {"batch": 32, "row_lr": 0.03, "input_dropout": 0.4},
    "server": {"lr": 1e-3},
}
LINEAR_ARMS = {
    **{arm: ARMS[arm] for arm in ("fedaws", "fedalc", "fedaws-mined")},
    "fedalc-mined": replace(
        ARMS["fedalc-mined"], grid={"method.strength": on_ladder(SCALED, MINED_HIGHER), **WEIGHTING}
    ),
    "flag": replace(ARMS["flag"], grid={**ROW_RATES, **WEIGHTING}),
    "fedavg": replace(ARMS["fedavg"], grid={**ROW_RATES, **WEIGHTING}),
    "fedmlh": replace(
        ARMS["fedmlh"],
        changes=overlay(ARMS["fedmlh"].changes, {"model": FLAT, "method": {"prior": 0.0}}),
    ),
    "fedmlh-fixed": ARMS["fedmlh-fixed"],
    "fedavg-fixed": replace(ARMS["fedavg-fixed"], grid={**SERVER_RATES, **WEIGHTING}),
    "fedalc-fixed": ARMS["fedalc-fixed"],
    # Beside the paper's arms, a start in closed form, and what its settings do without it. Rates and
    # dropout by trials on other fifths of Bibtex's training part.
    "fedaws-ridge": Candidate(
        "FedAwS from ridge regression",
        overlay(RIDGE_SETTINGS, {"method": {"start": "ridge"}}),
        {"method.prior": [0.0, 0.01, 0.02, 0.03, 0.05], **WEIGHTING},
    ),
    "fedaws-no-ridge": Candidate(
        "FedAwS, its settings, random start",
        RIDGE_SETTINGS,
        {"method.prior": [0.0, 0.01, 0.02, 0.03, 0.05], **WEIGHTING},
    ),
    **{
        arm: replace(
            ARMS[arm],
            changes=overlay(
                overlay(SETS_IN_ONE_PLACE, {"method": ARMS[arm].changes["method"]}),
                {"model": FLAT, "method": {"prior": 0.0}},
            ),
            grid={**SETS_GRID, "clients.lr": [3e-4, 1e-3, 3e-3, 1e-2, 3e-2]},
        )
        for arm in ("softmax", "oracle-bce", "oracle-softmax")
    },
}
# In one place with a hidden layer, so many units wide, an epoch a round; how many of them is chosen.
HIDDEN = 128  # as defaults have it
DEEP = {"oracle-bce-deep": [15, 40], "oracle-softmax-deep": [8, 15]}  # a softmax overfits sooner
DEEP_GRID = {"clients.lr": [1e-3, 3e-3], "clients.input_dropout": [0.2, 0.5]}
MANY_BUCKETS = [60, 120, 250, 400, 600]  # of a thousand classes
DIMS = {"bibtex": 160}  # a right angle between any two classes needs as many as those; elsewhere 256
NEIGHBOURS = {"eurlex-shape": 10}  # K of the paper; elsewhere 5


def linear_arms_of(name: str) -> dict[str, Candidate]:
    """The arms of the linear network."""
    found = {
        arm: replace(one, changes={k: v for k, v in one.changes.items() if k != "rounds" or v < 500})
        for arm, one in LINEAR_ARMS.items()
    }
    some = on_ladder(PLAIN, MORE_CLASSES.get(name, 0))
    found["fedaws"] = replace(found["fedaws"], grid={**found["fedaws"].grid, "method.strength": some})
    if name == "delicious":  # a third of all pairs of its labels meet: a step takes 0.3 s of a core
        shorter = overlay(found["fedalc-fixed"].changes, {"method": {"table_steps": 100}})
        found["fedalc-fixed"] = replace(found["fedalc-fixed"], changes=shorter)
    if name == "eurlex-shape":  # Delicious, with as many classes, chose the largest of the lower ones
        higher = {**found["fedalc"].grid, "method.strength": on_ladder(SCALED, 1)}
        found["fedalc"] = replace(found["fedalc"], grid=higher)
        once = overlay(found["fedavg"].changes, {"eval": {"references": True}})  # once is enough
        found["fedavg"] = replace(found["fedavg"], changes=once)
    if name != "bibtex":
        for arm in ("fedmlh", "fedmlh-fixed"):
            found[arm] = replace(found[arm], grid={**found[arm].grid, "method.buckets": MANY_BUCKETS})
    found |= {arm: _deep(found[arm.removesuffix("-deep")], epochs) for arm, epochs in DEEP.items()}
    found |= _mined(found, NEIGHBOURS.get(name, MINED["k"]))
    model = {"model": {"dim": DIMS.get(name, 256)}}
    for arm in ("fedaws-ridge", "fedaws-no-ridge"):
        found[arm] = replace(found[arm], changes=overlay(found[arm].changes, model))
    return found


def _deep(linear: Candidate, epochs: list[int]) -> Candidate:
    """The same model in one place with a hidden layer."""
    deep = {"model": {"hidden": [HIDDEN]}, "clients": {"local_epochs": 1}, "eval": {"every": 20}}
    changes = overlay(linear.changes, deep)
    del changes["rounds"]
    label = f"{linear.label}, a hidden layer of {HIDDEN}"
    return Candidate(label, changes, {"rounds": epochs, **DEEP_GRID})


def fewer(arms: Mapping[str, Candidate], points: int) -> dict[str, Candidate]:
    """The same arms with so many values of what is chosen first, those in the middle."""
    found = {}
    for arm, one in arms.items():
        first, *rest = one.grid
        some = {first: middle_of(one.grid[first], points), **{key: one.grid[key] for key in rest}}
        found[arm] = replace(one, grid=some)
    return found


def arms_of(name: str) -> dict[str, Candidate]:
    """The arms on a set, mined ones with as many neighbours as the paper has there."""
    return {**ARMS, **_mined(ARMS, NEIGHBOURS.get(name, MINED["k"]))}


def _mined(arms: Mapping[str, Candidate], k: int) -> dict[str, Candidate]:
    """Those that mine, with so many neighbours."""
    return {
        arm: replace(
            one,
            label=one.label.replace(f"K = {MINED['k']}", f"K = {k}"),
            changes=overlay(one.changes, {"method": {"k": k}}),
        )
        for arm, one in arms.items()
        if one.changes["method"].get("spreadout_form") == "topk"
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["bibtex"])
    parser.add_argument("--linear", action="store_true", help=LINEAR)
    parser.add_argument("--only", nargs="+", choices=(*ARMS, *LINEAR_ARMS, *DEEP), metavar="ARM")
    parser.add_argument("--points", type=int, choices=(1, 3, 5), default=5, help="half of an arm's")
    parser.add_argument("--out", type=Path, default=RESULTS / "fedalc")
    parser.add_argument("--seeds", type=int, default=3)
    add_running(parser)
    add_extend(parser)
    parser.add_argument("--rounds", type=int, help="instead of the config's, for a quick look")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="of every arm")
    parser.add_argument("--bytes", action="store_true", help="only print what was sent, by whom")
    a = parser.parse_args()
    if a.bytes:
        for name in a.sets:
            print_bytes(a.out / f"{study_of(name, a.linear)}.json")
        return
    plans = []
    for name in a.sets:
        arms = fewer(linear_arms_of(name) if a.linear else arms_of(name), a.points)
        only = [arm for arm in a.only or arms if arm in arms]  # in the order in which they are asked for
        plans.append(
            TwoStage(
                study_of(name, a.linear),
                base_of(name, a.linear),
                {arm: arms[arm] for arm in only},
                seeds=a.seeds,
                whole=a.linear,
                changes=overlay(changes_of(a.set), {"rounds": a.rounds} if a.rounds else {}),
                into=a.extend or len(only) < len(arms),
                done=done_before(a.out / f"{study_of(name, a.linear)}.json", a),
            )
        )
    with running_of(a) as running:
        choose_and_run(plans, a.out, running)


def print_bytes(path: Path) -> None:
    """Table IV: what the server and what the clients send in a round."""
    print(f"{'MiB a round of all clients':32}{'server':>10}{'clients':>10}{'once, up':>10}")
    if not path.is_file():
        raise UserError(f"{path}: is not there; run without --bytes first")
    for label, moved in a_round_of_all(read(path)):
        print(f"{label:32}", *(f"{moved[way]:9.2f}" for way in ("down", "up", "once_up")))


def a_round_of_all(made: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """Each federated arm's MiB in an average round, and of what was sent only once."""
    for arm in made["variants"]:
        moved, rounds = arm["bytes"], made["configs"][arm["name"]]["rounds"]
        if moved["participations"]:
            each = {way: (moved[way] - moved[f"once_{way}"]) / rounds for way in ("down", "up")}
            each["once_up"] = moved["once_up"]
            yield arm["label"], {way: value / 2**20 for way, value in each.items()}


if __name__ == "__main__":
    command(main)
