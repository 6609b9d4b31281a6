"""Seven attacks by 10, 20 and 30 % of the clients, with and without a robust rule: what they cost.

    python -m benchmarks.security.attacks fedaws --minutes 5
    python -m benchmarks.security.attacks fedaws fedss fedmlh dual_encoder --rules mean norm_clipping

What a run reached is written to results/attacks/METHOD.json as soon as it is done, with its seed and its
commit, and the config of each rule; a run that is there already is not made again. The reference of a
run is the same federation without its hostile clients: what attackers cost by holding back their own
examples is not the attack's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import record
from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.security.hostile import ATTACKS, HostileSimulator, poisoned, with_mark
from benchmarks.security.scenarios import SCENARIOS, Scenario
from spreadout.config.experiment import Experiment
from spreadout.core.randomness import generator
from spreadout.core.state import ServerState
from spreadout.data.dataset import Splits
from spreadout.evaluation.evaluate import evaluate
from spreadout.federated.checks import MOST_EXAMPLES
from spreadout.federated.claims import WHERE_DEPLOYED, claim_cap
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round
from spreadout.runs.build import build_federation

SHARES = (0.1, 0.2, 0.3)
# What each rule is given, chosen with one seed on a fifth of the clients' own examples (`--tuning`). All
# but the plain mean go with a cap on claims, as in a deployment.
APART = ["server.robust.rows=false"]
RULES: dict[str, list[str]] = {
    "mean": [],
    "norm_clipping": [],
    "median": [*APART, "server.robust.bucket=3"],
    "trimmed_mean": [*APART, "server.robust.bucket=2", "server.robust.trim=0.3"],
    "geometric_median": [*APART, "server.robust.bucket=2"],
    "centred_clipping": [],
}


@dataclass(frozen=True)
class Case:
    """One run: who attacks how, and what guards."""

    scenario: Scenario
    rule: str
    attack: str  # "none": all are honest; "absent": the hostile ones are not there
    share: float
    seed: int

    @property
    def key(self) -> str:
        return f"{self.rule}, {self.attack}, {self.share:g}, {self.seed}"

    def experiment(self) -> Experiment:
        guard = [f"server.robust={self.rule}", *RULES[self.rule]]
        if self.scenario.alike:  # averaging first is for clients that differ
            guard = [setting for setting in guard if "bucket" not in setting]
        cap = 1.0 if self.rule == "mean" else WHERE_DEPLOYED
        return self.scenario.experiment(self.seed, *guard, f"server.claim_quantile={cap}")


def hostile_of(clients: int, share: float, seed: int) -> Tensor:
    """Who is hostile: drawn by seed, the same for every rule and attack."""
    drawn = generator(seed, "hostile").permutation(clients)[: round(share * clients)]
    return torch.from_numpy(drawn).sort().values


def run(case: Case, *, tuning: bool = False) -> dict[str, Any]:
    """Train under attack; the accuracy on clean examples, and of a backdoor how often it opens."""
    scenario, experiment = case.scenario, case.experiment()
    data = (scenario.tuning_data if tuning else scenario.data)(case.seed)
    hostile = hostile_of(data.train.clients, case.share, case.seed)
    attack = ATTACKS.get(case.attack)
    if case.attack == "absent":
        there = torch.arange(data.train.clients)
        data = replace(data, train=data.train.part(there[~torch.isin(there, hostile)]))
    elif attack is not None:
        data = poisoned(data, attack, hostile)
    federation = build_federation(experiment, data, torch.device("cpu"))
    if attack is not None:
        federation = _attacked(federation, experiment, case, hostile)
    state = ServerState(0, *federation.model.initial(experiment.seed, federation.device))
    for _ in range(experiment.rounds):
        run_round(federation, state)
    sound = all(bool(value.isfinite().all()) for value in state.dense.values())
    found = {"score": _score(federation, state, data, scenario) if sound else 0.0}
    if case.attack == "backdoor" and sound:
        marked = replace(data, test=with_mark(data.test))
        found["opened"] = _score(federation, state, marked, scenario)
    return found


def _attacked(federation: Federation, e: Experiment, case: Case, hostile: Tensor) -> Federation:
    """With hostile clients among the others, and the cap that their claims would lead to."""
    f, attack = federation, ATTACKS[case.attack]
    server = f.server
    if attack.claims:
        claims = e.clients.schedule.usable(f.data.sizes).copy()
        claims[hostile.numpy()] = MOST_EXAMPLES
        server = replace(server, claim_cap=claim_cap(claims, e.server.claim_quantile or 1.0))
    return replace(f, executor=HostileSimulator(attack=attack, hostile=hostile), server=server)


def _score(f: Federation, state: ServerState, data: Splits, scenario: Scenario) -> float:
    found = evaluate(f.model, state, data.test, [scenario.metric])
    return round(float(found.metrics[scenario.metric]), 3)


def cases_of(
    scenario: Scenario, rules: list[str], attacks: list[str], shares: list[float], seeds: int
) -> Iterator[Case]:
    """Those asked for, the references of each share first."""
    for seed in range(seeds):
        for rule in rules:
            yield Case(scenario, rule, "none", 0.0, seed)
            for share in shares:
                yield Case(scenario, rule, "absent", share, seed)
        for share in shares:
            for attack in attacks:
                for rule in rules:
                    yield Case(scenario, rule, attack, share, seed)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("methods", nargs="+", choices=list(SCENARIOS))
    parser.add_argument("--out", type=Path, default=RESULTS / "attacks")
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES))
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tuning", action="store_true", help="judge by a fifth of the training part")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes of processor time")
    a = parser.parse_args()
    torch.set_num_threads(1)
    for method in a.methods:
        results = Results.open(SCENARIOS[method], a.out / f"{method}{'-tuning' * a.tuning}.json")
        for case in cases_of(SCENARIOS[method], a.rules, a.attacks, a.shares, a.seeds):
            if a.minutes is not None and time.process_time() > 60 * a.minutes:
                print(f"{a.minutes:g} minutes are over; the same command goes on")
                return
            if not results.has(case):
                started = time.process_time()
                found = run(case, tuning=a.tuning)
                results.add(case, {**found, "seconds": round(time.process_time() - started, 2)})


@dataclass
class Results:
    """What has been reached so far with a method, in a file."""

    scenario: Scenario
    path: Path
    configs: dict[str, str]  # by rule; the seed is the run's
    runs: dict[str, dict[str, Any]]

    @classmethod
    def open(cls, scenario: Scenario, path: Path) -> Results:
        made = record.read(path) if path.is_file() else {"configs": {}, "runs": {}}
        return cls(scenario, path, made["configs"], made["runs"])

    def has(self, case: Case) -> bool:
        return case.key in self.runs and self.configs.get(case.rule) == _config(case)

    def add(self, case: Case, found: dict[str, Any]) -> None:
        if self.configs.get(case.rule) != _config(case):  # runs with another config are others
            self.runs = {key: one for key, one in self.runs.items() if one["rule"] != case.rule}
            self.configs[case.rule] = _config(case)
        about = {"rule": case.rule, "attack": case.attack, "share": case.share, "seed": case.seed}
        self.runs[case.key] = {**about, **found, "commit": record.commit()}
        print(f"{case.scenario.name}: {case.key}: {found}", flush=True)
        metric = {"method": case.scenario.name, "metric": case.scenario.metric}
        record.write(self.path, {**metric, "configs": self.configs, "runs": self.runs})


def _config(case: Case) -> str:
    return replace(case, seed=0).experiment().to_toml()


if __name__ == "__main__":
    command(main)
