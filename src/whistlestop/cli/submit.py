"""`whistle submit`: a run from a whistle.yaml or from a saved workflow."""

from pathlib import Path
from typing import Annotated

import typer

from whistlestop.cli.options import Force, Json, Note, Sets, command, connect

app = command()


@app.command()
def submit(
    file: Annotated[
        str | None,
        typer.Argument(
            help="The spec, or the directory it is in; - is standard input. [default: whistle.yaml]", show_default=False
        ),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option(help="A saved workflow, NAME or NAME@VERSION, instead of a file.")
    ] = None,
    sets: Sets = None,
    name: Annotated[str | None, typer.Option(help="Another name than the spec's.")] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Run in this directory itself, without a bundle.")
    ] = False,
    note: Note = "",
    force: Force = False,
    watch: Annotated[bool, typer.Option("--watch", help="Stay and watch it.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay and follow its output.")] = False,
    as_json: Json = False,
) -> None:
    """Submit a run. The directory of the file goes with it, so that every attempt runs this very code."""
    from whistlestop.cli import following, output, words
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.spec_reading import DEFAULT, judge, read_spec, shown
    from whistlestop.cli.submitting import submit_directory

    if file and workflow:
        raise Usage("Give either a file or --workflow, not both.")
    changes = [*(sets or []), *([f"name={name}"] if name else [])]
    source, spec, directory = f"workflow {workflow}", None, Path()
    if not workflow:
        file = file or DEFAULT
        if Path(file).is_dir():
            file = str(Path(file) / DEFAULT)
        spec = read_spec(file)
        judge(spec, changes, file)
        source, directory = shown(file), Path(file).parent if file != "-" else Path()
    with connect() as client:
        run = submit_directory(
            client,
            directory,
            spec=spec,
            workflow=workflow,
            sets=changes,
            in_place=in_place,
            note=note,
            force=force,
            file=source,
        )
        if not (watch or follow):
            if as_json:
                output.print_json(run)
            else:
                output.say(f"Run {words.name(run)} is {words.status(run)}. Watch it with: whistle watch {run.number}")
            return
        try:
            if watch and not as_json:
                from whistlestop.cli.watch import watch_run

                run = watch_run(client, run.id)
            else:
                run = following.follow_output(client, run, quiet=as_json)
        except KeyboardInterrupt:
            raise typer.Exit(following.detached(run)) from None
    if as_json:
        output.print_json(run)
        raise typer.Exit(following.exit_code(run))
    raise typer.Exit(following.ended(run))
