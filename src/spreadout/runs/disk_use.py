"""How large a run's folder will be: what it holds is known beforehand, file by file.

Tensors are counted to the byte, texts by one of their kind: a line of a log, the summary of a few
rounds. What only a deployment writes, its refusals and its `deployment/`, is not foretold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from spreadout.config.experiment import Experiment
from spreadout.core.files import as_json, json_bytes
from spreadout.core.state import ServerState
from spreadout.core.tensor_files import tensor_file_bytes
from spreadout.core.types import Record
from spreadout.data.splits import Splits
from spreadout.evaluation.early_stopping import CHANCE, VALIDATION, judged_by
from spreadout.evaluation.projection import projection_of
from spreadout.evaluation.references import ReferenceSet
from spreadout.federated.cohort import draw_clients, draw_cohort
from spreadout.federated.federation import Federation
from spreadout.runs import checkpoint
from spreadout.runs.details import details_of
from spreadout.runs.evidence import evidence
from spreadout.runs.folder import model_tensors, request_records
from spreadout.runs.keeping import keep_
from spreadout.runs.predict import Predictor
from spreadout.runs.summary import summarize

LOOKS = 32  # cohorts whose requests are written out
DRAWN = 2000  # rounds whose cohorts are drawn, to know how many clients ever take part
REFERENCES = 400  # bytes of references in the summary, where there are some
SUMS = 500  # bytes of `SHA256SUMS`
POINTER = 1500  # bytes of `state.json` besides the names of its tensors


@dataclass(frozen=True)
class DiskUse:
    """Bytes of the folder when the run has ended, and at most while it runs."""

    at_end: int
    peak: int


def disk_use(
    e: Experiment, splits: Splits, f: Federation, state: ServerState, record: Record
) -> DiskUse:
    """state: after a few rounds; record: of one evaluation, as it is logged."""
    if e.eval.keep == "best":  # a second model, and its scores
        state = replace(state)
        keep_(state)
        record |= {VALIDATION + name: 100 / 3 for name in judged_by(e.eval)} | {CHANCE: 1 / 3}
    tensors = checkpoint.tensors_of(state)
    saved = tensor_file_bytes(tensors) + POINTER + len(json.dumps(list(tensors), indent=2))
    saved += _of_clients_to_come(f, state)
    evaluations = 1 + -(-e.rounds // e.eval.every)
    written = len(e.to_toml()) + SUMS + evaluations * (len(as_json(record)) + 1) + _requests(e, f)
    summary = summarize(e, splits, f, state, [record], 1.0, ReferenceSet(), [])
    asked = Predictor.of(e.data, splits, f, state)
    left = tensor_file_bytes(model_tensors(state))
    left += len(json_bytes(summary)) + REFERENCES * bool(e.eval.references)
    left += len(json_bytes(asked.about([])))
    if "classes" in state.tables:
        left += len(json_bytes(projection_of(f.model, state, splits.test)))
    left += len(json_bytes(evidence(f, state))) + len(json_bytes(details_of(f, state, splits.test)))
    at_end = written + saved + left
    return DiskUse(at_end, max(at_end, written + 2 * saved))  # a checkpoint is replaced by a whole one


def _of_clients_to_come(f: Federation, state: ServerState) -> int:
    """What stays with clients that have not taken part yet, in the checkpoint at the end."""
    known = max((len(part.clients) for part in state.clients.values()), default=0)
    if not known:
        return 0
    seen: set[int] = set()
    for round in range(min(f.rounds, DRAWN)):
        seen.update(draw_clients(f, round).tolist())
    rest = (1 - f.server.per_round / f.data.clients) ** max(f.rounds - DRAWN, 0)
    at_end = f.data.clients - (f.data.clients - len(seen)) * rest  # the rest is not drawn, but expected
    each = sum(part.values[0].nbytes + part.clients[0].nbytes for part in state.clients.values())
    return int((at_end - known) * each)


def _requests(e: Experiment, f: Federation) -> int:
    """Bytes of `requests.jsonl`."""
    if not e.run.log_requests or f.method.is_centralized:
        return 0
    looks = min(LOOKS, e.rounds)
    cohorts = [draw_cohort(f, e.rounds * look // looks) for look in range(looks)]
    heard = (one for cohort in cohorts for one in f.executor.heard_requests(f, cohort))
    lines = [as_json(one) + "\n" for one in request_records(heard)]
    return sum(map(len, lines)) * e.rounds // looks
