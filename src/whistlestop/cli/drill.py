"""`whistle drill`: one loss after another, on purpose, and a report of what each has cost."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Run, Yes, command, connect

app = command()


@app.command()
def drill(
    run: Run,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only this one: link, storage, save, program, host or preempt. May be repeated."),
    ] = None,
    phase: Annotated[str | None, typer.Option(help="Which one. [default: the train phase that runs]")] = None,
    lasts: Annotated[str, typer.Option(help="How long the server is away, the storage slow, saves fail.")] = "5s",
    notice: Annotated[str, typer.Option(help="Of the preemption.")] = "30s",
    timeout: Annotated[str, typer.Option(help="A recovery that takes longer has failed.")] = "10m",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Rehearse losses on a run that trains: what is lost, and how long each recovery takes."""
    from whistlestop.cli.drill_report import run_drill

    with connect() as client:
        code = run_drill(client, run, only or [], phase, lasts, notice, timeout, yes=yes, as_json=as_json)
    raise typer.Exit(code)
