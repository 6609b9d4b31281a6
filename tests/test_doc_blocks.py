"""Every code block of the documents is run, or where it needs machines or data that are not here, read by what it calls.

Python blocks run (`test_docs.py` has most of them). TOML blocks are configs that can be read. Of shell blocks, commands
of spreadout run on two rounds of digits; those that serve, deploy or need a published data set are parsed by the command
line itself. Targets of make, extras of pip and options of benchmarks must exist.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import forked
from spreadout.cli.main import app
from spreadout.cli.parser import parser_of
from spreadout.config.experiment import Experiment
from spreadout.flower.access import read_roster
from spreadout.runs.compare import Suite

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Pages whose Python runs in test_docs.py, and here
RUN = {"README.md", "data.md", "references.md", "python.md", "use.md", "extending.md"}
FLOWER = {"flower-superlink", "flower-supernode", "flwr"}  # started in earnest by tests/flower
PLAIN = {"printf", "mkdir", "curl", "umask", "head"}


def blocks(kind: str) -> list[Any]:
    found = []
    for document in DOCUMENTS:
        texts = [text for named, text in BLOCK.findall(document.read_text("utf-8")) if named == kind]
        for at, text in enumerate(texts):
            found.append(pytest.param(document.name, text, id=f"{document.stem}-{at}"))
    return found


def commands(text: str) -> Iterator[list[str]]:
    """The commands of a block: by line, `;`, `&&` and `|`, without comments."""
    for line in text.splitlines():
        lexer = shlex.shlex(line.strip("()"), posix=True, punctuation_chars=";&|>")
        lexer.whitespace_split = True
        words: list[str] = []
        skip = False  # the file that output goes to
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|>"):
                if words and not skip:
                    yield words
                words, skip = [], word == ">"
            else:
                words.append(word)


def test_blocks_are_of_kinds_that_are_tried() -> None:
    kinds = {kind for document in DOCUMENTS for kind, _ in BLOCK.findall(document.read_text("utf-8"))}
    assert kinds <= {"python", "toml", "sh", ""}  # nameless ones are drawings and what programs print
    assert {page for page, _ in (param.values for param in blocks("python"))} == RUN


@pytest.mark.parametrize(("page", "text"), blocks("toml"))
def test_toml_blocks_are_configs_that_can_be_read(page: str, text: str, tmp_path: Path) -> None:
    """A part of a config is read on top of FedAwS on digits; a whole one, of digits, also runs."""
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    said = tomllib.loads(text)
    if set(said) == {"clients"} and all(key.isdigit() for key in said["clients"]):
        (tmp_path / "keys").mkdir()
        (tmp_path / "keys" / "node3.pub").write_text(
            "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBAxfGGdy\n"
        )
        with pytest.raises(Exception, match=r"node3\.pub"):  # it gets as far as the key, which is none
            read_roster(path)
    elif "variants" in said:
        assert set(Suite.load([str(path)], None, []).variants) == set(said["variants"])
    elif "imports" in said:
        write_parts(tmp_path)
        done = forked.spreadout("run", "config.toml", "rounds=1", "data.source=digits", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    else:
        experiment = Experiment.of(said)
        for section, value in said.items():
            assert getattr(experiment, section) is not None, (section, value)
        if said.get("data", {}).get("source") == "digits":
            done = forked.spreadout("run", "config.toml", "rounds=1", cwd=tmp_path)
            assert done.returncode == 0, done.stderr


def _python_blocks(page: str) -> list[str]:
    return [param.values[1] for param in blocks("python") if param.values[0] == page]


def write_parts(folder: Path) -> list[str]:
    """The Python of the extending page as modules, by the names that their first lines say."""
    modules: dict[str, list[str]] = {}
    for text in _python_blocks("extending.md"):
        named = re.match(r'"""(\w+)\.py"""', text)
        modules.setdefault(named[1] if named else list(modules)[-1], []).append(text)
    for name, texts in modules.items():
        (folder / f"{name}.py").write_text("\n\n".join(texts), encoding="utf-8")
    return list(modules)


USES = """
import spreadout as so

data = {"source": {"name": "blobs", "spread": 0.1}, "partition": {"name": "round_robin"}}
model, metrics = {"encoder": "tanh", "width": 8, "dim": 4}, {"metrics": ["misses", "hit@2"]}
base = {"rounds": 2, "data": data, "model": model, "eval": metrics, "run": {"executor": "backwards"}}
drift = {"clients": {"drift": {"name": "root-prox", "root": 0.2}}}
robust = {"server": {"robust": {"name": "midrange"}}}
for method, more in (("decayed", drift), ("square", robust)):
    result = so.run(so.Experiment.of({**base, **more, "method": {"name": method}}))
    print(method, result.summary["clients"], sorted(result.metrics))
