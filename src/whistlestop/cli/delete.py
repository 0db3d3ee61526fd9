"""`whistle delete`: runs that have ended, with all they stored."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Project, Runs, Search, Status, Yes, command, connect

app = command()


@app.command()
def delete(
    runs: Runs = None,
    status: Status = None,
    project: Project = None,
    search: Search = None,
    everything: Annotated[bool, typer.Option("--all", help="Every run that has ended.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete runs that have ended, with logs, metrics and checkpoints. An active one is killed first, by you."""
    from whistlestop.cli.choosing import OVER, ask, choose, count
    from whistlestop.cli.ending import CHUNK, tell_many
    from whistlestop.cli.output import print_json, say
    from whistlestop.cli.verbs import tell
    from whistlestop.wire.api import BulkDone, BulkItem

    with connect() as client:
        chosen = choose(client, runs, status=status, project=project, search=search, everything=everything, among=OVER)
        if not chosen:
            if as_json:
                print_json({"items": []})
            else:
                say("No run matches.")
            return
        ask(
            chosen,
            f"This will permanently delete {count(chosen)} with all they stored. Are you sure?",
            yes=yes,
            verb="delete",
        )
        if runs and len(chosen) == 1:
            tell(client.delete(chosen[0].id), as_json=as_json)
            return
        items: list[BulkItem] = []
        for at in range(0, len(chosen), CHUNK):
            items += client.bulk("delete", runs=[run.id for run in chosen[at : at + CHUNK]]).items
    if as_json:
        print_json(BulkDone(items=items))
    else:
        tell_many(items, "deleted")
    raise typer.Exit(0 if all(item.ok for item in items) else 1)
