"""`whistle advise`: should I kill this run?"""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Run, command, connect

app = command()


@app.command()
def advise(
    run: Run,
    phase: Annotated[str | None, typer.Option(help="About this phase. [default: the one that runs]")] = None,
    as_json: Json = False,
) -> None:
    """Kill, stop, wait, or fix and continue: why, on what evidence, and what each choice costs. Changes nothing."""
    with connect() as client:
        found = client.advice(client.run(run).id, phase=phase)

    from whistlestop.cli import output

    if as_json:
        output.print_json(found)
        return
    from whistlestop.cli.advice_view import advice_view

    output.show(*advice_view(found))
