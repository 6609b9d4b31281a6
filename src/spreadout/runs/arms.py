"""Finished runs as the arms of a comparison: read back from their folders, and shown as numbers."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spreadout.config.values import imports_of, read_toml
from spreadout.core.checksums import CHECK, read_json, unsealed
from spreadout.core.errors import UserError
from spreadout.core.registry import import_modules
from spreadout.core.types import Record
from spreadout.core.written import as_written
from spreadout.evaluation.references import Reference, best_central
from spreadout.runs.claim import COMPARISON_MARK, CONFIG
from spreadout.runs.deployed import Deployed, deployed_of
from spreadout.runs.files import RunFiles
from spreadout.runs.logs import METRICS, REMEDY
from spreadout.runs.sums import check
from spreadout.runs.unfinished import summary_so_far
from spreadout.runs.written import ComparisonTable

COMPARISON = "comparison.json"
SHOWN_GEOMETRY = {
    "max_cosine": "largest cosine",
    "mean_cosine": "mean cosine",
    "effective_rank": "effective rank",
    "error_bound": "error bound",
}


@dataclass(frozen=True)
class Arm:
    """One variant's finished runs, one per seed."""

    name: str
    label: str
    summaries: list[dict[str, Any]]
    histories: list[list[Record]]
    projection: dict[str, Any] | None
    privacy: dict[str, Any] | None = None  # what clients gave away, where the run wrote it down
    details: dict[str, Any] | None = None  # by class and by client, of the first seed
    names: Sequence[str] = ()  # of classes
    config: Mapping[str, Any] = field(default_factory=dict)  # as the first seed was run
    deployed: Deployed | None = None  # what its server told of its nodes, if it ran over Flower

    def metric(self, name: str) -> list[float]:
        return [_number(summary["metrics"][name]) for summary in self.summaries]

    def geometry(self, name: str) -> float | None:
        """Mean over seeds; None where a run has none (no bound from a sample of the classes)."""
        found = [summary["geometry"].get(name) for summary in self.summaries]
        return None if None in found else statistics.fmean(found)

    @property
    def is_central(self) -> bool:
        """Whether all data is in one place; summaries of earlier versions do not say it."""
        moved = bool(self.summaries[0]["bytes"]["participations"])
        return bool(self.summaries[0].get("is_centralized", not moved))

    @property
    def metric_names(self) -> list[str]:
        return list(self.summaries[0]["metrics"])

    def bytes_per_visit(self, direction: str) -> float:
        """Bytes one client moves in one round it takes part in; 0 for data in one place."""
        moved = sum(summary["bytes"][direction] for summary in self.summaries)
        visits = sum(summary["bytes"]["participations"] for summary in self.summaries)
        return moved / visits if visits else 0.0


def gather(name: str, label: str, folders: Sequence[Path]) -> Arm:
    """Read runs back from their folders; of those that are not finished what their checkpoints tell."""
    runs = [RunFiles(folder) for folder in folders]
    _import_own(folders[0])
    summaries = [run.summary() if run.finished else summary_so_far(run) for run in runs]
    for folder, summary in zip(folders, summaries, strict=True):
        if summary["metrics"].keys() != summaries[0]["metrics"].keys():
            raise UserError(f"{folder}: was evaluated with other metrics than {folders[0]}")
    histories = [run.history(_drawn(summary)) for run, summary in zip(runs, summaries, strict=True)]
    for folder, history in zip(folders, histories, strict=True):
        if not history:
            raise UserError(f"{folder / METRICS}: is missing or empty; {REMEDY}")
    first = runs[0]
    return Arm(
        name,
        label,
        summaries,
        histories,
        *((first.projection(), first.privacy(), first.details()) if first.finished else (None,) * 3),
        first.names() if first.finished else [],
        read_toml(first.config),
        deployed_of(first.path),
    )


def _drawn(summary: Mapping[str, Any]) -> list[str]:
    """What a run has a curve of: every evaluation has a value of it."""
    has_table = summary["geometry"]["max_cosine"] is not None
    return [*summary["metrics"], *(("max_cosine", "effective_rank") if has_table else ())]


def _import_own(folder: Path) -> None:
    """Import the run's own modules: they describe its metrics.

    Where a module is missing, the runs are still shown, with the names of their metrics only.
    """
    check(folder, CONFIG)
    with suppress(UserError):
        import_modules(imports_of(read_toml(folder / CONFIG)))


