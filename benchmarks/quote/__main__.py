"""Put the numbers of result files into the documents that quote them.

    python benchmarks/quote.py           # rewrites the marked tables
    python benchmarks/quote.py --check   # says which documents differ from the files; exit 1 if any

A document marks the place: `<!-- results:NAME -->` … `<!-- /results:NAME -->`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dual_encoder import CENTRALIZED, FEDERATED, LOSSES, RECALLS, drop, mean_of
from fedalc import a_round_of_all

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    "README.md",
    "docs/data.md",
    "docs/deploy.md",
    "docs/dual_encoder.md",
    "docs/fedalc.md",
    "docs/fedaws.md",
    "docs/fedmlh.md",
    "docs/fedss.md",
    "docs/performance.md",
)
PLACE = re.compile(r"(<!-- results:([\w-]+) -->\n).*?(<!-- /results:\2 -->)", re.DOTALL)


def comparison(path: str) -> str:
    made = _read(path)
    names = list(made["variants"][0]["metrics"])
    lines = [
        f"| | {' | '.join(names)} | down / up per client and round | largest cosine | effective rank |",
        f"|---|{'---|' * (len(names) + 3)}",
    ]
    for v in made["variants"]:
        scores = (f"{m['mean']:.1f} ± {m['spread']:.1f}" for m in v["metrics"].values())
        moved = [v["bytes_per_client_round"][way] / 1024 for way in ("down", "up")]
        traffic = f"{moved[0]:.2f} / {moved[1]:.2f} KiB" if any(moved) else "–"
        classes = v.get("geometry") or v["gauges"]  # what earlier files call it
        geometry = f"{classes['max_cosine']:.2f} | {classes['effective_rank']:.1f}"
        lines.append(f"| {v['label']} | {' | '.join(scores)} | {traffic} | {geometry} |")
    floor = " | ".join(f"{made['constant'][name]:.1f}" for name in names)
    lines.append(f"| Always the most frequent labels | {floor} | – | – | – |")
    seeds = len(made["seeds"])
    return "\n".join(
        [*lines, "", f"Mean ± standard deviation over {seeds} seeds. {_origin(path, made)}"]
    )


def simulator(path: str) -> str:
    made = _read(path)
    head = ("local steps", "simulator, clients/s", "sequential", "ratio", "bare loop", "ratio")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for s in made["speed"]:
        each = s["clients_per_second"]
        rates = f"{each['simulator']:,.0f} | {each['sequential']:,.0f} | {s['ratio']:.1f}x"
        bare = f"{each['bare loop']:,.0f} | {s['ratio_to_bare_loop']:.1f}x"
        lines.append(f"| {s['local_steps']} | {rates} | {bare} |")
    lines += ["", "| classes | client work, ms a round | relative |", "|---|---|---|"]
    lines += [
        f"| {g['classes']:,} | {1000 * g['seconds']:.1f} | {g['relative']:.3f} |" for g in made["growth"]
    ]
    return "\n".join([*lines, "", _origin(path, made)])


def flower_bytes(path: str) -> str:
    made = _read(path)
    head = ("", "ledger, down / up", "on the socket", "protocol, per node and round", "ratio")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for r in made["results"]:
        ledger, wire = r["ledger_bytes_per_round"], r["socket_bytes_per_round"]
        extra = r["overhead_bytes_per_round_and_node"]
        cells = [f"{_kib(part['down'])} / {_kib(part['up'])} KiB" for part in (ledger, wire, extra)]
        ratio = f"{r['ratio']['down']:.3f} / {r['ratio']['up']:.3f}"
        lines.append(f"| {r['arm']} | {' | '.join(cells)} | {ratio} |")
    nodes, clients = made["nodes"], made["clients"]
    told = f"Bytes a round, {clients} clients on {nodes} nodes, Flower {made['flwr']}."
    return "\n".join([*lines, "", f"{told} {_origin(path, made)}"])


def _kib(count: float) -> str:
    return f"{count / 1024:,.1f}"


def mining(path: str) -> str:
    made = _read(path)
    head = ("classes", "precision", "ms", "of it mining", "extra memory", "true neighbours found")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for r in made["results"]:
        lines.append(
            f"| {r['classes']:,} | {r['precision']} | {r['milliseconds']:.1f} | {r['of_it_mining']:.1f} "
            f"| {r['extra_gigabytes']:.2f} GiB | {100 * r['recall']:.2f} % |"
        )
    return "\n".join([*lines, "", _origin(path, made)])


def reading(path: str) -> str:
    made = _read(path)["parts"]
    lines = ["| on one core | time | memory of its own |", "|---|---|---|"]
    ml, xc, wide = made["movielens-1m"], made["xc-text-100mb"], made["synthetic-10m-classes"]
    rows = [
        (f"MovieLens-1M, zip to {ml['examples']:,} windowed examples", ml["seconds"], ml),
        ("the same from the cache", ml["seconds_from_cache"], None),
        (
            f"extreme-classification text, {xc['megabytes']:.0f} MB, {xc['rows']:,} rows",
            xc["seconds"],
            xc,
        ),
        (
            f"{wide['examples']:,} synthetic instances over {wide['classes']:,} classes",
            wide["seconds"],
            wide,
        ),
    ]
    for name in ("federation-1m-examples", "federation-10m-examples"):
        part = made[name]
        held = f"{part['examples']:,} examples of {part['clients']:,} clients"
        size = f"{part['megabytes_on_disk']:,} MB"
        rows.append((f"{held}, {size}: sorted to disk", part["seconds_to_build"], part))
        gathered = part["milliseconds_a_cohort_of_1000"] / 1000
        rows.append(("a cohort of 1,000 of them gathered", gathered, None))
    for what, seconds, part in rows:
        memory = f"{part['own_memory_mb']} MB" if part else "–"
        lines.append(f"| {what} | {seconds:g} s | {memory} |")
    note = "Memory of its own: anonymous memory beyond what importing takes, without mapped files."
    return "\n".join([*lines, "", f"{note} {_origin(path, _read(path))}"])


def rounds(*paths: str) -> str:
    """Milliseconds a round, one column for each machine."""
    made = [_read(path) for path in paths]
    labels = {timed["name"]: timed["label"] for one in made for timed in one["results"]}
    machines = [one["hardware"] for one in made]
    lines = [
        f"| ms a round (rounds a second) | {' | '.join(machines)} |",
        "|---" * (len(made) + 1) + "|",
    ]
    for name, label in labels.items():
        cells = [_named(one["results"], name) for one in made]
        shown = ["–" if cell is None else f"{cell:.0f} ({1000 / cell:.0f}/s)" for cell in cells]
        lines.append(f"| {label} | {' | '.join(shown)} |")
    origins = " ".join(_origin(path, one) for path, one in zip(paths, made, strict=True))
    return "\n".join([*lines, "", origins])


def _named(results: list[dict[str, Any]], name: str) -> float | None:
    return next((timed["milliseconds"] for timed in results if timed["name"] == name), None)


def retrieval(path: str) -> str:
    """Recalls beside the paper's, where it has them."""
    made = _read(path)
    recalls = RECALLS
    others = ("MRR", "nDCG@10", "mean rank", "batch R@1")
    paper = any(v["label"] in FEDERATED for v in made["variants"])
    head = [*recalls, *(["the paper"] if paper else []), *others, "down / up per client and round"]
    lines = [f"| | {' | '.join(head)} |", f"|---|{'---|' * len(head)}"]
    for v in made["variants"]:
        scores = {name: m["mean"] for name, m in v["metrics"].items()}
        spread = {name: m["spread"] for name, m in v["metrics"].items()}
        cells = [f"{scores[name]:.2f} ± {spread[name]:.2f}" for name in recalls]
        if paper:
            cells.append(" / ".join(f"{x:g}" for x in FEDERATED[v["label"]]))
        cells += [
            f"{scores[name]:.0f}" if name == "mean rank" else f"{scores[name]:.2f}" for name in others
        ]
        cells.append(
            "{:.0f} / {:.0f} KiB".format(
                *(v["bytes_per_client_round"][w] / 1024 for w in ("down", "up"))
            )
        )
        lines.append(f"| {v['label']} | {' | '.join(cells)} |")
    if paper:
        lines.append(
            "| the paper's best centralised (H+S) | 1.27 | 6.08 | 11.15 |" + " |" * (len(head) - 3)
        )
    seeds = len(made["seeds"])
    return "\n".join([*lines, "", f"Mean ± deviation over {seeds} seeds. {_origin(path, made)}"])


