"""The parser that typer makes of the commands, with what it loses on the way put back."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import click
import typer


def parser_of(app: typer.Typer) -> click.Command:
    """The parser of all commands, in which every argument has its help.

    From click 8.5 on, `click.Argument` has a help of its own, and takes away that which typer before
    0.21 had set; Flower does not allow a newer typer.
    """
    parser = typer.main.get_command(app)
    for command in _commands(parser):
        helps = _helps(command.callback) if command.callback else {}
        for param in command.params:
            if isinstance(param, click.Argument) and param.name in helps:
                param.help = helps[param.name]  # type: ignore[attr-defined,unused-ignore]
    return parser


def _commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from _commands(inner)


def _helps(function: Any) -> dict[str, str]:
    """The help of each argument, as the signature of the command has it."""
    helps = {}
    for name, hint in get_type_hints(inspect.unwrap(function), include_extras=True).items():
        notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        found = [note.help for note in notes if isinstance(note, typer.models.ArgumentInfo)]
        if found and found[0]:
            helps[name] = found[0]
    return helps


def usage_problem(error: Any, words: list[str]) -> str:
    """A usage error of the parser in one line, with what may have been meant.

    `--rounds 5` is how other programs would set a key: here that is `rounds=5`.
    """
    said = error.format_message().rstrip(".")
    meant = said.rpartition(" Did you mean ")  # which click and typer say one after the other
    said = meant[0] if meant[0].endswith(f"Did you mean {meant[2]}") else said
    option = getattr(error, "option_name", None)
    if option and option.startswith("--"):
        from spreadout.config.whereabouts import places_of

        key = option.removeprefix("--").partition("=")[0].replace("-", "_")
        if places := places_of(key):
            value = _value(option, words)
            written = " or ".join(f"{place}={value}" for place in places)
            return f"No such option '{option.partition('=')[0]}'; a key is set without dashes: {written}"
    return f"{said}{'' if said.endswith('?') else ';'} see --help"


def _value(option: str, words: list[str]) -> str:
    """What stands behind an option: `--rounds 5`, `--rounds=5`."""
    for at, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and at + 1 < len(words) and not words[at + 1].startswith("--"):
            return words[at + 1]
    return "VALUE"


def complete_config(incomplete: str) -> list[str]:
    """Presets that begin so; files are completed by the shell."""
    from spreadout.config.presets import presets

    return [name for name in presets() if name.startswith(incomplete)]