def arms_of(folder: Path) -> list[Arm]:
    """The runs a folder holds: a comparison's variants, or one run."""
    if (folder / COMPARISON).is_file():
        table = _comparison(folder)
        return [
            gather(v["name"], v["label"], [folder / v["name"] / f"seed-{s}" for s in table["seeds"]])
            for v in table["variants"]
        ]
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    if (folder / COMPARISON_MARK).is_file():
        return _begun(folder)
    RunFiles.open(folder)
    arm = gather(folder.name, folder.name, [folder])
    name, method = (str(arm.summaries[0][key]) for key in ("name", "method"))
    label = name if method in name else f"{method} ({name})"  # the name of a config says little
    return [replace(arm, name=name, label=label)]


def _begun(folder: Path) -> list[Arm]:
    """The variants of a comparison that is going on or was cut short, as far as they were evaluated."""
    seeds: dict[str, list[Path]] = {}
    for one in sorted(folder.glob("*/seed-*")):
        if (one / CONFIG).is_file() and (RunFiles(one).finished or RunFiles(one).has_checkpoint):
            seeds.setdefault(one.parent.name, []).append(one)
    if not seeds:
        raise UserError(f"{folder}: none of its runs has been evaluated yet")
    return [gather(name, name, folders) for name, folders in seeds.items()]


def with_distinct_labels(arms: Sequence[Arm], folders: Sequence[Path]) -> list[Arm]:
    """Runs that have the same name get the name of their folder too, or its path if that is the same."""
    named = Counter(arm.label for arm in arms)
    alike = Counter((arm.label, folder.name) for arm, folder in zip(arms, folders, strict=True))
    found = []
    for arm, folder in zip(arms, folders, strict=True):
        where = folder.name if alike[arm.label, folder.name] == 1 else folder
        found.append(arm if named[arm.label] == 1 else replace(arm, label=f"{arm.label} ({where})"))
    return found


def _comparison(folder: Path) -> dict[str, Any]:
    """What a comparison left, if it is whole; those of earlier versions carry no checksum."""
    path, again = folder / COMPARISON, "`spreadout compare … --resume` writes it again"
    try:
        found = read_json(path)
        plain = unsealed(found) if CHECK in found else found
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}: is damaged ({error}); {again}") from None
    return as_written(ComparisonTable, plain, path, again)


def shown_geometry(arms: Sequence[Arm]) -> list[str]:
    """Geometry that some of them have: methods without a class table have none."""
    return [name for name in SHOWN_GEOMETRY if any(arm.geometry(name) is not None for arm in arms)]


def shared_metrics(arms: Sequence[Arm]) -> list[str]:
    """The metrics all variants have, in the first one's order."""
    names = [n for n in arms[0].metric_names if all(n in arm.metric_names for arm in arms)]
    if not names:
        raise UserError("the runs have no metric in common: evaluate them with the same eval.metrics")
    return names


def shared_references(arms: Sequence[Arm]) -> dict[str, dict[str, dict[str, Any]]]:
    """What the arms are to be compared with: metrics of each reference, as `spread` has them, by label.

    Where arms are scored on different examples, a label says whose a reference is. Of arms that are
    scored on the same ones, those count whose references learned from the most instances: some arms
    keep validation examples back, others do not.
    """
    kinds: dict[tuple[str, ...], list[Arm]] = {}
    for arm in arms:
        if _references(arm):
            kinds.setdefault(tuple(one["scored"] for one in _from(arm)), []).append(arm)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for alike in kinds.values():
        for arm in sorted(alike, key=lambda arm: sum(one["instances"] for one in _from(arm))):
            for name, metrics in _references(arm).items():
                label = name if len(kinds) == 1 else f"{name} ({alike[0].label})"
                known = {metric: spread(values) for metric, values in metrics.items()}
                found[label] = {**found.get(label, {}), **known}
    return found


def _from(arm: Arm) -> list[dict[str, Any]]:
    """What each seed's references learned from, and a fingerprint of what they were scored on."""
    return [summary["references_from"] for summary in arm.summaries]


