"""Whether the search's shortcuts matter: the configs tried last, with its steps and with the package's.

    python -m benchmarks.defaults.exact_steps results/defaults/search.json --data ~/mulan \
        --out results/defaults/exact-steps.json

`differences.py` says what the shortcuts are. FedALC, of which none was tried later, gets FedAwS's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from benchmarks.common import record
from benchmarks.common.command import command, parser_of
from benchmarks.defaults import sets
from benchmarks.defaults.emulation import Held, run
from benchmarks.defaults.runs import Values, as_config, from_file

SMALL = ("digits", "yeast", "scene", "medical")


def tried_first(made: dict[str, Any]) -> list[Values]:
    """The first of the configs tried after the search, of every method."""
    later = from_file(made["later"])
    found = {method: dict[str, Any]() for method in ("fedaws", "fedalc", "fedss")}
    for values in reversed(later.configs.values()):
        found[values["method"]] = values
    found["fedalc"] = found["fedalc"] or {**found["fedaws"], "method": "fedalc"}
    return list(found.values())


def both(values: Values, held: Held, seeds: range) -> dict[str, list[float]]:
    """P@1 of every seed, with the best τ."""
    ways = {"searched": False, "exact": True}
    return {
        way: [run(as_config(values, exact_steps=exact), held, seed).with_prior[0] for seed in seeds]
        for way, exact in ways.items()
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("search", type=Path, help="what the search wrote")
    parser.add_argument("--sets", nargs="+", default=list(SMALL), metavar="NAME")
    parser.add_argument("--data", nargs="+", type=Path, default=[], help="folders that hold the sets")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    torch.set_num_threads(1)
    configs, points = tried_first(record.read(a.search)), []
    for name in a.sets:
        held = sets.load(name, a.data, torch.device("cpu"))
        for values in configs:
            about = {"method": values["method"], "set": name}
            points.append({**about, **both(values, held, range(a.seeds))})
            print(points[-1], flush=True)
    record.write(a.out, {"seeds": a.seeds, "points": points})


if __name__ == "__main__":
    command(main)
