"""`whistle logs`: what the programs of a run printed."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from whistlestop.cli.options import Json, Run, command, connect

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import LogLineView

app = command()
LEVELS = ("debug", "info", "warning", "error")


@app.command()
def logs(
    run: Run,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the run has ended.")] = False,
    phase: Annotated[str | None, typer.Option(help="Only this phase.")] = None,
    attempt: Annotated[int | None, typer.Option(help="Only this attempt.", min=1)] = None,
    grep: Annotated[str | None, typer.Option(help="Only lines with this text, any case.")] = None,
    level: Annotated[str | None, typer.Option(help="debug, info, warning or error, and above.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", help="Only the last lines.", min=1, max=100_000)] = None,
    as_json: Json = False,
) -> None:
    """Print the log. With --json one object per line."""
    from whistlestop.cli.existing import check_phase
    from whistlestop.cli.failures import Usage
    from whistlestop.cli.log_lines import colours, full_line
    from whistlestop.cli.output import aside

    if level and level not in LEVELS:
        raise Usage(f"{level!r} is not a level.", hint=f"one of: {', '.join(LEVELS)}")
    coloured = colours()
    with connect() as client:
        check_phase(client, run, phase, attempt)
        try:
            for line in _lines(client, run, phase, attempt, grep, level, tail, follow):
                if as_json:
                    print(json.dumps(line.model_dump(mode="json")), flush=follow)
                else:
                    print(full_line(line, coloured=coloured), flush=follow)
        except KeyboardInterrupt:
            if not as_json:
                aside("")
            raise typer.Exit(130) from None


def _lines(
    client: "Client",
    run: str,
    phase: str | None,
    attempt: int | None,
    grep: str | None,
    level: str | None,
    tail: int | None,
    follow: bool,
) -> Iterator["LogLineView"]:
    from whistlestop.cli.output import aside
    from whistlestop.wire.api import LogLineView

    cursor: str | None = None
    while True:
        page = client.logs(
            run, phase=phase, attempt=attempt, grep=grep, level=level, tail=tail, after=cursor, limit=5000
        )
        yield from page.lines
        cursor = page.cursor
        if page.looked is not None:
            aside(
                f"whistle: Of the {page.looked:,} newest lines {len(page.lines):,} match; older ones were not looked"
                " at. Without --tail all of them are."
            )
        if not page.more:
            break
    if not follow:
        return
    # The stream goes on behind the page. It knows no filters: they are applied here in the same way.
    for message in client.stream(run, ["logs"], last_id=f"e0;l{cursor};m"):
        if message.kind != "log":
            continue
        line = LogLineView.model_validate(message.data, extra="ignore")
        if (
            (phase is None or line.phase == phase)
            and (attempt is None or line.attempt == attempt)
            and (grep is None or grep.casefold() in line.text.casefold())
            and (level is None or LEVELS.index(line.level) >= LEVELS.index(level))
        ):
            yield line
