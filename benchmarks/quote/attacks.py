"""Hostile clients: what each attack costs, with and without a robust rule."""

from __future__ import annotations

from statistics import mean, median, stdev

from benchmarks.common import record
from benchmarks.common.paths import ROOT
from benchmarks.quote.tables import Made, read, table
from benchmarks.security.cases import guards_of

METHODS = {"fedaws": "FedAwS", "fedss": "FedSS", "fedmlh": "FedMLH", "dual_encoder": "dual encoder"}
SHARES = (0.1, 0.2, 0.3)
GOAL = 1.0  # points beyond the reference
DEFAULT, SPECTRAL = "norm_clipping", "spectral"
THREE = ("mean", DEFAULT, SPECTRAL)
RULES = {
    DEFAULT: "norm clipping",
    SPECTRAL: "spectral",
    "median": "median",
    "trimmed_mean": "trimmed mean",
    "geometric_median": "geometric median",
    "centred_clipping": "centred clipping",
}


ORDER = (
    "sign flip",
    "scaled flip",
    "a little is enough",
    "inner product",
    "label flips",
    "claims",
    "backdoor",
)


def _path(method: str) -> str:
    return f"results/attacks/{method}.json"


PATHS = tuple(map(_path, METHODS))


def _files() -> dict[str, Made]:
    return {method: read(_path(method)) for method in METHODS}


def _each_lost(made: Made, rule: str, attack: str, share: float) -> list[float]:
    """By seed, points below the plain mean of the federation without its hostile clients."""
    runs = made["runs"].values()
    reference = {
        one["seed"]: one["score"]
        for one in runs
        if (one["rule"], one["attack"], one["share"]) == ("mean", "absent", share)
    }
    return [
        float(reference[one["seed"]] - one["score"])
        for one in runs
        if (one["rule"], one["attack"], one["share"]) == (rule, attack, share)
    ]


def _lost(made: Made, rule: str, attack: str, share: float) -> float | None:
    lost = _each_lost(made, rule, attack, share)
    return mean(lost) if lost else None


def _is_met(lost: float | None) -> bool:
    """As it is printed: with one digit after the point."""
    return lost is not None and round(lost, 1) <= GOAL


def _cell(lost: float | None) -> str:
    """Points lost; bold where the goal is met."""
    if lost is None:
        return "–"
    text = f"{lost:.1f}".replace("-0.0", "0.0")
    return f"**{text}**" if _is_met(lost) else text


def attacks() -> str:
    """Every method and attack: points lost with the mean, with norm clipping, and with a filter."""
    files = _files()
    rows = [
        [label, attack]
        + [
            " → ".join(_cell(_lost(files[method], rule, attack, share)) for rule in THREE)
            for share in SHARES
        ]
        for method, label in METHODS.items()
        for attack in _attacks(files[method])
    ]
    head = ("points lost: mean → norm clipping → spectral", "attack", *_heads())
    return table(head, rows, note=_note(files))


def rules() -> str:
    """Every rule at 10 % hostile, and what it costs without an attack."""
    files = _files()
    rows = []
    for method, label in METHODS.items():
        made = files[method]
        plain = mean(_scores(made, "mean", "none"))
        honest = [_cell(plain - mean(_scores(made, rule, "none"))).strip("*") for rule in RULES]
        rows.append([label, "none", "0.0", *honest])
        for attack in _attacks(made):
            lost = [_lost(made, rule, attack, SHARES[0]) for rule in ("mean", *RULES)]
            rows.append([label, attack, *map(_cell, lost)])
    head = ("points lost at 10 % hostile", "attack", "mean", *RULES.values())
    return table(head, rows, note=_settings(files))


