"""`whistle extend`: more steps for a phase that trains."""

import re
from typing import Annotated

import typer

from whistlestop.cli.options import Json, Note, Run, command, connect

app = command()


@app.command()
def extend(
    run: Run,
    more: Annotated[str | None, typer.Argument(metavar="[+N]", help="So many steps more.")] = None,
    steps: Annotated[str | None, typer.Option(metavar="N", help="So many steps in all; or +N.")] = None,
    phase: Annotated[str | None, typer.Option(help="Which one. [default: the train phase that runs]")] = None,
    note: Note = "",
    as_json: Json = False,
) -> None:
    """Move the end of a train phase: so many steps more, or so many in all."""
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.verbs import tell

    if (more is None) == (steps is None):
        raise Usage("Say how many steps.", hint="whistle extend RUN +500, or whistle extend RUN --steps 5000")
    if more is not None and not more.startswith("+"):
        raise Usage(f"{more!r} is neither +N nor --steps N.", hint=f"more: +{more}; in all: --steps {more}")
    word = more or steps or ""
    count = _count(word)
    with connect() as client:
        if word.startswith("+"):
            done = client.extend(run, more=count, phase=phase, note=note)
        else:
            done = client.extend(run, steps=count, phase=phase, note=note)
        tell(done, as_json=as_json)


def _count(word: str) -> int:
    from whistlestop.cli.failures import Usage

    digits = word.removeprefix("+").replace("_", "").replace(",", "")
    if not re.fullmatch(r"[0-9]{1,16}", digits) or int(digits) == 0:
        raise Usage(f"{word!r} is not a number of steps.", hint="for example --steps 5000, or +500")
    return int(digits)