def _references(arm: Arm) -> dict[str, dict[str, list[float]]]:
    """Reference → metric → its value for each seed, of those that all seeds have."""
    every = [summary["references"] if "references_from" in summary else {} for summary in arm.summaries]
    names = [name for name in every[0] if all(one.get(name, {}).get("metrics") for one in every)]
    return {
        name: {
            metric: [_number(one[name]["metrics"].get(metric)) for one in every]
            for metric in every[0][name]["metrics"]
        }
        for name in names
    }


def unlike_data(arms: Sequence[Arm]) -> str | None:
    """Why scores of these arms cannot be compared, if they cannot."""
    scored = {(arm.summaries[0].get("references_from") or {}).get("scored") or None for arm in arms}
    data = [_data(arm) for arm in arms]
    same = len({one[0] for one in data}) == 1 and len(scored) == 1 and None not in scored
    if len(set(data)) > 1 and not same:
        # As few words as tell them apart.
        few = next(n for n in range(1, len(data[0]) + 1) if len({one[:n] for one in data}) > 1)
        called = dict.fromkeys(" ".join(filter(None, one[:few])) for one in data)
        return (
            f"These runs are of different data: {', '.join(called)}. Their scores stand side by side "
            "but cannot be compared."
        )
    if len(scored - {None}) > 1:
        return "These runs were scored on different held-out examples. Small differences mean nothing."
    return None


def _data(arm: Arm) -> tuple[str, str, str, str]:
    """The data set, its file and its column of labels, as far as known, and how many classes."""
    data = arm.config.get("data") or {}
    source = data.get("source")
    label = source.get("label") if isinstance(source, Mapping) else None
    summary = arm.summaries[0]
    file = Path(data["path"]).name if data.get("path") else ""
    return str(summary["dataset"]), file, str(label or ""), f"({summary['classes']} classes)"


def best_central_of(arms: Sequence[Arm]) -> str | None:
    """The label of the best with all data in one place: an arm that pools it, or a reference.

    By the first metric that all arms have. None where nothing is known, or arms differ in their data or
    in what they were scored on: the best of several tasks is the best of none.
    """
    names = [n for n in arms[0].metric_names if all(n in arm.metric_names for arm in arms)]
    if not names or unlike_data(arms) is not None:
        return None
    candidates = {
        label: Reference(label, {metric: score["mean"] for metric, score in metrics.items()})
        for label, metrics in shared_references(arms).items()
    }
    for arm in arms:
        if arm.summaries[0].get("is_centralized"):
            means = {name: statistics.fmean(arm.metric(name)) for name in arm.metric_names}
            candidates[arm.label] = Reference(arm.label, means)
    best = best_central(candidates, by=names[:1])
    return None if best is None else best.name


def as_json(arm: Arm) -> dict[str, Any]:
    metrics = {name: spread(arm.metric(name)) for name in arm.metric_names}
    return {
        "name": arm.name,
        "label": arm.label,
        "method": arm.summaries[0]["method"],
        "metrics": metrics,
        "bytes_per_client_round": {way: arm.bytes_per_visit(way) for way in ("down", "up")},
        "best": {
            name: statistics.fmean(_number(summary["best"][name]) for summary in arm.summaries)
            for name in arm.summaries[0]["best"]
        },
        "bytes": {
            kind: statistics.fmean(summary["bytes"][kind] for summary in arm.summaries)
            for kind in arm.summaries[0]["bytes"]
        },
        "model_bytes": arm.summaries[0].get("model_bytes"),
        "geometry": {name: arm.geometry(name) for name in SHOWN_GEOMETRY},
        "references": shared_references([arm]),
        "seconds": statistics.fmean(summary["seconds"] for summary in arm.summaries),
    }


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean and sample standard deviation (None for one value), with the values themselves."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "spread": deviation, "values": list(values)}


def shown(score: Mapping[str, Any]) -> tuple[str, str]:
    """A mean and its deviation for people: ("98.5", "± 0.6"), or nothing after one run.

    Small scores have two decimals; one that has no value is a dash.
    """
    if not math.isfinite(score["mean"]):
        return "–", ""
    digits = 1 if score["mean"] >= 10 else 2
    spread = "" if score["spread"] is None else f"± {score['spread']:.{digits}f}"
    return f"{score['mean']:.{digits}f}", spread


def _number(value: float | None) -> float:
    """As it was before it was written: numbers that are not finite are read back as null."""
    return math.nan if value is None else float(value)
