"""Several variants over several seeds: run them, gather what they left, set them side by side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, ValidationError
from torch import nn

from spreadout.config.effect import without_inherited
from spreadout.config.experiment import Experiment, as_experiment
from spreadout.config.presets import preset_beside
from spreadout.config.sound import Held, asks_the_same, prepared
from spreadout.config.unknown_keys import elsewhere
from spreadout.config.values import changes_of, naming_no_other, overlay, read_toml
from spreadout.core.checksums import write_sealed
from spreadout.core.errors import UserError
from spreadout.core.explained import explain
from spreadout.core.files import sweep
from spreadout.core.registry import Section, import_modules
from spreadout.data.splits import Splits
from spreadout.runs.arms import COMPARISON, Arm, as_json, best_central_of, gather
from spreadout.runs.build import build_federation, pick_device
from spreadout.runs.claim import COMPARISON_MARK, CONFIG, Claim, contents, refuse_foreign
from spreadout.runs.comparison import Comparison
from spreadout.runs.folder import RunFolder
from spreadout.runs.observer import Observer
from spreadout.runs.parts import OWN_DATA, as_splits, refuse_nameless
from spreadout.runs.progress import Progress
from spreadout.runs.stopping import stoppable
from spreadout.runs.sums import check
from spreadout.runs.train import resume, run

# A config, a preset, or what one of them says.
Variant = str | Path | Experiment | Mapping[str, Any]
Variants = Variant | Sequence[Variant] | Mapping[str, Variant]


class SuiteConfig(Section):
    """A suite file: a base, and what each variant changes of it."""

    name: str = Field("comparison", pattern=r"^[A-Za-z0-9._-]+$")
    base: str | None = None
    seeds: list[Annotated[int, Field(ge=0)]] = Field([0], min_length=1)
    imports: list[str] = Field(default_factory=list)  # modules that register what it names
    common: dict[str, Any] = Field(default_factory=dict)  # what all of them change of it
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
        return cls._of_experiments([_load(source, overrides) for source in sources], seeds)

    @classmethod
    def of(
        cls, variants: Variants, seeds: Sequence[int] | None = None, data: Splits | None = None
    ) -> Suite:
        """As `so.compare` is given them; data: what all train on, in place of their own."""
        if isinstance(variants, Mapping):
            for name in variants:
                if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
                    raise UserError(
                        f"variant {name!r}: a folder is named so; take letters, digits, . _ -"
                    )
            named = [
                _read(one, data).model_copy(update={"name": name}) for name, one in variants.items()
            ]
            return cls._of_experiments(named, seeds)
        if not hasattr(variants, "__iter__") and not isinstance(variants, Path):
            kind = type(variants).__name__
            raise UserError(f"compare: variants: is a {kind}; give configs, presets or experiments")
        several = [variants] if isinstance(variants, str | Path | Experiment) else list(variants)
        if not several:
            raise UserError("compare: was given no variant; give configs, presets or experiments")
        first = several[0]
        alone = len(several) == 1 and isinstance(first, str | Path)
        if alone and (Path(str(first)).is_dir() or "variants" in read_toml(str(first))):
            return cls.load([str(first)], seeds)
        return cls._of_experiments([_read(one, data) for one in several], seeds)

    @classmethod
    def _of_experiments(cls, experiments: Sequence[Experiment], seeds: Sequence[int] | None) -> Suite:
        variants = {experiment.name: experiment for experiment in experiments}
        if len(variants) < len(experiments):
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
            import_modules(_imports_of(values))  # they may register the base
            suite = SuiteConfig.model_validate(values)
        except ValidationError as error:
            raise UserError(explain(error, source, SuiteConfig, values, elsewhere=elsewhere)) from None
        base = read_toml(_beside(source, suite.base)) if suite.base else {}
        variants, labels = {}, {}
        for name, changes in suite.variants.items():
            own = dict(changes)
            labels[name] = str(own.pop("label", name))
            merged = {**overlay(overlay(base, suite.common), own), "name": name}
            changed = overlay(suite.common, own)
            merged = without_inherited(merged, changed, Experiment.model_validate)
            named = naming_no_other(merged, changes_of(overrides))
            variants[name] = Experiment.of(named, f"{source}: variants.{name}", overrides)
        return cls(suite.name, tuple(seeds or suite.seeds), variants, labels)


def compare(
    variants: Suite | Variants,
    *,
    out: str | Path | None = None,
    seeds: Sequence[int] | None = None,
    data: Splits | Sequence[Any] | None = None,
    encoder: nn.Module | None = None,
    force: bool = False,
    go_on: bool = False,
    device: str = "auto",
    observer: Callable[[str, int], Observer] | None = None,
    progress: bool = True,
    stop: Callable[[], bool] | None = None,
) -> Comparison:
    """Run every variant under every seed and set them side by side.

    variants: configs, presets, experiments or plain values, in a list, or in a dictionary with a name
    for each; or one suite. `data` and `encoder` are for all of them, as in `run`. With `out`, every run
    has a folder below it, and `comparison.json` lies beside them; then `go_on` keeps runs that are
    finished there and resumes the one that was cut short.

    observer: called with the label and the seed of each run, for one that hears it; with it, no bar is
    shown. `progress`, `stop` and Ctrl-C are as in `run`.

    >>> import spreadout as so
    >>> base = so.Experiment(rounds=2, clients={"local_steps": 1})
    >>> found = so.compare({"slow": base, "fast": so.Experiment(rounds=2)})
    >>> [(arm.name, len(arm.summaries)) for arm in found]
    [('slow', 1), ('fast', 1)]
    """
    if seeds is not None and (isinstance(seeds, str) or not hasattr(seeds, "__iter__")):
        raise UserError(f"seeds: is {seeds!r}; give a list of them, such as [0, 1, 2]")
    given = as_splits(data)
    suite = variants if isinstance(variants, Suite) else Suite.of(variants, seeds, given)
    with ExitStack() as held:
        claim = held.enter_context(_claimed(out, force=force, go_on=go_on))
        _check(suite, pick_device(device), given, encoder)  # before anything is replaced
        if claim is not None:
            _make_room(claim, go_on=go_on)
        if observer is None and progress:
            runs = len(suite.variants) * len(suite.seeds)
            observer = held.enter_context(Progress(runs, chosen=claim is not None)).named
        asked = held.enter_context(stoppable(stop))
        parts: dict[str, Any] = {"device": device, "data": given, "encoder": encoder, "stop": asked}
        watch = observer or (lambda label, seed: Observer())
        folder = None if claim is None else claim.path
        arms = [_arm(suite, variant, folder, go_on, watch, parts) for variant in suite.variants]
        if claim is not None:
            shown = [as_json(arm) for arm in arms]
            table = {
                "name": suite.name,
                "seeds": list(suite.seeds),
                "variants": shown,
                "best_central": best_central_of(arms),
            }
            write_sealed(claim.path / COMPARISON, table)
    return Comparison(suite.name, tuple(arms), None if out is None else Path(out))


def _arm(
    suite: Suite,
    variant: str,
    folder: Path | None,
    go_on: bool,
    observer: Callable[[str, int], Observer],
    parts: Mapping[str, Any],
) -> Arm:
    """One variant under every seed; of those in folders what is finished is kept, if it goes on."""
    label, kept, places = suite.labels[variant], [], []
    for seed in suite.seeds:
        seeded = suite.variants[variant].model_copy(update={"seed": seed})
        watch = observer(label, seed)
        if folder is None:
            result = run(seeded, observer=watch, **parts)
            kept.append((result.summary, result.history))
            continue
        places.append(folder / variant / f"seed-{seed}")
        if not (go_on and _was_started(places[-1], seeded)):
            run(seeded, out=places[-1], force=go_on, observer=watch, **parts)
        elif not RunFolder(places[-1]).finished:
            resume(places[-1], observer=watch, **parts)
    if folder is not None:
        return gather(variant, label, places)
    config = suite.variants[variant].model_dump(mode="json")
    return Arm(variant, label, [s for s, _ in kept], [h for _, h in kept], None, config=config)


@contextmanager
def _claimed(out: str | Path | None, *, force: bool, go_on: bool) -> Iterator[Claim | None]:
    """The folder of a comparison, held while it runs; one that is there is gone on with or replaced."""
    if out is None:
        yield None
        return
    path = Path(out)
    there = path.exists() and (not path.is_dir() or bool(contents(path) - {COMPARISON_MARK}))
    if there and go_on and not (path / COMPARISON_MARK).is_file():
        raise UserError(f"{path}: is not the folder of a comparison; there is nothing to resume")
    if there and not go_on:
        if not force:
            raise UserError(
                f"{path}: exists; --resume (go_on=True) to go on with it, or --force (force=True) to "
                "replace it"
            )
        refuse_foreign(path)
    claim = Claim.take(path, COMPARISON_MARK)
    try:
        yield claim
    finally:
        claim.release()


def _make_room(claim: Claim, *, go_on: bool) -> None:
    if go_on:
        sweep(claim.path, (COMPARISON, "report.html"))
        claim.empty_trash()
    else:
        claim.clear()
    claim.begun = True


def _check(suite: Suite, device: torch.device, data: Splits | None, encoder: nn.Module | None) -> None:
    """Build every variant once, so that a bad one is told of first; data they share is read once."""
    held: Held = {}
    for experiment in suite.variants.values():
        seeded = experiment.model_copy(update={"seed": suite.seeds[0]})
        complete, found = prepared(seeded, data, own_encoder=encoder is not None, held=held)
        build_federation(complete, found, device, encoder)


def _was_started(folder: Path, experiment: Experiment) -> bool:
    """Whether a run of exactly this experiment can be gone on with."""
    there = RunFolder(folder)
    if not there.config.is_file() or not there.has_checkpoint:
        return False
    check(folder, CONFIG)
    if not asks_the_same(experiment, Experiment.load(there.config)):
        raise UserError(
            f"{folder}: was run with another config; use --force (force=True) to run all afresh"
        )
    return True


def _read(variant: Variant, data: Splits | None) -> Experiment:
    if isinstance(variant, Mapping) and data is None:
        refuse_nameless(variant, "compare")
    if not isinstance(variant, str | Path):
        return as_experiment(variant)
    return _load(str(variant), replaced={} if data is None else OWN_DATA)


def _beside(source: str, base: str) -> str:
    """A suite's base: a preset, or a path seen from the suite file."""
    near = Path(source).parent / base
    if near.is_file():
        return str(near)
    return (not Path(source).exists() and preset_beside(source, base)) or base


def _load(
    source: str, overrides: Sequence[str] = (), replaced: Mapping[str, Any] | None = None
) -> Experiment:
    """A config by its own name, or by that of its file."""
    found = Experiment.load(source, overrides, replaced)
    file = Path(source)
    if not file.is_file() or "name" in read_toml(source) or "name" in changes_of(overrides):
        return found
    return found.model_copy(update={"name": re.sub(r"[^A-Za-z0-9._-]", "-", file.stem)})


def _imports_of(values: Mapping[str, Any]) -> list[str]:
    """The modules a suite names, for itself or for all its variants."""
    common = values.get("common", {})
    lists = [values.get("imports", []), common.get("imports", []) if isinstance(common, Mapping) else []]
    return [name for some in lists if isinstance(some, list) for name in some if isinstance(name, str)]
