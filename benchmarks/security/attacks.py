"""Seven attacks by 10, 20 and 30 % of the clients, with and without a robust rule: what they cost.

    python -m benchmarks.security.attacks --workers 16   # all: results/attacks/METHOD.json
    python -m benchmarks.security.attacks fedaws --rules mean norm_clipping --minutes 5
    python -m benchmarks.security.attacks --tuning --workers 16   # which settings suit each rule

The reference of a run is the same federation without its hostile clients: what attackers cost by holding
back their own examples is not the attack's. What a run reached is written within seconds, with its seed
and its commit, and the config of each rule; a run that is there already is not made again.

With --tuning every setting of every rule is tried on other seeds, judged by a fifth of the examples that
clients hold. Later runs take the setting that was best there, on average over the attacks.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import record
from benchmarks.common.command import command, duration, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.security.cases import ABSENT, RULES, SHARES, Case, cases_of, chosen, guards_of
from benchmarks.security.hostile import ATTACKS, HostileSimulator, poisoned, with_mark
from benchmarks.security.results import Results
from benchmarks.security.scenarios import SCENARIOS, Scenario
from spreadout.config.experiment import Experiment
from spreadout.core.state import ServerState
from spreadout.data.splits import Splits
from spreadout.evaluation.evaluate import evaluate
from spreadout.federated.checks import MOST_EXAMPLES
from spreadout.federated.claims import claim_cap
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round
from spreadout.runs.build import build_federation

TUNING_SEED = 1000  # the first of those that settings are chosen with


def run(case: Case, *, tuning: bool = False) -> dict[str, Any]:
    """Train under attack; the accuracy on clean examples, and of a backdoor how often it opens."""
    started = time.process_time()
    scenario, experiment = case.scenario, case.experiment()
    data = (scenario.tuning_data if tuning else scenario.data)(case.seed)
    hostile = case.hostile(data.train.clients)
    attack = ATTACKS.get(case.attack)
    if case.attack == ABSENT:
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
    if case.attack == "backdoor":
        marked = replace(data, test=with_mark(data.test))
        found["opened"] = _score(federation, state, marked, scenario) if sound else 0.0
    return {**found, "seconds": round(time.process_time() - started, 2)}


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


def make(
    cases: Iterable[Case], results: Mapping[str, Results], workers: int, until: float, *, tuning: bool
) -> int:
    """Run the cases, and begin none after that time; how many are left."""
    commit, left = record.commit(), 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, torch.set_num_threads, (1,)) as pool:
        under_way = {pool.submit(run, case, tuning=tuning): case for case in cases}
        for done in as_completed(under_way):
            if done.cancelled():
                left += 1
                continue
            case = under_way[done]
            results[case.method].add(case, done.result(), commit)
            print(f"{case.method}: {case.key}: {done.result()}", flush=True)
            if time.monotonic() > until:
                for one in under_way:
                    one.cancel()
    return left


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("methods", nargs="*", metavar="method", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--out", type=Path, default=RESULTS / "attacks")
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES))
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--tuning", action="store_true", help="try every setting on validation data")
    parser.add_argument("--minutes", type=duration, default=1e6, help="begin no run after so many")
    a = parser.parse_args()
    if unknown := set(a.methods) - set(SCENARIOS):
        parser.error(f"no method {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    until = time.monotonic() + 60 * a.minutes
    results, guards = {}, {}
    for method in a.methods or SCENARIOS:
        tried = Results.open(method, a.out / f"{method}-tuning.json")
        if a.tuning:
            results[method] = tried
            guards[method] = [guard for rule in a.rules for guard in guards_of(rule)]
        else:
            results[method] = Results.open(method, a.out / f"{method}.json")
            guards[method] = [chosen(tried.runs.values(), rule) for rule in a.rules]
            results[method].keep_only(guards[method])
    seeds = [TUNING_SEED * a.tuning + number for number in range(a.seeds)]
    asked = dict.fromkeys(cases_of(guards, a.attacks, a.shares, seeds))
    missing = [case for case in asked if not results[case.method].has(case)]
    left = make(missing, results, a.workers, until, tuning=a.tuning)
    for one in results.values():
        one.write()
    print(f"{len(missing) - left} runs made, {left} left" + "; the same command goes on" * bool(left))


if __name__ == "__main__":
    command(main)