print(so.Experiment.load("digits-short", []).rounds)
"""


def test_parts_of_the_extending_page_work_together(tmp_path: Path) -> None:
    modules = write_parts(tmp_path)
    assert len(modules) == 9
    done = forked.python(f"import {', '.join(modules)}\n{USES}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "decayed 10 ['hit@2', 'misses']",
        "square 10 ['hit@2', 'misses']",
        "10",
    ]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what commands of the documents name: configs, two finished runs, an input."""
    folder = tmp_path_factory.mktemp("desk")
    config = 'rounds = 2\ndata.source = "digits"\nmethod.name = "fedss"\nrun.log_requests = true\n'
    for name in ("my", "a", "b"):
        (folder / f"{name}.toml").write_text(f'name = "{name}"\n{config}', encoding="utf-8")
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.normal(size=(3, 64)).astype("float32"))
    np.savez(folder / "mine.npz", x=rng.normal(size=(40, 4)), y=np.arange(40) % 4)
    (folder / "mine.toml").write_text(
        '[data]\nsource = "npz"\npath = "mine.npz"\n\n[method]\nname = "fedaws"\n'
    )
    write_parts(folder)
    (folder / "own_source.py").write_text((ROOT / "examples" / "own_source.py").read_text("utf-8"))
    for run in ("mine", "other"):
        done = forked.spreadout("run", "my.toml", "--out", f"runs/{run}", cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def parsed(words: list[str]) -> click.Context:
    """The context of the innermost command; it fails on a command, option or argument that is not known."""
    command: click.Command = parser_of(app)
    context = None
    rest = [word for at, word in enumerate(words) if word != "--import" and words[at - 1] != "--import"]
    while isinstance(command, click.Group):
        context = command.make_context(command.name, rest, parent=context)
        _, found, rest = command.resolve_command(context, context.protected_args + context.args)
        assert found is not None
        command = found
    return command.make_context(command.name, rest, parent=context)


AWAY = (
    "serve",
    "rows-server",
    "watch",
    "deploy",
    "data fetch",
    "data check",
    "data list",
)  # other processes, other hosts, other data


def can_run(words: list[str], desk: Path) -> bool:
    said = " ".join(words)
    if said.startswith(AWAY) or "faiss" in words or "onnx" in words:
        return said.startswith("data list")
    named = [
        word for word in words if "/" in word or word.endswith((".toml", ".npy", ".npz", ".csv", ".txt"))
    ]
    inputs = [word for word in named if words[words.index(word) - 1] not in {"-o", "--out", "--report"}]
    return (
        "movielens-1m" not in said and "-" not in words and all((desk / one).exists() for one in inputs)
    )


@pytest.mark.parametrize(("page", "text"), blocks("sh"))
def test_shell_blocks_call_what_there_is(page: str, text: str, desk: Path) -> None:
    makes = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
    for words in commands(text):
        match words[words.index("-m") + 1 :] if words[0] == "torchrun" else words:
            case ["spreadout", *rest]:
                _try(rest, desk)
            case ["make", *targets]:
                assert set(targets) <= makes
            case ["pip", "install", *named]:
                asked = [one for word in named for one in re.findall(r"\[([\w,]+)\]", word)]
                assert {extra for one in asked for extra in one.split(",")} <= extras
            case ["python", "-m", module, *rest]:
                options = {word.partition("=")[0] for word in rest if word.startswith("--")}
                helped = forked.python(
                    f"import runpy; runpy.run_module({module!r}, run_name='__main__')",
                    "--help",
                    cwd=ROOT,
                )
                assert helped.returncode == 0, helped.stderr
                assert [one for one in options if one not in helped.stdout] == []
            case ["python", "-c", code]:
                compile(code, page, "exec")
            case ["export" | "echo", *_]:
                pass
            case [first, *_]:
                assert first in FLOWER | PLAIN, f"{page}: {shlex.join(words)} is not tried by any test"


def _try(words: list[str], desk: Path) -> None:
    context = parsed(words)
    for word in words:
        if word.startswith("configs/"):
            assert (ROOT / word).is_file()
            if context.command.name in {"run", "compare"}:
                keys = [one for one in words if re.match(r"[\w.]+=", one)]
                Suite.load([str(ROOT / word)], None, keys)
    if can_run(words, desk):
        short = {"run": ["rounds=2", "--force"], "compare": ["--force"]}.get(
            str(context.command.name), []
        )
        done = forked.spreadout(*words, *short, cwd=desk)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
