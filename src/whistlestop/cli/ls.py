"""`whistle ls`: the runs."""

from itertools import islice
from typing import Annotated

import typer

from whistlestop.cli.options import Json, Project, Search, Status, checked_statuses, command, connect

app = command()


@app.command()
def ls(
    status: Status = None,
    project: Project = None,
    search: Search = None,
    sort: Annotated[
        str | None,
        typer.Option(
            help="created, priority, name, status or ended; with - in front the other way round. [default: -created]"
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="At most this many.", min=1, max=1_000_000)] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Stay, and show every change. With --json one object per line.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the runs, the newest first."""
    if watch:
        _stay(checked_statuses(status), project, search, sort, limit, as_json=as_json)
        return
    with connect() as client:
        found = client.all_runs(status=checked_statuses(status), project=project, search=search, sort=sort)
        runs = list(found if everything else islice(found, limit + 1))
    more = not everything and len(runs) > limit
    runs = runs if everything else runs[:limit]

    from whistlestop.cli.output import aside, print_json, say, show

    if as_json:
        print_json(runs)
        return
    if not runs:
        say("No runs." if not (status or project or search) else "No run matches.")
        return
    from whistlestop.cli.runs_table import runs_table

    show(runs_table(runs))
    if more:
        aside(
            f"There are more than {limit}: see them with --all, or narrow it down with --status, --project or --search."
        )


def _stay(
    status: list[str], project: str | None, search: str | None, sort: str | None, limit: int, *, as_json: bool
) -> None:
    import sys

    from whistlestop.cli.failures import Usage
    from whistlestop.cli.live_runs import Wanted, print_changes, watch_table

    if not as_json and not sys.stdout.isatty():
        raise Usage("-w needs a terminal.", hint="with --json it prints one object per line, also into a pipe")
    wanted = Wanted(tuple(status), project, search, sort, limit)
    with connect() as client:
        if as_json:
            print_changes(client, wanted)
        else:
            watch_table(client, wanted)