def drops(federated: str, centralized: str) -> str:
    """What each loss loses by federating, and what the paper says it loses."""
    made = [_read(federated), _read(centralized)]
    lines = ["| | in one place | federated | drop | drop in the paper |", "|---|---|---|---|---|"]
    for loss in LOSSES:
        here, there = (mean_of(one, loss) for one in made)
        cells = [" / ".join(f"{side[name]:.2f}" for name in RECALLS) for side in (there, here)]
        cells += [
            " / ".join(f"{100 * drop(central, federal):.0f}" for central, federal in pairs) + " %"
            for pairs in (
                [(there[name], here[name]) for name in RECALLS],
                list(zip(CENTRALIZED[loss], FEDERATED[loss], strict=True)),
            )
        ]
        lines.append(f"| {loss} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"R@1 / R@5 / R@10. {_origin(centralized, made[1])}"])


def correlations(path: str) -> str:
    made = _read(path)
    took = made["seconds"]
    rows = [
        (f"count {made['pairs'] / 1e6:.1f} million pairs", took["count"]),
        ("their weights, normalised", took["weigh"]),
        (f"mined step, {made['anchors']} classes, K = {made['k']}", took["mined step"]),
        ("the pull of (12) over all pairs that meet", took["pull"]),
    ]
    head = f"{made['classes']:,} classes, d = {made['dim']}"
    lines = [f"| {head} | seconds |", "|---|---|", *(f"| {what} | {s:g} |" for what, s in rows)]
    mined, pull = made["extra_gb"].values()
    extra = f"Memory beyond the table's {made['table_gb']} GiB: {mined} GiB, "
    extra += f"with the pull and its gradient {pull} GiB."
    return "\n".join([*lines, "", f"{extra} {_origin(path, made)}"])


# An et al. 2024, Table VI, the best λ of each method; the paper's FedAwS and FedALC mine K = 5.
FEDALC_PAPER = {
    "FLAG": "11.4 / 9.1 / 7.4",
    "FedMLH, R = 4": "11.1 / 8.9 / 7.5",
    "FedAvg": "11.6 / 9.1 / 7.8",
    "FedAwS, K = 5": "49.2 / 30.7 / 23.1",
    "FedALC, K = 5": "59.7 / 36.0 / 27.2",
}


def positive_labels(path: str) -> str:
    """Bibtex with one label a client, beside the paper's numbers, with what each arm was given."""
    made = _read(path)
    names = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "mAP")
    head = ["", *names, "the paper: P@1 / 3 / 5", "chosen", "rounds"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for v in made["variants"]:
        scores = [v["metrics"].get(name) for name in names]
        cells = [f"{m['mean']:.1f} ± {m['spread']:.1f}" if m else "–" for m in scores]
        config = made["configs"][v["name"]]
        method = config["method"]
        keys = ["strength", "pull", "buckets", "scale"]
        keys += ["weighting"] if method["name"] != "centralized" else []
        chosen = ", ".join(f"{key} {method[key]}" for key in keys if key in method)
        cells += [FEDALC_PAPER.get(v["label"], "–"), chosen, str(config["rounds"])]
        lines.append(f"| {v['label']} | {' | '.join(cells)} |")
    floor = [f"{made['constant'][name]:.1f}" if name in made["constant"] else "–" for name in names]
    lines.append(f"| Always the most frequent labels | {' | '.join(floor)} | – | – | – |")
    seeds = len(made["seeds"])
    return "\n".join([*lines, "", f"Mean ± deviation over {seeds} seeds. {_origin(path, made)}"])


def weighed(path: str, names: str) -> str:
    """The best validation point of each arm, with clients weighed alike and by their examples."""
    made, labels = _read(path), {v["name"]: v["label"] for v in _read(names)["variants"]}
    lines = ["| P@1 / 3 / 5, mAP | each client alike | by its examples |", "|---|---|---|"]
    for arm, label in labels.items():
        points = [point for point in made["points"] if point["arm"] == arm]
        cells = []
        for weighting in ("uniform", "examples"):
            some = [point for point in points if weighting in point["point"].split("-")]
            if some:
                best = max(some, key=lambda point: sum(point[f"P@{k}"] for k in (1, 3, 5)))
                scores = " / ".join(f"{best[f'P@{k}']:.1f}" for k in (1, 3, 5))
                cells.append(f"{scores}, {best['mAP']:.1f}" if "mAP" in best else scores)
        if cells:
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Validation, one run a point. {_origin(path, made)}"])


def sampled(path: str) -> str:
    """FedSS and its rivals on classes never trained on, with what the class layer costs each."""
    made = _read(path)
    names = list(made["variants"][0]["metrics"])
    full = next(v for v in made["variants"] if v["name"] == "full")
    head = ["", *names, "MAP@10 of FullSoftmax's", "class rows down, KiB", "of FullSoftmax's"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for v in made["variants"]:
        cells = [f"{m['mean']:.1f} ± {m['spread']:.1f}" for m in v["metrics"].values()]
        share = v["metrics"]["MAP@10"]["mean"] / full["metrics"]["MAP@10"]["mean"]
        cells.append(f"{100 * share:.1f} %")
        layer, whole = (_class_rows(one) for one in (v, full))
        cells += [f"{layer / 1024:.1f}", f"{100 * layer / whole:.1f} %"] if layer else ["–", "–"]
        lines.append(f"| {v['label']} | {' | '.join(cells)} |")
    seeds = len(made["seeds"])
    told = f"Mean ± deviation over {seeds} seeds; bytes a client and round."
    return "\n".join([*lines, "", f"{told} {_origin(path, made)}"])


def _class_rows(variant: dict[str, Any]) -> float:
    moved = variant["bytes"]
    return float(moved["rows_down"] / max(moved["participations"], 1))


def observed(path: str) -> str:
    """What requests give away, and what it costs not to."""
    made = _read(path)
    after = list(made["draws"][0]["after"])
    head = ["draw", *(f"sure after {t}" for t in after), f"exposed after {after[-1]}", "MAP@10"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for one in made["draws"]:
        looks = one["after"]
        cells = [*(f"{looks[t]['sure']:.0f} %" for t in after), f"{looks[after[-1]]['exposed']:.0f} %"]
        score = one["MAP@10"]
        cells.append(f"{score['mean']:.1f} ± {score['spread']:.1f}")
        lines.append(f"| `{one['draw']}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _origin(path, made)])


def gradients(path: str) -> str:
    """Bias and spread of sampled gradients, relative to the full one."""
    made = _read(path)
    head = ("negatives", "bias", "spread", "bias, not corrected", "spread, not corrected")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for size in dict.fromkeys(r["negatives"] for r in made["results"]):
        both = {r["corrected"]: r for r in made["results"] if r["negatives"] == size}
        cells = [f"{both[c][name]:.2f}" for c in (True, False) for name in ("bias", "spread")]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    told = f"Of the full gradient's length; {made['draws']} draws for each of {made['clients']} clients."
    return "\n".join([*lines, "", f"{told} {_origin(path, made)}"])


def convolutions(path: str) -> str:
    made = _read(path)
    ways = list(dict.fromkeys(r["way"] for r in made["results"]))
    lines = [f"| ms, forward and backward | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"]
    for layer in dict.fromkeys(r["layer"] for r in made["results"]):
        took = {r["way"]: r["milliseconds"] for r in made["results"] if r["layer"] == layer}
        lines.append(f"| {layer} | {' | '.join(f'{took[way]:.2f}' for way in ways)} |")
    told = f"{made['clients']} clients with {made['batch']} images each."
    return "\n".join([*lines, "", f"{told} {_origin(path, made)}"])


def hashed(*paths: str) -> str:
    """FedMLH beside FedAvg: accuracy, and what it took to get there."""
    head = (
        "",
        "P@1",
        "P@3",
        "P@5",
        "P@1 infrequent",
        "rounds",
        "model",
        "sent to best",
        "to FedAvg's end",
    )
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for path in paths:
        made = _read(path)
        plain = next(v for v in made["variants"] if v["name"] == "fedavg")
        for v in made["variants"]:
            cells = [
                f"{m['mean']:.1f} ± {m['spread']:.1f}"
                for name in ("P@1", "P@3", "P@5", "P@1 infrequent")
                for m in [v["metrics"][name]]
            ]
            rounds, each = (
                made["configs"][v["name"]]["rounds"],
                sum(v["bytes_per_client_round"].values()),
            )
            cohort = v["bytes"]["participations"] / rounds
            passed = rounds_to(v["curve"], plain["curve"])
            cells += [str(rounds), f"{v['model_bytes'] / 2**20:.2f} MiB"]
            cells += [f"{n * each * cohort / 2**20:,.0f} MiB" if n else "–" for n in (rounds, passed)]
            lines.append(f"| {Path(path).stem}, {v['label']} | {' | '.join(cells)} |")
    origins = " ".join(_origin(path, _read(path)) for path in paths)
    return "\n".join([*lines, "", f"Mean ± deviation over {len(made['seeds'])} seeds. {origins}"])


def hashed_curves(*paths: str) -> str:
    """The same on held-out instances, at the best round there was."""
    head = ("", "P@1", "P@3", "P@5", "P@1 infrequent", "best of rounds", "model", "sent to best")
    lines = [f"| {' | '.join(head)} | to FedAvg's best |", "|---" * (len(head) + 1) + "|"]
    for path in paths:
        made = _read(path)
        plain = next(arm["curve"] for arm in made["arms"] if arm["arm"] == "fedavg")
        aim = max(_means(plain))
        for arm in made["arms"]:
            curve, means = arm["curve"], _means(arm["curve"])
            best = means.index(max(means))
            passed = next((at for at, mean in enumerate(means) if mean >= aim), None)
            cells = [f"{curve[name][best]:.1f}" for name in head[1:5]]
            cells += [f"{curve['round'][best]} of {curve['round'][-1]}"]
            cells += [f"{arm['model_bytes'] / 2**20:.0f} MiB", f"{curve['bytes'][best] / 2**30:.1f} GiB"]
            cells += ["–" if passed is None else f"{curve['bytes'][passed] / 2**30:.1f} GiB"]
            shape = Path(path).stem.removesuffix("-curves")
            lines.append(f"| {shape}, {arm['label']} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", " ".join(_origin(path, _read(path)) for path in paths)])


def _means(curve: dict[str, list[float]]) -> list[float]:
    """Of P@1, P@3 and P@5, round by round."""
    return [sum(values) / 3 for values in zip(*(curve[f"P@{k}"] for k in (1, 3, 5)), strict=True)]


def hashed_rounds(*paths: str) -> str:
    head = ("", "seconds a round", "local steps", "model", "memory")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for r in (r for path in paths for r in _read(path)["results"]):
        cells = [f"{r['seconds']:.2f}", f"{r['local_steps']:,}", f"{r['model_mb']:.2f} MiB"]
        lines.append(f"| {r['shape']}, {r['label']} | {' | '.join(cells)} | {r['peak_gb']:.2f} GiB |")
    return "\n".join([*lines, "", " ".join(_origin(path, _read(path)) for path in paths)])


def rounds_to(curve: dict[str, list[float]], other: dict[str, list[float]]) -> int | None:
    """The first round whose mean of P@1, P@3 and P@5 is what another curve ends with."""
    aim = _means(other)[-1]
    reached = (r for r, mean in zip(curve["round"], _means(curve), strict=True) if mean >= aim)
    return next((int(r) for r in reached), None)


def sent(path: str) -> str:
    """Table IV: what travels in a round of all clients."""
    lines = [
        "| MiB a round of all clients | server | clients | label sets, once |",
        "|---|---|---|---|",
    ]
    for label, moved in a_round_of_all(_read(path)):
        cells = f"{moved['down']:,.2f} | {moved['up']:,.2f} | {moved['once_up']:.2f}"
        lines.append(f"| {label} | {cells} |")
    return "\n".join(lines)


def ranks(path: str) -> str:
    made = _read(path)
    head = ("", "processes", "seconds a round", "times as fast", "memory of the first", "loss")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    alone = {r["work"]: r["seconds_a_round"] for r in made["results"] if r["ranks"] == 1}
    for r in made["results"]:
        times = alone[r["work"]] / r["seconds_a_round"]
        cells = (
            f"{r['seconds_a_round']:.2f} | {times:.2f} | {r['first_ranks_mb']:,} MiB | {r['loss']:.5f}"
        )
        lines.append(f"| {r['work']} | {r['ranks']} | {cells} |")
    return "\n".join([*lines, "", _origin(path, made)])


def index(path: str) -> str:
    made = _read(path)
    head = ("classes", "rows", "lists searched", "ms", "all rows, ms", "neighbours found", "made in")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for r in made["results"]:
        cells = [f"{r['classes']:,}", r["rows"], f"{r['probes']} of {r['lists']:,}"]
        cells += [f"{r[name]:,.0f}" for name in ("milliseconds", "exact_milliseconds")]
        cells += [f"{100 * r['recall']:.1f} %", f"{r['seconds_to_make']:g} s"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _origin(path, made)])


def plans(path: str) -> str:
    """Foretold over taken."""
    made = _read(path)
    lines = ["| | time | memory | down | up |", "|---|---|---|---|---|"]
    for r in made["results"]:
        told, took = r["foretold"], r["taken"]
        cells = [f"{told['seconds']:.1f} / {took['seconds']:.1f} s"]
        cells.append(
            " / ".join(f"{one['peak_memory_bytes'] / 2**20:,.0f}" for one in (told, took)) + " MiB"
        )
        for way in ("down_per_client", "up_per_client"):
            cells.append(f"{100 * (told[way] / took[way] - 1):+.1f} %")
        lines.append(f"| {r['case']} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Foretold / taken. {_origin(path, made)}"])


def extreme(*shapes: str) -> str:
    """Table 3 at every shape: precisions, and what a round takes alone on the machine."""
    lines = ["| | | P@1 | P@3 | P@5 | ms a round | memory |", "|---|---|---|---|---|---|---|"]
    paths = []
    for shape in shapes:
        table, rounds = (f"results/extreme/{kind}-{shape}.json" for kind in ("table3", "rounds"))
        times = {r["name"]: r for r in _read(rounds)["results"]}
        for v in _read(table)["variants"]:
            took = times[v["name"]]
            cells = f"{_precisions(v)} | {took['milliseconds']:.0f} | {took['peak_gb']:.1f} GiB"
            lines.append(f"| {shape} | {v['label']} | {cells} |")
        floor = " | ".join(f"{_read(table)['constant'][name]:.1f}" for name in ("P@1", "P@3", "P@5"))
        lines.append(f"| {shape} | Always the most frequent labels | {floor} | – | – |")
        paths += [table, rounds]
    return "\n".join([*lines, "", " ".join(_origin(path, _read(path)) for path in paths)])


def strengths(*shapes: str) -> str:
    """P@1 on validation data by λ, and whatever else was tried."""
    paths = [f"results/extreme/tuning-{shape}.json" for shape in shapes]
    found = [{v["label"]: v["metrics"]["P@1"]["mean"] for v in _read(p)["variants"]} for p in paths]
    labels = sorted({label for one in found for label in one}, key=_strength)
    lines = [f"| P@1, validation | {' | '.join(shapes)} |", "|---" * (1 + len(shapes)) + "|"]
    for label in labels:
        cells = (f"{one[label]:.1f}" if label in one else "" for one in found)
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", " ".join(_origin(path, _read(path)) for path in paths)])


def _strength(label: str) -> tuple[bool, float, str]:
    """λ alone first, by its size."""
    alone = re.fullmatch(r"λ = ([\d.]+)", label)
    return alone is None, float(alone[1]) if alone else 0.0, label


def precisions(path: str) -> str:
    """A line for every variant of a file."""
    made = _read(path)
    lines = ["| | P@1 | P@3 | P@5 |", "|---|---|---|---|"]
    lines += [f"| {v['label']} | {_precisions(v)} |" for v in made["variants"]]
    return "\n".join([*lines, "", _origin(path, made)])


def _precisions(variant: dict[str, Any]) -> str:
    return " | ".join(f"{variant['metrics'][name]['mean']:.1f}" for name in ("P@1", "P@3", "P@5"))


def timed(*paths: str) -> str:
    """Rounds beside the losses they reached."""
    lines = ["| | ms a round | mean | clients | loss, first and last | memory |", "|---" * 6 + "|"]
    for path in paths:
        for r in _read(path)["results"]:
            losses = f"{r['losses'][0]:.5f} → {r['losses'][-1]:.5f}"
            each = f"{r['milliseconds']:.1f} | {r['mean_milliseconds']:.1f} | {r['clients']:,}"
            lines.append(f"| {r['label']} | {each} | {losses} | {r['peak_gb']:.2f} GiB |")
    return "\n".join([*lines, "", " ".join(_origin(path, _read(path)) for path in paths)])


QUOTES: dict[str, Callable[[], str]] = {
    "extreme": lambda: extreme("amazoncat-13k", "wikilshtc-325k", "amazon-670k"),
    "extreme-ablation": lambda: precisions("results/extreme/table4-amazoncat-13k.json"),
    "extreme-tuning": lambda: strengths("amazoncat-13k", "wikilshtc-325k", "amazon-670k"),
    "gpu": lambda: timed("results/dual_encoder/workload-a-h200.json", "results/extreme/speed-h200.json"),
    "digits": lambda: comparison("results/digits/demo.json"),
    "digits-ten": lambda: comparison("results/digits/ten-seeds.json"),
    "bibtex": lambda: comparison("results/bibtex/fedaws.json"),
    "flower-bytes": lambda: flower_bytes("results/flower/bytes.json"),
    "simulator": lambda: simulator("results/simulator/cpu.json"),
    "reading": lambda: reading("results/data/reading.json"),
    "table2": lambda: retrieval("results/dual_encoder/table2.json"),
    "drops": lambda: drops("results/dual_encoder/table2.json", "results/dual_encoder/centralized.json"),
    "ablation": lambda: retrieval("results/dual_encoder/ablation.json"),
    "ours": lambda: retrieval("results/dual_encoder/ours.json"),
    "figures": lambda: retrieval("results/dual_encoder/figures.json"),
    "rounds": lambda: rounds(
        "results/dual_encoder/speed-cpu.json", "results/dual_encoder/speed-h200.json"
    ),
    "fedss": lambda: sampled("results/fedss/omniglot.json"),
    "fedss-requests": lambda: observed("results/fedss/requests.json"),
    "fedss-gradients": lambda: gradients("results/fedss/gradients.json"),
    "convolutions": lambda: convolutions("results/fedss/convolutions-h200.json"),
    "fedmlh": lambda: hashed(
        *(f"results/fedmlh/{shape}.json" for shape in ("bibtex", "eurlex", "wiki31"))
    ),
    "fedmlh-curves": lambda: hashed_curves(
        *(f"results/fedmlh/{shape}-curves.json" for shape in ("amztitle", "wikititle"))
    ),
    "fedmlh-rounds": lambda: hashed_rounds(
        "results/fedmlh/rounds.json", "results/fedmlh/rounds-wikititle.json"
    ),
    "fedmlh-rounds-gpu": lambda: hashed_rounds("results/fedmlh/rounds-h200.json"),
    "fedalc": lambda: positive_labels("results/fedalc/bibtex.json"),
    "fedalc-weighed": lambda: weighed("results/fedalc/bibtex-tuning.json", "results/fedalc/bibtex.json"),
    "fedalc-bytes": lambda: sent("results/fedalc/bibtex.json"),
    "correlations": lambda: correlations("results/fedalc/scale.json"),
    "mining": lambda: mining("results/mining/h200.json"),
    "ranks": lambda: ranks("results/ranks/cpu.json"),
    "index": lambda: index("results/mining/index-cpu.json"),
    "plans": lambda: plans("results/plans/cpu.json"),
    "peers": lambda: peers("results/peers/cpu.json"),
    "growth": lambda: growth("results/growth/cpu.json"),
}


def quoted(text: str) -> str:
    """A document with every marked table made anew."""
    return PLACE.sub(lambda m: f"{m[1]}{QUOTES[m[2]]()}\n{m[3]}", text)


def peers(path: str) -> str:
    made = _read(path)
    head = ("", "A, ms a round", "times ours", "B, ms a round", "times ours", "memory A / B")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    tables = {
        which: {row["name"]: row for row in table["contenders"]}
        for which, table in made["workloads"].items()
    }
    for name, a in sorted(tables["A"].items(), key=lambda item: item[1]["seconds"]):
        b = tables["B"][name]
        cells = [
            f"{1000 * row['seconds']:.0f} | {' / '.join(_times(row, tables[which]))}"
            for which, row in (("A", a), ("B", b))
        ]
        memory = f"{a['peak_gib']:.2f} / {b['peak_gib']:.2f} GiB"
        lines.append(f"| {a['label']} | {' | '.join(cells)} | {memory} |")
    ends = {which: {round(r["loss"], 4) for r in table.values()} for which, table in tables.items()}
    told = " and ".join(f"{'–'.join(map(str, sorted(end)))} ({which})" for which, end in ends.items())
    return "\n".join([*lines, "", f"All end at the loss {told}. {_origin(path, made)}"])


def _times(row: dict[str, Any], table: dict[str, Any]) -> list[str]:
    """Beside ours with two threads and with one."""
    ours = (table[f"spreadout-{threads}"]["seconds"] for threads in (2, 1))
    return [f"{row['seconds'] / seconds:.1f}" for seconds in ours]


def growth(path: str) -> str:
    made = _read(path)
    lines = ["| | | clients' work, ms | server's step, ms | memory, MiB |", "|---|---|---|---|---|"]
    for axis, found in made["axes"].items():
        for row in found["points"]:
            cells = (row["clients_ms"], row["server_ms"], row["memory_mb"])
            shown = " | ".join(f"{value:,.0f}" for value in cells)
            lines.append(f"| {axis} | {row[found['along']]:,} | {shown} |")
        slopes = " | ".join(f"{value:.2f}" for value in found["slopes"].values())
        lines.append(f"| | slope | {slopes} |")
    return "\n".join([*lines, "", _origin(path, made)])


def main() -> int:
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        after = quoted(before)
        if after != before:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(after, encoding="utf-8")
    print(
        f"differ from the result files: {', '.join(stale)}"
        if stale
        else "documents and result files agree"
    )
    return 1 if stale and "--check" in sys.argv else 0


def _read(path: str) -> dict[str, Any]:
    return dict(json.loads((ROOT / path).read_text(encoding="utf-8")))


def _origin(path: str, made: dict[str, Any]) -> str:
    return f"From [`{path}`](/{path}): {made['hardware']}, torch {made['versions']['torch']}."


if __name__ == "__main__":
    sys.exit(main())
