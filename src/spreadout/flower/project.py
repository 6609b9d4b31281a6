"""What `spreadout deploy init` writes: a Flower project around a config, ready to be run and changed."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from string import Template

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.flower.server_app import refuse_misfits

PACKAGE = "deployed"
TEMPLATES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "client.py": f"{PACKAGE}/client.py",
    "server.py": f"{PACKAGE}/server.py",
    "data.py": f"{PACKAGE}/data.py",
}


def write_project(folder: Path, experiment: Experiment) -> list[Path]:
    """The files of a project that runs this experiment; an existing folder must be empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists and is not empty; choose another folder")
    refuse_misfits(experiment, experiment.method)
    values = {
        "name": experiment.name,
        "project": experiment.name.lower().replace(".", "-").replace("_", "-").strip("-") or "run",
        "method": experiment.method.name,
        "collects": "needs" if experiment.method.needs_shared_key else "does not need",
        "nodes": str(experiment.deploy.nodes),
    }
    written = []
    for template, place in TEMPLATES.items():
        text = files("spreadout.flower.templates").joinpath(f"{template}.txt").read_text("utf-8")
        written.append(_write(folder / place, Template(text).substitute(values)))
    written.append(_write(folder / PACKAGE / "__init__.py", '"""The deployed app."""\n'))
    written.append(_write(folder / PACKAGE / "experiment.toml", experiment.to_toml()))
    return written


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
