"""`whistle show`: everything about one run."""

from whistlestop.cli.options import Json, Run, command, connect

app = command()


@app.command()
def show(run: Run, as_json: Json = False) -> None:
    """Show one run: its phases, attempts and stop reasons, its place in the queue, its origin and its cost."""
    with connect() as client:
        found = client.run(run)

    from whistlestop.cli import output

    if as_json:
        output.print_json(found)
        return
    from whistlestop.cli.run_view import run_view

    output.show(run_view(found))
