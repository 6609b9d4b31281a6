"""Put the numbers of result files into the documents that quote them.

    python -m benchmarks.quote           # rewrites the marked tables
    python -m benchmarks.quote --check   # says which documents differ from the files; exit 1 if any

A document marks the place: `<!-- results:NAME -->` … `<!-- /results:NAME -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial

from benchmarks.common.command import parser_of
from benchmarks.common.paths import ROOT
from benchmarks.defaults.tails import RULES
from benchmarks.quote import (
    attacks,
    chosen_on,
    cifar,
    columns,
    defaults,
    drift,
    dual_encoder,
    extreme,
    fedalc,
    fedaws,
    fedmlh,
    fedss,
    origins,
    papers,
    parts,
    privacy,
    rounds,
    seen,
    shapes,
    soak,
    tails,
    which,
)

DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PLACE = re.compile(r"(<!-- results:([\w-]+) -->\n).*?(<!-- /results:\2 -->)", re.DOTALL)
EXTREME = ("amazoncat-13k", "wikilshtc-325k", "amazon-670k")
QUOTES: dict[str, Callable[[], str]] = {
    "extreme": lambda: fedaws.extreme("amazoncat-13k", "wikilshtc-325k", "amazon-670k"),
    "extreme-ablation": lambda: fedaws.precisions("results/extreme/table4-amazoncat-13k.json"),
    "extreme-tuning": lambda: fedaws.strengths("amazoncat-13k", "wikilshtc-325k", "amazon-670k"),
    "extreme-arms": lambda: extreme.arms(*EXTREME),
    "extreme-points": lambda: extreme.points(*EXTREME),
    "extreme-cohorts": lambda: extreme.cohorts(*EXTREME),
    "ten-rows": lambda: extreme.ten_rows("results/extreme/ten-rows-small.json"),
    "ten-rows-points": lambda: extreme.ten_rows_points("results/extreme/ten-rows-small.json"),
    "extreme-neighbours": lambda: extreme.neighbours("amazoncat-13k"),
    "extreme-rows": lambda: extreme.rows_seen("amazoncat-13k", "wikilshtc-325k"),
    "table1": lambda: cifar.arms("results/cifar/table1.json"),
    "table1-points": lambda: cifar.points("results/cifar/table1.json"),
    "table1-longer": lambda: cifar.arms("results/cifar/table1-longer.json"),
    "table1-long": lambda: cifar.arms("results/cifar/table1-long.json"),
    "table1-long-points": lambda: cifar.all_settings("results/cifar/table1-long.json"),
    "table1-long-cifar-10": lambda: cifar.all_settings("results/cifar/table1-long-cifar-10.json"),
    "gpu": lambda: rounds.with_losses(
        "results/dual_encoder/workload-a-h200.json", "results/extreme/speed-h200.json"
    ),
    "digits": lambda: fedaws.comparison("results/digits/demo.json"),
    "digits-ten": lambda: fedaws.comparison("results/digits/ten-seeds.json"),
    "bibtex": lambda: fedaws.comparison("results/bibtex/fedaws.json"),
    "bibtex-tuned": lambda: fedaws.tuned("results/fedalc/bibtex.json"),
    "by-frequency": lambda: fedaws.by_frequency("results/by_frequency/bibtex.json"),
    "flower-bytes": lambda: parts.flower_bytes("results/flower/bytes.json"),
    "simulator": lambda: rounds.simulator("results/simulator/cpu.json"),
    "images": lambda: rounds.images("results/simulator/images.json"),
    "images-resnet8": lambda: rounds.images("results/simulator/images-resnet8.json"),
    "shapes": lambda: shapes.labels("results/data/shapes.json"),
    "shapes-drawn": lambda: shapes.drawn("results/data/shapes.json"),
    "shapes-oracle": lambda: shapes.oracle("results/data/shapes.json"),
    "seen-rows": lambda: seen.rows("results/seen_rows/bibtex.json"),
    "class-features": lambda: seen.class_features(
        *(f"results/class_features/{name}.json" for name in ("bibtex", "synthetic"))
    ),
    "reading": lambda: parts.reading("results/data/reading.json"),
    "table2": lambda: dual_encoder.retrieval("results/dual_encoder/table2.json"),
    "table2-points": lambda: dual_encoder.chosen(
        "table2", "results/dual_encoder/table2-tuning.json", "results/dual_encoder/table2.json"
    ),
    "table2-file-ties": lambda: dual_encoder.retrieval("results/dual_encoder/table2-file-ties.json"),
    "order": lambda: dual_encoder.order("results/dual_encoder/order.json"),
    "drops": lambda: dual_encoder.drops(
        "results/dual_encoder/table2.json", "results/dual_encoder/centralized.json"
    ),
    "drops-file-ties": lambda: dual_encoder.drops(
        "results/dual_encoder/table2-file-ties.json", "results/dual_encoder/centralized-file-ties.json"
    ),
    "centralized": lambda: dual_encoder.chosen(
        "centralized",
        "results/dual_encoder/centralized-tuning.json",
        "results/dual_encoder/centralized.json",
    ),
    "centralized-points": lambda: dual_encoder.tried(
        "validation examples, ties random",
        ("centralized", "results/dual_encoder/centralized-tuning.json"),
    ),
    "ablation-file-ties": lambda: dual_encoder.retrieval("results/dual_encoder/ablation-file-ties.json"),
    "ours-file-ties": lambda: dual_encoder.retrieval("results/dual_encoder/ours-file-ties.json"),
    "sasrec": lambda: dual_encoder.retrieval(
        "results/dual_encoder/sasrec.json", beside="results/dual_encoder/ours.json"
    ),
    "sasrec-points": lambda: dual_encoder.tried(
        "validation users, ties random",
        ("sasrec", "results/dual_encoder/sasrec-tuning.json"),
        ("ours", "results/dual_encoder/ours-tuning.json"),
    ),
    "figures": lambda: dual_encoder.retrieval(
        "results/dual_encoder/figures.json",
        in_one_place="results/dual_encoder/centralized-tuning.json",
        tuning="results/dual_encoder/figures-tuning.json",
    ),
    "rounds": lambda: rounds.rounds(
        "results/dual_encoder/speed-cpu.json", "results/dual_encoder/speed-h200.json"
    ),
    "fedss": lambda: fedss.sampled("results/fedss/omniglot.json"),
    "fedss-bytes": lambda: fedss.by_bytes("results/fedss/omniglot.json"),
    "fedss-studies": fedss.studies,
    "fedss-studies-bytes": lambda: fedss.by_bytes("results/fedss/reduced-5.json", (20.0, 30.0, 40.0)),
    "fedss-requests": lambda: fedss.observed("results/fedss/requests.json"),
    "fedss-rows": lambda: fedss.row_gradients("results/fedss/row-gradients.json"),
    "fedss-gradients": lambda: fedss.gradients("results/fedss/gradients.json"),
    "convolutions": lambda: parts.convolutions("results/fedss/convolutions-h200.json"),
    "fedmlh": lambda: fedmlh.hashed(*(f"results/fedmlh/{shape}.json" for shape in ("bibtex", "eurlex"))),
    "fedmlh-matched": fedmlh.matched,
    "fedmlh-largest": fedmlh.largest,
    "fedmlh-starts": fedmlh.starts,
    "fedmlh-matched-sent": fedmlh.matched_sent,
    "fedmlh-figure3": fedmlh.by_frequency,
    "fedmlh-curves": lambda: fedmlh.hashed_curves(
        *(f"results/fedmlh/{shape}-curves.json" for shape in ("amztitle", "wikititle"))
    ),
    "fedmlh-sent": lambda: fedmlh.sent_to(
        "results/fedmlh/bibtex.json",
        *(f"results/fedmlh/{shape}-curves.json" for shape in ("amztitle", "wikititle")),
    ),
    "fedmlh-rounds": lambda: fedmlh.hashed_rounds(
        "results/fedmlh/rounds.json", "results/fedmlh/rounds-wikititle.json"
    ),
    "fedmlh-rounds-gpu": lambda: fedmlh.hashed_rounds("results/fedmlh/rounds-h200.json"),
    "fedalc": lambda: fedalc.positive_labels("results/fedalc/bibtex.json"),
    "fedalc-weighed": lambda: fedalc.weighed(
        "results/fedalc/bibtex-tuning.json", "results/fedalc/bibtex.json"
    ),
    "fedalc-linear": lambda: fedalc.positive_labels("results/fedalc/bibtex-linear.json"),
    "fedalc-correlations": lambda: fedalc.correlated("results/fedalc/bibtex-linear-correlations.json"),
    "fedalc-correlations-delicious": lambda: fedalc.correlated(
        "results/fedalc/delicious-linear-correlations.json"
    ),
    "fedalc-delicious": lambda: fedalc.positive_labels("results/fedalc/delicious-linear.json", None),
    "fedalc-eurlex": lambda: fedalc.positive_labels(
        "results/fedalc/eurlex-shape-linear.json", "fedalc-table5"
    ),
    "fedalc-eurlex-labels": lambda: fedalc.label_sets("results/fedalc/label-sets.json"),
    "fedalc-eurlex-strengths": lambda: fedalc.strengths(
        "results/fedalc/eurlex-shape-linear-tuning.json",
        "results/fedalc/eurlex-shape-linear.json",
        ("fedaws-mined", "fedalc-mined"),
    ),
    "fedalc-sensitivity": lambda: fedalc.knobs("results/fedalc/bibtex-linear-sensitivity.json"),
    "fedalc-known": lambda: fedalc.known("results/fedalc/bibtex-linear-known.json"),
    "fedalc-bytes": lambda: fedalc.sent("results/fedalc/bibtex.json"),
    "correlations": lambda: parts.correlations("results/fedalc/scale.json"),
    "mining": lambda: parts.mining("results/mining/h200.json"),
    "ranks": lambda: rounds.ranks("results/ranks/cpu.json"),
    "index": lambda: parts.index("results/mining/index-cpu.json"),
    "serve": lambda: parts.serving("results/serve/cpu.json"),
    "plans": lambda: rounds.plans("results/plans/cpu.json"),
    "peers": lambda: rounds.peers("results/peers/cpu.json"),
    "growth": lambda: rounds.growth("results/growth/cpu.json"),
    "defaults-reached": lambda: defaults.reached("results/defaults/table.json"),
    "defaults-histories": lambda: defaults.next_items("results/defaults/table.json"),
    "defaults-popularity": lambda: defaults.popularity("results/defaults/popularity.json"),
    "defaults-shares": lambda: defaults.shares("results/defaults/table.json"),
    "defaults-unseen": lambda: defaults.unseen("results/defaults/cpu.json", known=("digits",)),
    "defaults-new": lambda: defaults.unseen("results/defaults/unseen.json"),
    "defaults-middle": lambda: defaults.unseen("results/defaults/middle.json"),
    "defaults-wide-sets": lambda: defaults.unseen("results/defaults/wide-sets.json"),
    "defaults-chosen-on": chosen_on.compared,
    "defaults-columns": lambda: columns.tried(
        "results/defaults/tables.json",
        {
            "a fifth dropped": ("clients.input_dropout=0.2", "rounds=300"),
            "none": ("clients.input_dropout=0", "rounds=300"),
            "none, 1,000 rounds": ("clients.input_dropout=0", "rounds=1000"),
        },
        seeds=1,
    ),
    "defaults-columns-small": lambda: columns.tried(
        "results/defaults/tables.json",
        {
            "a fifth dropped": ("clients.input_dropout=0.2", "rounds=300"),
            "none": ("clients.input_dropout=0", "rounds=300"),
        },
        seeds=3,
    ),
    "defaults-rounds": lambda: columns.tried(
        "results/defaults/tables.json",
        {
            "300 rounds": ("clients.input_dropout=0", "rounds=300"),
            "1,000": ("clients.input_dropout=0", "rounds=1000"),
            "2,000": ("clients.input_dropout=0", "rounds=2000"),
            "1,000, twice as wide": (
                "clients.input_dropout=0",
                "rounds=1000",
                "model.hidden=[512]",
            ),
        },
        seeds=1,
    ),
    "defaults-length": lambda: columns.tried(
        "results/defaults/length.json",
        {
            "default": (),
            "1,000 rounds": ("rounds=1000",),
            "2,000": ("rounds=2000",),
            "twice as wide": ("model.hidden=[512]",),
        },
        seeds=1,
    ),
    "defaults-wide": lambda: columns.tried(
        "results/defaults/wide.json",
        {
            "default": (),
            "linear": ("model.hidden=[]",),
            "plain steps": ("server.optimizer=sgd", "server.lr=10"),
            **{
                f"both, rate {rate}": (
                    "model.hidden=[]",
                    "server.optimizer=sgd",
                    f"server.lr={rate}",
                )
                for rate in (3, 10, 30)
            },
        },
        seeds=2,
    ),
    "rare-words": lambda: columns.gained(
        "results/defaults/rare-words.json",
        {
            "fedaws": {
                f"ε = {shown}": (f"server.eps={value}",)
                for shown, value in (
                    ("1e-8", "1e-08"),
                    ("1e-4", "0.0001"),
                    ("3e-4", "0.0003"),
                    ("1e-3", "0.001"),
                    ("1e-2", "0.01"),
                )
            },
            "fedss": {
                f"ε = {shown}": (f"server.eps={value}",)
                for shown, value in (("1e-8", "1e-08"), ("3e-4", "0.0003"))
            },
        },
        "P@1 on validation parts, one seed. Gains: mean over sets, with a standard error.",
    ),
    "rare-words-fresh": lambda: columns.gained(
        "results/defaults/rare-words-fresh.json",
        {m: {"ε = 1e-8": ("server.eps=1e-08",), "3e-4": ()} for m in ("fedaws", "fedss")},
        "P@1 on test parts: FedAwS three seeds, of banking77 one; FedSS one. Gains: mean over sets, "
        "with a standard error.",
        references=True,
    ),
    "defaults-fresh": lambda: columns.before_and_now(
        "results/defaults/fresh-tables.json", "results/defaults/fresh-tables-before.json"
    ),
    "long-tails-made-up": lambda: tails.gains("results/defaults/roots-made-up.json", (4.0,), mean=False),
    "long-tails-first": lambda: tails.gains("results/defaults/roots.json", RULES, half=0),
    "long-tails-second": lambda: tails.gains("results/defaults/roots.json", RULES, half=1),
    "long-tails-fresh": lambda: tails.gains("results/defaults/roots-fresh.json", (4.0,)),
    "defaults-tiny": lambda: defaults.unseen("results/defaults/tiny.json"),
    "defaults-little": lambda: defaults.with_floor(
        "results/defaults/little.json", "results/defaults/little-one-error.json"
    ),
    "trust-rules": lambda: defaults.trust("results/defaults/trust-rules.json"),
    "trust-seldom": lambda: defaults.trust_gained(
        ("24 sets to learn from", "results/defaults/trust-seldom.json"),
        ("made up", "results/defaults/trust-seldom-made-up.json"),
        ("150 rows of 15 sets set aside", "results/defaults/trust-seldom-drawn.json"),
    ),
    "trust-learnt": lambda: defaults.trust("results/defaults/trust-learnt.json"),
    "trust-fresh": lambda: defaults.trust("results/defaults/trust-fresh.json"),
    "prior-rules": lambda: defaults.prior_rules("results/defaults/prior-rules.json"),
    "prior-gains": lambda: defaults.prior_gains("results/defaults/prior-rules.json"),
    "defaults-beside-tuned": lambda: defaults.beside_tuned("results/defaults/table.json"),
    "defaults-tuned": lambda: defaults.tuned(
        "results/defaults/tuned.json", "results/defaults/table.json"
    ),
    "defaults-trials": lambda: defaults.trials("results/defaults/trials.json"),
    "defaults-rates": lambda: defaults.found_rates("results/defaults/rates.json"),
    "left-out": lambda: defaults.left_out("results/defaults/leave-one-out.json"),
    "defaults-rules": lambda: defaults.rules("results/defaults/leave-one-out.json"),
    "picture-sides": lambda: defaults.sides("results/defaults/mirror.json"),
    "defaults-moved": lambda: defaults.moved("results/defaults/cifar-moved.json"),
    "picture-cohorts": lambda: defaults.trials("results/defaults/cohorts.json"),
    "defaults-pictures": lambda: defaults.pictures("results/defaults/first-search.json"),
    "drift-digits": lambda: drift.corrections("digits"),
    "drift-bibtex": lambda: drift.corrections("bibtex"),
    "attacks": attacks.attacks,
    "attacks-rules": attacks.rules,
    "attacks-goal": attacks.goal,
    "attacks-backdoors": attacks.backdoors,
    "secure-sums": lambda: privacy.sums("results/privacy/sums.json"),
    "retrieval": lambda: privacy.retrieval("results/privacy/retrieval.json"),
    "row-servers": lambda: privacy.row_servers("results/privacy/row_servers.json"),
    "privacy-utility": lambda: privacy.utility("results/privacy/utility.json"),
    "privacy-clients": privacy.clients,
    "cover-sets": lambda: privacy.requests("results/privacy/requests.json"),
    "soak": soak.soaks,
    "papers": papers.summary,
    "origins": origins.origins,
    "which": which.facts,
    **{f"paper-{page}": partial(papers.page, page) for page in papers.PAGES},
}


def quoted(text: str) -> str:
    """A document with every marked table made anew."""
    return PLACE.sub(lambda m: f"{m[1]}{QUOTES[m[2]]()}\n{m[3]}", text)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 on a difference")
    a = parser.parse_args()
    stale = []
    for path in DOCUMENTS:
        before = path.read_text(encoding="utf-8")
        after = quoted(before)
        if after != before:
            stale.append(path.name)
            if not a.check:
                path.write_text(after, encoding="utf-8")
    agree = "documents and result files agree"
    print(f"differ from the result files: {', '.join(stale)}" if stale else agree)
    return 1 if stale and a.check else 0


if __name__ == "__main__":
    sys.exit(main())
