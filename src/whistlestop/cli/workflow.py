"""`whistle workflow`: saved specs with a name and versions."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Note, connect

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Save, list, show and compare workflows.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(help="Name of the workflow.")]


@app.callback()
def workflow() -> None:
    pass


@app.command("save")
def save(
    name: Name,
    file: Annotated[str, typer.Argument(help="The spec; - is standard input.")] = "whistle.yaml",
    note: Note = "",
    as_json: Json = False,
) -> None:
    """Save a spec as a new version of a workflow. The same text is the same version."""
    from whistlestop.cli.output import print_json, say
    from whistlestop.cli.spec_reading import judge, read_spec

    text = read_spec(file)
    judge(text, [], file)
    with connect() as client:
        saved = client.save_workflow(name, text, note=note)
    if as_json:
        print_json(saved)
    else:
        say(f"Workflow {saved.name}@{saved.version} is saved. Run it with: whistle submit --workflow {saved.name}")


@app.command("ls")
def ls(as_json: Json = False) -> None:
    """List the workflows."""
    from whistlestop.cli import words
    from whistlestop.cli.failures import printable
    from whistlestop.cli.output import print_json, say, show, table

    with connect() as client:
        found = client.workflows()
    if as_json:
        print_json(found)
        return
    if not found:
        say("No workflows. Save one with: whistle workflow save NAME FILE")
        return
    made = table("name", "version", "saved", "by", "note", right=("version",))
    for item in found:
        made.add_row(
            printable(item.name),
            str(item.version),
            words.local_time(item.created_at),
            printable(item.created_by),
            printable(item.note),
        )
    show(made)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="NAME or NAME@VERSION.")],
    as_json: Json = False,
) -> None:
    """Print the spec of a workflow."""
    from whistlestop.cli.output import print_json, say

    word, version = _split(name)
    with connect() as client:
        found = client.workflow(word, version)
    if as_json:
        print_json(found)
    else:
        say(found.spec.removesuffix("\n"))


@app.command("diff")
def diff(
    name: Name,
    old: Annotated[int | None, typer.Argument(help="[default: the one before the newest]", min=1)] = None,
    new: Annotated[int | None, typer.Argument(help="[default: the newest]", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Compare two versions of a workflow."""
    import difflib

    from whistlestop.cli.failures import Usage
    from whistlestop.cli.output import print_json, say

    with connect() as client:
        after = client.workflow(name, new)
        if old is None and after.version == 1:
            raise Usage(f"{name} has one version only: there is nothing to compare.")
        before = client.workflow(name, old or after.version - 1)
    lines = list(
        difflib.unified_diff(
            before.spec.splitlines(),
            after.spec.splitlines(),
            f"{name}@{before.version}",
            f"{name}@{after.version}",
            lineterm="",
        )
    )
    if as_json:
        print_json({"name": name, "old": before.version, "new": after.version, "diff": lines})
    else:
        say("\n".join(lines) or f"{name}@{before.version} and {name}@{after.version} are the same.")


def _split(name: str) -> tuple[str, int | None]:
    from whistlestop.cli.failures import Usage

    word, at, version = name.partition("@")
    if at and not (version.isascii() and version.isdigit() and len(version) < 10):
        raise Usage(f"{version!r} is not a version.", hint="write NAME@3")
    return word, int(version) if at else None
