"""`whistle resume`: a paused run goes on where it was."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Note, Run, command, connect

app = command()


@app.command()
def resume(
    run: Run,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin at step 0 where there is no checkpoint to go on from.")
    ] = False,
    note: Note = "",
    as_json: Json = False,
) -> None:
    """Resume a paused run from its newest checkpoint."""
    from whistlestop.cli.verbs import tell

    with connect() as client:
        tell(client.resume(run, from_start=from_start, note=note), as_json=as_json)
