"""`whistle checkpoints`: what a run could go on from."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Run, command, connect

app = command()


@app.command()
def checkpoints(
    run: Run,
    action: Annotated[str, typer.Argument(metavar="[ls]", help="What to do with them.")] = "ls",
    as_json: Json = False,
) -> None:
    """List the committed checkpoints of a run."""
    from whistlestop.cli.failures import Usage, printable

    if action != "ls":
        raise Usage(f"{action!r} can't be done with checkpoints.", hint="whistle checkpoints RUN ls")
    with connect() as client:
        found = client.checkpoints(run)

    from whistlestop.cli import words
    from whistlestop.cli.output import print_json, say, show, table

    if as_json:
        print_json(found)
        return
    if not found:
        say("No committed checkpoint.")
        return
    made = table("step", "phase", "attempt", "committed", "size", "verified", "", right=("step", "attempt", "size"))
    for item in found:
        made.add_row(
            f"{item.step:,}",
            printable(item.phase),
            str(item.attempt),
            words.local_time(item.committed_at),
            words.size(item.bytes),
            "✓" if item.verified else "✗",
            ", ".join(word for word, so in (("pinned", item.pinned), ("unhealthy", not item.healthy)) if so),
        )
    show(made)
