"""What the parser says: help of every argument, what may have been meant, completion in a shell."""

import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from command import invoke
from spreadout.cli.main import app
from spreadout.cli.parser import parser_of


def leaves(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    """Every command that can be given, as the words that give it."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield path
    for name, one in inner.items():
        yield from leaves(one, *path, name)


@pytest.mark.parametrize("words", list(leaves(parser_of(app))), ids=" ".join)
def test_help_has_the_help_of_every_argument_and_option(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 200)
    assert invoke(monkeypatch, *words, "--help") == 0
    shown = words_of(capsys.readouterr().out.translate(dict.fromkeys(map(ord, "│╭╰─╮╯"), " ")))
    command = parser_of(app)
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    assert words_of((command.help or "").replace("`", "")) in shown.replace("`", "")
    for param in command.params:
        told = getattr(param, "help", None)
        assert told, f"{param.name} has no help"
        assert words_of(told) in shown


def words_of(text: str) -> str:
    """However its lines are broken."""
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rounds", "5"], "error: No such option '--rounds'; a key is set without dashes: rounds=5\n"),
        (["--lr=0.3"], "No such option '--lr'; a key is set without dashes: clients.lr=0.3 or server.lr=0.3\n"),
        (["--local-steps"], "a key is set without dashes: clients.local_steps=VALUE\n"),
        (["--hush"], "error: No such option '--hush'; see --help\n"),
        (["lr=0.1"], "error: override lr: unknown key; did you mean clients.lr or server.lr?\n"),
        (["clients.rounds=3"], "clients.rounds: unknown key; did you mean rounds?\n"),
        (["server.row_lr=3"], "server.row_lr: unknown key; did you mean clients.row_lr?\n"),
        (["method.sampled_rows=3"], "method.sampled_rows: unknown key; it is one of fedaws-softmax and fedss. Known: "),
        (["method.name=fedss", "method.margin=1"], "unknown key; it is one of baseline-1, baseline-2, dual_encoder, fedalc"),
        (["data.source.window=3"], "unknown key; it is one of interactions, movielens, "),
        (["rouns=1"], "rouns: unknown key; did you mean 'rounds'?"),
    ],
)  # fmt: skip
def test_a_key_that_stands_elsewhere_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert invoke(monkeypatch, "run", "digits-fedaws", *words) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


COMPLETED = "import sys; sys.argv[0] = 'spreadout'; from spreadout.cli.main import main; main()"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("spreadout run digits-d", ["digits-demo"]),
        ("spreadout pres", ["presets"]),
        ("spreadout run x --dev", ["--device"]),
        ("spreadout deploy loc", ["local"]),
    ],
)
def test_a_shell_completes_commands_options_and_presets(line: str, found: list[str]) -> None:
    words = line.split(" ")
    asked = {
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_SPREADOUT_COMPLETE": "complete_bash",
    }
    done = subprocess.run(
        [sys.executable, "-c", COMPLETED],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == found


@pytest.mark.parametrize("words", [["presets"], ["--help"], ["run", "--help"], ["--version"]])
def test_commands_that_only_tell_do_not_wait_for_torch(words: list[str]) -> None:
    """Nor for what else takes long: importing these is what would make them take over a second."""
    code = f"""
import sys
sys.argv = ["spreadout", *{words!r}]
from spreadout.cli.main import main
try:
    main()
except SystemExit as leaving:
    heavy = {{"torch", "numpy", "scipy", "sklearn", "pandas"}} & set(sys.modules)
    print(leaving.code or 0, sorted(heavy), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "0 []\n"


@pytest.mark.parametrize("words", [["-c", "import spreadout"], ["-m", "spreadout", "presets"]])
def test_the_package_is_imported_and_presets_are_listed_within_a_second(words: list[str]) -> None:
    """Of a processor, whatever else the machine does; the second time, when all is compiled."""
    for _ in range(2):
        started = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        assert started.returncode == 0
    assert used.ru_utime + used.ru_stime < 1


def test_what_may_have_been_meant_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(monkeypatch, "runn") == 2
    assert capsys.readouterr().err == "error: No such command 'runn'. Did you mean 'run'? see --help\n"
