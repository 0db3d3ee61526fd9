"""`whistle stacks`: where a run's program is now, thread by thread."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whistlestop.cli.options import Json, Run, command, connect

if TYPE_CHECKING:
    from whistlestop.wire.api import EventView

app = command()


@app.command()
def stacks(
    run: Run,
    phase: Annotated[str | None, typer.Option(help="Which one. [default: the one that runs]")] = None,
    last: Annotated[bool, typer.Option("--last", help="Those of the last time it was stuck or asked.")] = False,
    as_json: Json = False,
) -> None:
    """Print the stacks of a run's Python processes. They are read from outside: the program is not disturbed."""
    from whistlestop.cli.failures import printable
    from whistlestop.cli.output import aside, print_json, say

    with connect() as client:
        if last:
            told = client.events(run, newest=True, limit=5000, scope="instance")
            found = [event for event in told if event.kind in ("stuck", "stacks")][-1:]
        else:
            found = client.stacks(run, phase=phase)
    if as_json:
        print_json(found)
    elif not found:
        aside(f"whistle: {'Nobody has taken stacks of it yet.' if last else 'Its runner has not answered.'}")
    else:
        for event in found:
            for line in lines(event):
                say(printable(line))
    if not found:
        raise typer.Exit(1)


def lines(event: "EventView") -> Iterator[str]:
    """Readable, the innermost frame first."""
    yield event.text
    process = None
    for stack in event.data.get("stacks") or []:
        if stack.get("pid") != process:
            process = stack.get("pid")
            yield ""
            yield _process(stack, event.data)
        yield f"  thread {stack.get('thread') or '?'}"
        for frame in stack.get("frames") or ["?"]:
            place, _, name = str(frame).partition(" ")
            yield f"    {name or '?'}  ({place})"
    if trouble := event.data.get("trouble"):
        yield f"Not all could be read: {trouble}"


def _process(stack: dict[str, Any], data: dict[str, Any]) -> str:
    rank = stack.get("rank")
    step = (data.get("ranks") or {}).get(str(rank))
    who = f"rank {rank}{f' at step {step:,}' if isinstance(step, int) else ''}, " if rank is not None else ""
    return (
        f"{who}process {stack.get('pid')} on {data.get('host') or '?'} ({stack.get('state')}): {stack.get('process')}"
    )
