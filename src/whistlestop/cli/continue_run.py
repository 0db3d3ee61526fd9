"""`whistle continue`: a new run from a checkpoint of another one."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Note, Run, Sets, command, connect

app = command()


@app.command("continue")
def continue_run(
    run: Run,
    step: Annotated[int | None, typer.Option(help="Which checkpoint. [default: the newest]", min=0)] = None,
    phase: Annotated[str | None, typer.Option(help="Of which phase.")] = None,
    sets: Sets = None,
    note: Note = "",
    as_json: Json = False,
) -> None:
    """Go on from a committed checkpoint in a new run, also if the old one was stopped or killed."""
    from whistlestop.cli.verbs import tell_new

    with connect() as client:
        started = client.continue_run(run, step=step, phase=phase, sets=sets or [], note=note)
    at = started.parent.step if started.parent else None
    tell_new(started, as_json=as_json, how=f"continues {run}" + (f" from step {at:,}" if at is not None else ""))
