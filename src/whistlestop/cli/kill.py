"""`whistle kill`: now, for good."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Note, Project, Runs, Search, Status, Yes, command

app = command()


@app.command()
def kill(
    runs: Runs = None,
    status: Status = None,
    project: Project = None,
    search: Search = None,
    everything: Annotated[bool, typer.Option("--all", help="Every active run.")] = False,
    yes: Yes = False,
    note: Note = "",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is proven.")] = False,
    as_json: Json = False,
) -> None:
    """Kill runs, now and for good. Waits until every process is gone and the slots are free."""
    from whistlestop.cli.ending import end_runs

    end_runs(
        "kill",
        runs,
        status=status,
        project=project,
        search=search,
        everything=everything,
        yes=yes,
        note=note,
        wait=not no_wait,
        as_json=as_json,
    )
