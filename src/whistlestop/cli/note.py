"""`whistle note`: why, in words."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Run, command, connect

app = command()


@app.command()
def note(
    run: Run,
    text: Annotated[str | None, typer.Argument(help="The new note; without it the note is printed.")] = None,
    as_json: Json = False,
) -> None:
    """Read or change the note of a run."""
    with connect() as client:
        found = client.run(run) if text is None else client.note(run, text)

    from whistlestop.cli import words
    from whistlestop.cli.output import print_json, say

    if as_json:
        print_json(found)
    elif text is None:
        say(found.note)
    else:
        say(f"The note of run {words.name(found)} is changed.")
