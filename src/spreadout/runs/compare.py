"""Several variants over several seeds: run them, gather what they left, set them side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spreadout.config.experiment import Experiment, overlay, read_toml
from spreadout.config.explain import explain
from spreadout.core.errors import UserError
from spreadout.core.files import write_json
from spreadout.data import load as splits
from spreadout.runs.arms import Arm, as_json, gather
from spreadout.runs.build import build_federation, pick_device
from spreadout.runs.folder import COMPARISON_MARK, RunFolder, remove_run
from spreadout.runs.train import Observer, resume, run


class SuiteConfig(BaseModel):
    """A suite file: a base, and what each variant changes of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("comparison", pattern=r"^[A-Za-z0-9._-]+$")
    base: str | None = None
    seeds: list[Annotated[int, Field(ge=0)]] = Field([0], min_length=1)
    common: dict[str, Any] = {}  # what all of them change of it
    variants: dict[str, dict[str, Any]] = Field(min_length=1)


@dataclass(frozen=True)
class Suite:
    """Variants by name, each an experiment; every one is run once per seed."""

    name: str
    seeds: tuple[int, ...]
    variants: Mapping[str, Experiment]
    labels: Mapping[str, str]

    @classmethod
    def load(
        cls, sources: Sequence[str], seeds: Sequence[int] | None, overrides: Sequence[str] = ()
    ) -> Suite:
        """One suite file (it has `[variants]`), or any number of configs as variants."""
        for source in sources:
            if "=" in source and not Path(source).exists():
                raise UserError(f"{source}: change settings of all variants with --set {source}")
            if (Path(source) / "config.toml").is_file():
                raise UserError(
                    f"{source}: is the folder of a run; spreadout report sets finished runs side by side"
                )
        first = read_toml(sources[0])
        if "variants" in first:
            if len(sources) > 1:
                raise UserError(f"{sources[0]}: is a suite; give one suite, or several configs")
            return cls._from_suite(sources[0], first, seeds, overrides)
        experiments = [Experiment.load(source, overrides) for source in sources]
        variants = {experiment.name: experiment for experiment in experiments}
        if len(variants) < len(sources):
            ((name, _),) = Counter(experiment.name for experiment in experiments).most_common(1)
            raise UserError(
                f"name = {name!r}: two of the configs have it; rename one, it tells runs apart"
            )
        chosen = tuple(seeds or sorted({experiment.seed for experiment in experiments}))
        return cls("comparison", chosen, variants, {name: name for name in variants})

    @classmethod
    def _from_suite(
        cls,
        source: str,
        values: Mapping[str, Any],
        seeds: Sequence[int] | None,
        overrides: Sequence[str],
    ) -> Suite:
        try:
            suite = SuiteConfig.model_validate(values)
        except ValidationError as error:
            raise UserError(explain(error, source, SuiteConfig, values)) from None
        base = read_toml(_beside(source, suite.base)) if suite.base else {}
        variants, labels = {}, {}
        for name, changes in suite.variants.items():
            own = dict(changes)
            labels[name] = str(own.pop("label", name))
            merged = {**overlay(overlay(base, suite.common), own), "name": name}
            variants[name] = Experiment.of(merged, f"{source}: variants.{name}", overrides)
        return cls(suite.name, tuple(seeds or suite.seeds), variants, labels)


def compare(
    suite: Suite,
    out: Path,
    *,
    force: bool = False,
    go_on: bool = False,
    device: str = "auto",
    observer: Callable[[str, int], Observer] = lambda variant, seed: Observer(),
    stop: Callable[[], bool] = lambda: False,
) -> list[Arm]:
    """Run every variant under every seed below `out`; write `comparison.json` beside them.

    With `go_on`, runs already finished there are kept and the one cut short is resumed.
    """
    where = pick_device(device)
    _check(suite, where)  # before anything is written or replaced
    taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
    if taken and go_on and not (out / COMPARISON_MARK).is_file():
        raise UserError(f"{out}: is not the folder of a comparison; there is nothing to resume")
    if taken and not go_on:
        if not force:
            raise UserError(f"{out}: exists; --resume to go on with it, or --force to replace it")
        remove_run(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / COMPARISON_MARK).touch()
    for variant, experiment in suite.variants.items():
        for seed in suite.seeds:
            seeded = experiment.model_copy(update={"seed": seed})
            folder = out / variant / f"seed-{seed}"
            watch = observer(suite.labels[variant], seed)
            if go_on and _was_started(folder, seeded):
                if not RunFolder(folder).finished:
                    resume(folder, device=device, observer=watch, stop=stop)
            else:
                run(seeded, out=folder, device=device, observer=watch, stop=stop, force=go_on)
    arms = [
        gather(name, suite.labels[name], [out / name / f"seed-{seed}" for seed in suite.seeds])
        for name in suite.variants
    ]
    table = {
        "name": suite.name,
        "seeds": list(suite.seeds),
        "variants": [as_json(arm) for arm in arms],
    }
    write_json(out / "comparison.json", table)
    return arms


def _check(suite: Suite, device: torch.device) -> None:
    """Build every variant once, so that a bad one is told of first; data they share is read once."""
    distinct = {experiment.data for experiment in suite.variants.values()}
    held = {data: splits.load_data(data, suite.seeds[0]) for data in distinct}
    for experiment in suite.variants.values():
        build_federation(experiment, held[experiment.data], device)


def _was_started(folder: Path, experiment: Experiment) -> bool:
    """Whether a run of exactly this experiment can be gone on with."""
    if not (folder / "checkpoint" / "state.json").is_file():
        return False
    if Experiment.load(folder / "config.toml") != experiment:
        raise UserError(f"{folder}: was run with another config; use --force to run all afresh")
    return True


def _beside(source: str, base: str) -> str:
    """A suite's base: a preset, or a path seen from the suite file."""
    near = Path(source).parent / base
    return str(near) if near.is_file() else base
