"""`whistle pause`: save, free the slots, go on later."""

from typing import Annotated, Literal

import typer

from whistlestop.cli.options import Json, Note, Run, command, connect

app = command()


@app.command()
def pause(
    run: Run,
    checkpoint: Annotated[
        str, typer.Option(help="save: save first. latest: leave at once, from the last one.")
    ] = "save",
    note: Note = "",
    as_json: Json = False,
) -> None:
    """Pause a run: it saves, gives its slots back and waits to be resumed."""
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.verbs import tell

    if checkpoint not in ("save", "latest"):
        raise Usage(f"{checkpoint!r} is neither save nor latest.")
    how: Literal["save", "latest"] = "latest" if checkpoint == "latest" else "save"
    with connect() as client:
        tell(client.pause(run, checkpoint=how, note=note), as_json=as_json)
