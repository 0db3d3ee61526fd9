"""`whistle continue`: a new run from a checkpoint of another one."""

from typing import TYPE_CHECKING, Annotated

import typer

from whistlestop.cli.options import Force, Json, Note, Run, Sets, command, connect

if TYPE_CHECKING:
    from whistlestop.wire.api import RunView

app = command()


@app.command("continue")
def continue_run(
    run: Run,
    step: Annotated[int | None, typer.Option(help="Which checkpoint. [default: the newest]", min=0)] = None,
    phase: Annotated[str | None, typer.Option(help="Of which phase.")] = None,
    sets: Sets = None,
    note: Note = "",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Go on from a committed checkpoint in a new run, also if the old one was stopped or killed."""
    from whistlestop.cli.verbs import tell_new

    with connect() as client:
        started = client.continue_run(run, step=step, phase=phase, sets=sets or [], note=note, force=force)
    at = started.parent.step if started.parent else None
    tell_new(
        started,
        as_json=as_json,
        how=f"continues run {_named(started, run)}" + (f" from step {at:,}" if at is not None else ""),
    )


def _named(started: "RunView", said: str) -> str:
    number = started.parent.number if started.parent else None
    return f"#{number}" if number is not None else said
