"""`whistle stop`: finish a phase now and keep its result."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Note, Run, command, connect

app = command()


@app.command()
def stop(
    run: Run,
    phase: Annotated[str | None, typer.Option(help="Which one. [default: the train phase that runs]")] = None,
    note: Note = "",
    as_json: Json = False,
) -> None:
    """Stop a train phase at its next step. Its result is kept, and the pipeline goes on with it."""
    from whistlestop.cli.verbs import tell

    with connect() as client:
        tell(client.stop(run, phase=phase, note=note), as_json=as_json)
