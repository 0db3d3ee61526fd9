"""`whistle run -- COMMAND`: one command as a run, without a file."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Annotated

import typer

from whistlestop.cli.options import Force, Json, Note, command, connect

app = command()


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    words: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The command, after --.")],
    name: Annotated[str | None, typer.Option(help="Name of the run. [default: from the command]")] = None,
    project: Annotated[str | None, typer.Option(help="Project of the run.")] = None,
    slots: Annotated[int, typer.Option(help="Slots it needs.", min=1)] = 1,
    env: Annotated[list[str] | None, typer.Option("--env", metavar="K=V", help="May be repeated.")] = None,
    kind: Annotated[str, typer.Option(help="train or task.")] = "train",
    time_limit: Annotated[str | None, typer.Option(help="90s, 10m, 2h, 1d12h.")] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Run in this directory itself, without a bundle.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not stay.")] = False,
    note: Note = "",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run one command. Stays with it and ends as it ends; Ctrl-C leaves, and the run goes on."""
    from whistlestop.cli import following, output
    from whistlestop.cli import words as said
    from whistlestop.cli.spec_reading import judge
    from whistlestop.cli.submitting import submit_directory
    from whistlestop.wire.spec_file import spec_to_text

    spec: dict[str, object] = {"name": name or name_of(words), "kind": kind, "command": list(words), "slots": slots}
    spec.update({"project": project} if project else {})
    spec.update({"env": variables(env or [])} if env else {})
    spec.update({"time_limit": time_limit} if time_limit else {})
    text = spec_to_text(spec)
    judge(text, [], "run")
    with connect() as client:
        started = submit_directory(client, Path(), spec=text, in_place=in_place, note=note, force=force, file="run")
        if detach:
            if as_json:
                output.print_json(started)
            else:
                output.say(
                    f"Run {said.name(started)} is {said.status(started)}. Watch it with: whistle watch {started.number}"
                )
            return
        if not as_json:
            output.aside(f"whistle: run {said.name(started)}; Ctrl-C leaves it running")
        try:
            done = following.follow_output(client, started, quiet=as_json)
        except KeyboardInterrupt:
            raise typer.Exit(following.detached(started)) from None
    if as_json:
        output.print_json(done)
        raise typer.Exit(following.exit_code(done))
    raise typer.Exit(following.ended(done))


def name_of(words: Sequence[str]) -> str:
    """train for `python -u train.py --lr 3`, else the program's own name."""
    scripts = [word for word in words if re.fullmatch(r"[^-].*\.(py|sh|ipynb|R|jl)", word)]
    modules = [after for before, after in pairwise(words) if before == "-m"]
    source = (modules or scripts or [words[0]])[0]
    stem = PurePath(source).name
    stem = stem.rpartition(".")[0] or stem if not modules else source.rpartition(".")[2]
    clean = re.sub(r"[^A-Za-z0-9._ -]+", "-", stem).lstrip("._ -")[:100]
    return clean or "run"


def variables(items: Sequence[str]) -> dict[str, str]:
    from whistlestop.cli.failures import Usage

    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise Usage(f"{item!r} is not K=V.", hint="write --env LR=0.1")
        found[name] = value
    return found
