"""Hostile clients: what each attack costs, with and without a robust rule."""

from __future__ import annotations

from statistics import mean

from benchmarks.quote.tables import Made, read, table

METHODS = {"fedaws": "FedAwS", "fedss": "FedSS", "fedmlh": "FedMLH", "dual_encoder": "dual encoder"}
SHARES = (0.1, 0.2, 0.3)
GOAL = 1.0  # points beyond the reference
RULES = {
    "norm_clipping": "norm clipping",
    "median": "median",
    "trimmed_mean": "trimmed mean",
    "geometric_median": "geometric median",
    "centred_clipping": "centred clipping",
}


def _path(method: str) -> str:
    return f"results/attacks/{method}.json"


def _lost(made: Made, rule: str, attack: str, share: float) -> float:
    """Points below the plain mean of a federation without the hostile clients, over seeds."""
    runs = made["runs"].values()
    reference = {
        one["seed"]: one["score"]
        for one in runs
        if (one["rule"], one["attack"], one["share"]) == ("mean", "absent", share)
    }
    lost = [
        float(reference[one["seed"]] - one["score"])
        for one in runs
        if (one["rule"], one["attack"], one["share"]) == (rule, attack, share)
    ]
    return mean(lost)


def _cell(lost: float) -> str:
    """Points lost; bold where the goal is met."""
    text = f"{lost:.1f}".replace("-0.0", "0.0")
    return f"**{text}**" if lost <= GOAL else text


def attacks() -> str:
    """Every method and attack: points lost with the mean, and with norm clipping."""
    files = {method: read(_path(method)) for method in METHODS}
    rows = []
    for method, label in METHODS.items():
        for attack in _attacks(files[method]):
            cells = [
                f"{_lost(files[method], 'mean', attack, share):.1f} → "
                + _cell(_lost(files[method], "norm_clipping", attack, share))
                for share in SHARES
            ]
            rows.append([label, attack, *cells])
    head = ("points lost: mean → norm clipping", "attack", *_heads())
    return table(head, rows, *map(_path, METHODS), note=_note(files))


def rules() -> str:
    """Every rule at 10 % hostile, and what it costs without an attack."""
    files = {method: read(_path(method)) for method in METHODS}
    rows = []
    for method, label in METHODS.items():
        made = files[method]
        plain = mean(_scores(made, "mean", "none"))
        honest = [f"{plain - mean(_scores(made, rule, 'none')):.1f}" for rule in RULES]
        rows.append([label, "none", "0.0", *honest])
        for attack in _attacks(made):
            lost = {rule: _lost(made, rule, attack, 0.1) for rule in ("mean", *RULES)}
            rows.append([label, attack, f"{lost['mean']:.1f}", *(_cell(lost[rule]) for rule in RULES)])
    head = ("points lost at 10 % hostile", "attack", "mean", *RULES.values())
    return table(head, rows, *map(_path, METHODS), note=_note(files))


def backdoors() -> str:
    """How often a marked example is taken for the target."""
    files = {method: read(_path(method)) for method in METHODS}
    rows = []
    for method, label in METHODS.items():
        for rule in ("mean", "norm_clipping"):
            runs = [one for one in files[method]["runs"].values() if one["rule"] == rule]
            opened = [
                mean(one.get("opened", 0.0) for one in runs if _is(one, "backdoor", share))
                for share in SHARES
            ]
            rows.append([label, rule, *(f"{value:.0f} %" for value in opened)])
    head = ("marked examples taken for the target", "rule", *_heads())
    return table(head, rows, *map(_path, METHODS))


def _heads() -> list[str]:
    return [f"{100 * share:.0f} % hostile" for share in SHARES]


def _is(one: Made, attack: str, share: float) -> bool:
    return (one["attack"], one["share"]) == (attack, share)


def _scores(made: Made, rule: str, attack: str) -> list[float]:
    return [r["score"] for r in made["runs"].values() if (r["rule"], r["attack"]) == (rule, attack)]


def _attacks(made: Made) -> list[str]:
    found = dict.fromkeys(one["attack"] for one in made["runs"].values())
    return [attack for attack in found if attack not in ("none", "absent")]


def _note(files: dict[str, Made]) -> str:
    seeds = {one["seed"] for made in files.values() for one in made["runs"].values()}
    honest = {method: mean(_scores(made, "mean", "none")) for method, made in files.items()}
    plain = ", ".join(f"{label} {honest[method]:.1f}" for method, label in METHODS.items())
    return (
        f"Means over {len(seeds)} seeds. Lost: points below the plain mean of the same federation "
        f"without its hostile clients. Bold: at most {GOAL:g}. All honest, plain mean: {plain}."
    )
