"""What `spreadout deploy init` writes: a Flower project around a config, ready to be run and changed."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterable
from importlib.resources import files as resources
from importlib.util import find_spec
from pathlib import Path
from string import Template

from spreadout.config.experiment import Experiment
from spreadout.config.keys import with_value
from spreadout.config.sound import prepared, settled
from spreadout.core.errors import UserError
from spreadout.data.splits import Splits
from spreadout.evaluation.metrics import find_metric
from spreadout.flower.node_tables import AGREED, AgreedColumns
from spreadout.flower.server_app import refuse_misfits

PACKAGE = "deployed"
NOTHING_CHOSEN = "nothing is chosen from the config's data, which cannot be read here"
TEMPLATES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "client.py": f"{PACKAGE}/client.py",
    "server.py": f"{PACKAGE}/server.py",
    "data.py": f"{PACKAGE}/data.py",
}


def write_project(
    folder: Path, experiment: Experiment, warn: Callable[[str], object] = lambda _: None
) -> list[Path]:
    """The files of a project that runs this experiment; an existing folder must be empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists and is not empty; choose another folder")
    experiment, splits = _completed(experiment, warn)
    refuse_misfits(experiment, experiment.method)
    modules = own_modules(experiment.imports)
    values = {
        "name": experiment.name,
        "project": experiment.name.lower().replace(".", "-").replace("_", "-").strip("-") or "run",
        "method": experiment.method.name,
        "collects": "needs" if experiment.method.needs_shared_key else "does not need",
        "nodes": str(experiment.deploy.nodes),
    }
    written = []
    for template, place in TEMPLATES.items():
        text = resources("spreadout.flower.templates").joinpath(f"{template}.txt").read_text("utf-8")
        written.append(_write(folder / place, Template(text).substitute(values)))
    written.append(_write(folder / PACKAGE / "__init__.py", '"""The deployed app."""\n'))
    written.append(_write(folder / PACKAGE / "experiment.toml", experiment.to_toml()))
    agreed = None if splits is None else AgreedColumns.of(experiment, splits)
    if agreed is not None:
        written.append(_write(folder / PACKAGE / AGREED, agreed.to_toml()))
    written += [_write(folder / place, text) for place, text in modules.items()]
    return written


def complete(experiment: Experiment) -> Experiment:
    """The config that server and nodes share: what it leaves open is chosen here, from its data.

    Nobody sees all data later. Where it is not here either, the plain defaults are left.
    """
    return _completed(experiment, lambda _: None)[0]


def _completed(
    experiment: Experiment, warn: Callable[[str], object]
) -> tuple[Experiment, Splits | None]:
    """The same with the data it was chosen from; None: they are not here."""
    try:
        chosen, splits = prepared(experiment)
    except UserError as error:
        warn(f"{NOTHING_CHOSEN}: {error}")
        return settled(experiment), None
    if "eval.metrics" not in (chosen.chosen or []):
        return chosen, splits
    known = [name for name in chosen.eval.metrics if "frequencies" not in find_metric(name).needs]
    # Of those that a deployment's server can have.
    return with_value(chosen, "eval.metrics", known), splits


def own_modules(names: Iterable[str]) -> dict[str, str]:
    """The source of modules that a config imports, by place; those installed as packages are not copied.

    Flower carries them to every node with the rest of the project.
    """
    installed = [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib", "platlib")]
    found: dict[str, str] = {}
    for top in dict.fromkeys(name.partition(".")[0] for name in names):
        spec = find_spec(top)
        folders = list(spec.submodule_search_locations or []) if spec else []
        if spec is None or not (folders or spec.origin):
            continue
        home = Path(folders[0] if folders else str(spec.origin)).resolve()
        if any(home.is_relative_to(place) for place in installed):
            continue
        if top == PACKAGE:
            raise UserError(f"imports: a module named {top} is the project's own; rename yours")
        files = sorted(home.rglob("*.py")) if folders else [home]  # a package with all that is in it
        for file in files:
            found[str(file.relative_to(home.parent))] = file.read_text(encoding="utf-8")
    return found


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
