"""`whistle set`: another value of a parameter that the program has declared."""

import json
from typing import Annotated

import typer

from whistlestop.cli.options import Json, Note, Run, command, connect

app = command()


@app.command("set")
def set_params(
    run: Run,
    params: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="lr=0.01 augment=true")],
    phase: Annotated[str | None, typer.Option(help="Of which phase. [default: the train phase that runs]")] = None,
    note: Note = "",
    as_json: Json = False,
) -> None:
    """Change declared parameters (run.param in the program) at the next step. All of them, or none."""
    from whistlestop.cli.verbs import tell

    given = all_of(params)
    with connect() as client:
        tell(client.set_params(run, given, phase=phase, note=note), as_json=as_json)


def all_of(words: list[str]) -> dict[str, bool | int | float | str]:
    from whistlestop.cli.failures import Usage

    given: dict[str, bool | int | float | str] = {}
    for name, value in map(pair, words):
        if name in given:
            raise Usage(f"{name} is given twice.", hint="each parameter once: which of the two values is meant?")
        given[name] = value
    return given


def pair(word: str) -> tuple[str, bool | int | float | str]:
    from whistlestop.cli.failures import Usage

    name, equals, value = word.partition("=")
    if not equals or not name:
        raise Usage(f"{word!r} is not NAME=VALUE.", hint="for example lr=0.01")
    return name, value_of(value)


def value_of(word: str) -> bool | int | float | str:
    """As JSON reads it, so that "5" in quotes is a text; what is no JSON is a text as it stands."""
    try:
        found = json.loads(word)
    except (ValueError, RecursionError):
        return _number(word)
    return found if isinstance(found, bool | int | float | str) else word


def _number(word: str) -> float | str:
    """`.5` and `1.` are numbers for people."""
    try:
        return float(word) if word.strip("+-.0123456789eE") == "" else word
    except ValueError:
        return word
