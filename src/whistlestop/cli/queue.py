"""`whistle queue`: who waits, in which order, and for what."""

from whistlestop.cli.options import Json, command, connect

app = command()


@app.command()
def queue(as_json: Json = False) -> None:
    """Show the runs that wait for capacity, the next one first."""
    with connect() as client:
        runs = client.queue()

    from whistlestop.cli import words
    from whistlestop.cli.failures import printable
    from whistlestop.cli.output import print_json, say, show, table

    if as_json:
        print_json(runs)
        return
    if not runs:
        say("Nothing waits.")
        return
    made = table("place", "#", "name", "priority", "waiting since", "waits for", right=("place", "#", "priority"))
    for run in runs:
        made.add_row(
            str(run.queue.position) if run.queue else "–",
            str(run.number),
            printable(run.name),
            str(run.priority),
            words.local_time(run.created_at),
            printable(words.with_times(run.queue.waits_for)) if run.queue else "–",
        )
    show(made)
