"""Run a comparison and keep its small result file: table, resolved configs, commit, hardware.

python benchmarks/suite.py digits-demo --out results/digits/demo.json
python benchmarks/suite.py configs/fedaws/bibtex.toml --out results/bibtex/fedaws.json
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from record import write

from spreadout import metrics
from spreadout.comparison import Suite, as_json, compare, shown
from spreadout.data import splits
from spreadout.experiment import Experiment
from spreadout.report.page import write_page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("suite")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--report", type=Path, help="also write the HTML page here")
    a = parser.parse_args()
    suite = Suite.load([a.suite], a.seeds, a.set)
    with tempfile.TemporaryDirectory() as folder:
        arms = compare(suite, Path(folder) / "runs", device=a.device)
    if a.report:
        write_page(arms, a.report, title=suite.name)
    configs = {
        name: variant.model_dump(mode="json", exclude_none=True)
        for name, variant in suite.variants.items()
    }
    table = [as_json(arm) for arm in arms]
    for row in table:
        print(f"{row['label']:36}", *(" ".join(shown(score)) for score in row["metrics"].values()))
    made = {"suite": suite.name, "seeds": list(suite.seeds), "variants": table}
    write(a.out, {**made, "constant": constant(next(iter(suite.variants.values()))), "configs": configs})


def constant(experiment: Experiment) -> dict[str, float]:
    """What always naming the most frequent training labels would score: the floor of any model."""
    data = splits.load_data(experiment.data, experiment.seed)
    often = torch.bincount(
        data.train.columns["y"].take(torch.arange(data.train.examples)), minlength=data.train.classes
    )
    ranking = often.argsort(descending=True).expand(len(data.test), -1)
    return {name: metrics.compute(name, ranking, data.test.labels) for name in experiment.eval.metrics}


if __name__ == "__main__":
    main()
