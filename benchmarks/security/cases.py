"""The runs of the attack benchmark: which method, attacked how and by how many, guarded by what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from benchmarks.security.scenarios import SCENARIOS, Scenario
from spreadout.config.experiment import Experiment
from spreadout.core.randomness import generator
from spreadout.federated.claims import WHERE_DEPLOYED

SHARES = (0.1, 0.2, 0.3)
NONE, ABSENT = "none", "absent"  # all are honest; the hostile ones are not there
MEAN, DEFAULT = "mean", "norm_clipping"  # no rule; that of a deployment
APART = "server.robust.rows=false"
GUESSED = "server.robust.trim={share}"  # the operator has guessed the share of hostile clients
# Of each rule, the settings that are tried on validation data; the first are its defaults. All but the
# plain mean go with a cap on claims, as in a deployment.
RULES: dict[str, list[list[str]]] = {
    MEAN: [[]],
    DEFAULT: [[], *([f"server.robust.quantile={q}"] for q in (0.2, 0.35, 0.5))],
    "median": [[], [APART], [APART, "server.robust.bucket=3"]],
    "trimmed_mean": [
        [GUESSED],
        [GUESSED, APART],
        [APART, "server.robust.trim=0.4", "server.robust.bucket=2"],
    ],
    "geometric_median": [[], [APART], [APART, "server.robust.bucket=2"]],
    "spectral": [[GUESSED]],
    "centred_clipping": [
        [],
        ["server.robust.quantile=0.35"],
        ["server.robust.quantile=0.2"],
        ["server.robust.momentum=0.5"],
    ],
}


@dataclass(frozen=True)
class Guard:
    """A rule with its settings beyond its defaults."""

    rule: str
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join([self.rule, *(one.removeprefix("server.robust.") for one in self.settings)])


@dataclass(frozen=True)
class Case:
    """One run."""

    method: str
    guard: Guard
    attack: str  # one of ATTACKS, NONE or ABSENT
    share: float
    seed: int

    @property
    def key(self) -> str:
        return f"{self.guard}; {self.attack}; {self.share:g}; {self.seed}"

    @property
    def scenario(self) -> Scenario:
        return SCENARIOS[self.method]

    def experiment(self) -> Experiment:
        rule, cap = self.guard.rule, 1.0 if self.guard.rule == MEAN else WHERE_DEPLOYED
        share = self.share or SHARES[0]
        given = [one.format(share=share) for one in self.guard.settings]
        return self.scenario.experiment(
            self.seed, f"server.robust={rule}", *given, f"server.claim_quantile={cap}"
        )

    def hostile(self, clients: int) -> Tensor:
        """Who is hostile: drawn by seed, the same for every rule and attack."""
        drawn = generator(self.seed, "hostile").permutation(clients)[: round(self.share * clients)]
        return torch.from_numpy(drawn).sort().values


@cache
def _config(method: str, guard: Guard) -> str:
    return Case(method, guard, NONE, 0.0, 0).experiment().to_toml()


def config_of(case: Case) -> str:
    """As text, the same for all attacks and seeds; `trim` as it is for the smallest share."""
    return _config(case.method, case.guard)


def guards_of(rule: str) -> list[Guard]:
    """A rule with each of its settings, its defaults first."""
    return [Guard(rule, tuple(settings)) for settings in RULES[rule]]


def chosen(runs: Iterable[Mapping[str, Any]], rule: str) -> Guard:
    """The settings that did best in tuning, on average over the attacks; the defaults without any runs.

    The rule of a deployment is judged as it comes.
    """
    guards = guards_of(rule)
    scores: dict[str, list[float]] = {str(guard): [] for guard in guards}
    for one in runs:
        if one["guard"] in scores and one["attack"] not in (NONE, ABSENT):
            scores[one["guard"]].append(one["score"])
    if rule == DEFAULT or not all(scores.values()):
        return guards[0]
    return max(guards, key=lambda guard: mean(scores[str(guard)]))


def cases_of(
    guards: Mapping[str, Sequence[Guard]],
    attacks: Sequence[str],
    shares: Sequence[float],
    seeds: Sequence[int],
) -> Iterator[Case]:
    """Of each method those asked for; first the smallest share, then the mean and the default rule."""
    for at, some in ((shares[:1], RULES), (shares[1:], (MEAN, DEFAULT)), (shares[1:], RULES)):
        for seed in seeds:
            for method, own in guards.items():
                for guard in (one for one in own if one.rule in some):
                    yield Case(method, guard, NONE, 0.0, seed)
                    for share in at:
                        for attack in (ABSENT, *attacks):
                            yield Case(method, guard, attack, share, seed)
