"""Table 1 of FedAwS on CIFAR: test scores beside the paper's, and the points they were chosen from."""

from __future__ import annotations

from benchmarks.papers.cifar import ARMS, EVERY, LABELS, NETS, called, paper
from benchmarks.quote.tables import Made, read, table

ORACLE = "centralized"


def arms(path: str) -> str:
    """Every arm with its chosen point, how far it is from the oracle, and the same of the paper."""
    made, rows = read(path), []
    ours = {(row["net"], row["arm"]): row for row in made["table"]}
    for net, arm in ((net, arm) for net in NETS for arm in EVERY if (net, arm) in ours):
        off = ["–", "–"]
        if arm != ORACLE and (net, ORACLE) in ours:
            said = paper(net, arm) - paper(net, ORACLE)
            off = [_signed(ours[net, arm]["P@1"] - ours[net, ORACLE]["P@1"]), _signed(said)]
        cells = [f"{ours[net, arm]['P@1']:.1f}", off[0], f"{paper(net, arm):.1f}", off[1]]
        run = _tested(made, net, arm)
        rows.append([called(net), _label(arm), *cells, str(run["epochs"]), _settings(run)])
    head = ("", "", "P@1", "less our oracle's", "paper", "less its oracle's", "epochs", "chosen")
    return table(head, rows, path, note=_trained(made))


def points(path: str) -> str:
    """Validation P@1 of all points of every arm, by the server's rate; the chosen one in bold."""
    made, rows = read(path), []
    after = sorted({run["epochs"] for run in made["runs"] if not run["test"]})
    for net in NETS:
        for arm in ARMS:
            tried = [r for r in made["runs"] if not r["test"] and (r["net"], r["arm"]) == (net, arm)]
            tried.sort(key=_rate)
            best = max(tried, key=lambda run: (run["P@1"], -run["point"]))["point"] if tried else None
            decays = {_rate(run)[1] for run in tried}
            cells = [_point(run, len(decays) > 1, chosen=run["point"] == best) for run in tried]
            rows += [[called(net), _label(arm), *cells]] if cells else []
    columns = max(map(len, rows)) - 2
    head = ("P@1, validation", "", "lowest rate", *[""] * (columns - 2), "highest")
    note = (
        f"`server.lr`, and `server.weight_decay` where points differ in it: P@1 after "
        f"{_to(after)} epochs; the chosen one in bold."
    )
    return table(head, rows, path, note=note)


def all_settings(path: str) -> str:
    """Validation P@1 of points that differ in more than the server's rates; each arm's best in bold."""
    made, rows = read(path), []
    every = [run for run in made["runs"] if not run["test"]]
    for arm in EVERY:
        tried = sorted((run for run in every if run["arm"] == arm), key=lambda run: int(run["point"]))
        best = max(tried, key=lambda run: (run["P@1"], -run["point"])) if tried else None
        for run in tried:
            mark = "**" if run is best else ""
            named = [called(run["net"]), _label(arm), _settings(run)]
            rows.append([*named, f"{mark}{run['P@1']:.1f}{mark}"])
    note = f"After {_to(sorted({run['epochs'] for run in every}))} epochs; the best of an arm in bold."
    return table(("", "", "point", "P@1, validation"), rows, path, note=note)


def _tested(made: Made, net: str, arm: str) -> Made:
    """The test run of an arm with the first seed."""
    runs = (run for run in made["runs"] if run["test"] and (run["net"], run["arm"]) == (net, arm))
    found: Made = min(runs, key=lambda run: int(run["seed"]))
    return found


def _settings(run: Made) -> str:
    found = {key: value for section in run["settings"].values() for key, value in section.items()}
    return ", ".join(f"{key} {value:g}" for key, value in found.items())


def _rate(run: Made) -> tuple[float, float]:
    server = run["settings"]["server"]
    return server["lr"], server.get("weight_decay", 0.0)


def _point(run: Made, with_decay: bool, *, chosen: bool) -> str:
    score, (rate, decay) = f"{run['P@1']:.1f}", _rate(run)
    name = f"{rate:g}, {decay:g}" if with_decay else f"{rate:g}"
    return f"{name}: {f'**{score}**' if chosen else score}"


def _trained(made: Made) -> str:
    seeds = sorted({row["seeds"] for row in made["table"]})
    epochs = sorted({row["epochs"] for row in made["table"]})
    seed = "seed" if seeds == [1] else "seeds"
    return f"{_to(epochs)} epochs, {_to(seeds)} {seed}, norm: {made['norm']}."


def _to(numbers: list[int]) -> str:
    """`6`, or `12 to 30`"""
    return " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))


def _label(arm: str) -> str:
    return LABELS[arm][0].upper() + LABELS[arm][1:]


def _signed(difference: float) -> str:
    return f"{round(difference, 1) + 0.0:+.1f}".replace("-", "−")  # no −0.0
