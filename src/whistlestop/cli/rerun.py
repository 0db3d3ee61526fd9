"""`whistle rerun`: the same again, from the start."""

from whistlestop.cli.options import Force, Json, Note, Run, Sets, command, connect

app = command()


@app.command()
def rerun(run: Run, sets: Sets = None, note: Note = "", force: Force = False, as_json: Json = False) -> None:
    """Start a run again with the same code and configuration, or a changed one."""
    from whistlestop.cli.verbs import tell_new

    with connect() as client:
        tell_new(client.rerun(run, sets=sets or [], note=note, force=force), as_json=as_json, how=f"repeats {run}")