def goal() -> str:
    """Where the goal is met at 10 % hostile, and where it is not."""
    files = _files()
    rows = []
    for method, label in METHODS.items():
        made, left = files[method], []
        lost = {
            attack: {rule: _lost(made, rule, attack, SHARES[0]) for rule in RULES}
            for attack in _attacks(made)
        }
        met = [sum(_is_met(one[rule]) for one in lost.values()) for rule in (DEFAULT, SPECTRAL)]
        for attack, by in lost.items():
            there = {rule: value for rule, value in by.items() if value is not None}
            best = min(there, key=lambda rule: there[rule])
            if not _is_met(by[DEFAULT]):
                left.append(f"{attack}: {RULES[best]} {_cell(there[best])}")
        rows.append([label, *(f"{number} of {len(lost)}" for number in met), "; ".join(left) or "–"])
    head = (
        f"at 10 % hostile, at most {GOAL:g} point lost",
        "norm clipping",
        "spectral",
        "missed by norm clipping: the best rule, points lost",
    )
    return table(head, rows, *PATHS)


def backdoors() -> str:
    """How often a marked example is taken for the target."""
    files = _files()
    rows = []
    for method, label in METHODS.items():
        for rule in THREE:
            runs = [one for one in files[method]["runs"].values() if one["rule"] == rule]
            cells = []
            for share in SHARES:
                opened = [one["opened"] for one in runs if _is(one, "backdoor", share)]
                cells.append(f"{mean(opened):.0f} %" if opened else "–")
            rows.append([label, RULES.get(rule, rule), *cells])
    return table(("marked examples taken for the target", "rule", *_heads()), rows)


def _heads() -> list[str]:
    return [f"{100 * share:.0f} % hostile" for share in SHARES]


def _is(one: Made, attack: str, share: float) -> bool:
    return (one["attack"], one["share"]) == (attack, share)


def _scores(made: Made, rule: str, attack: str) -> list[float]:
    return [r["score"] for r in made["runs"].values() if (r["rule"], r["attack"]) == (rule, attack)]


def _attacks(made: Made) -> list[str]:
    found = {one["attack"] for one in made["runs"].values()}
    return [attack for attack in ORDER if attack in found]


def _note(files: dict[str, Made]) -> str:
    plain = ", ".join(
        f"{label} {mean(_scores(files[method], 'mean', 'none')):.1f}"
        for method, label in METHODS.items()
    )
    errors = [
        stdev(lost) / len(lost) ** 0.5
        for made in files.values()
        for attack in _attacks(made)
        for rule in THREE[1:]
        if len(lost := _each_lost(made, rule, attack, SHARES[0])) > 1
    ]
    error = f" Standard error of a figure with a rule: {median(errors):.1f} in the median." * bool(
        errors
    )
    return (
        f"Means over {_seeds(files)}. Lost: points below the plain mean of the same federation "
        f"without its hostile clients. Bold: at most {GOAL:g}.{error} All honest, plain mean: {plain}."
    )


def _seeds(files: dict[str, Made]) -> str:
    """Over how many seeds the figures are, and which are over fewer."""
    counts = {
        (rule, share): min(
            len(_each_lost(made, rule, attack, share))
            for made in files.values()
            for attack in _attacks(made)
        )
        for rule in THREE
        for share in SHARES
    }
    most = max(counts.values())
    fewer = [
        f"{RULES.get(rule, rule)} at {100 * share:.0f} % over {count}"
        for (rule, share), count in counts.items()
        if count < most
    ]
    return f"{most} seeds" + (f" ({', '.join(fewer)} at least)" if fewer else "")


def _settings(files: dict[str, Made]) -> str:
    """Which settings tuning has chosen where they are not the defaults, and what was not tuned."""
    told, untuned = [], []
    for method, label in METHODS.items():
        path = ROOT / f"results/attacks/{method}-tuning.json"
        tried = set(record.read(path)["configs"]) if path.is_file() else set()
        for rule, name in RULES.items():
            guards = [str(guard) for guard in guards_of(rule)]
            used = next((guard for guard in files[method]["configs"] if guard in guards), guards[0])
            if used != guards[0]:
                told.append(
                    f"{label}, {name}: {used.partition(', ')[2].replace('{share}', 'the share')}"
                )
            elif rule != DEFAULT and not tried.issuperset(guards) and len(guards) > 1:
                untuned.append(f"{label}, {name}")
    chosen = f" Settings chosen on validation data: {'; '.join(told)}." if told else ""
    left = f" At their defaults, without a choice: {'; '.join(untuned)}." if untuned else ""
    return f"The rules that trim are told the share of hostile clients.{chosen}{left}"
