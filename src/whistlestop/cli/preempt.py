"""`whistle preempt`: take the capacity of a run or a host back, as a cloud would."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Note, Yes, command, connect

app = command()


@app.command()
def preempt(
    target: Annotated[str, typer.Argument(metavar="RUN|HOST", help="A run, a host, or POOL/HOST.")],
    notice: Annotated[str, typer.Option(help="How long it has to save and leave. 0: none at all.")] = "30s",
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it trains again, and say what it cost.")] = False,
    yes: Yes = False,
    note: Note = "",
    as_json: Json = False,
) -> None:
    """Take the capacity of a run, or of everything on a host, back: it saves, leaves and recovers by itself."""
    from whistlestop.cli.preempting import preempt_target

    with connect() as client:
        code = preempt_target(client, target, notice, wait=wait, yes=yes, note=note, as_json=as_json)
    raise typer.Exit(code)
