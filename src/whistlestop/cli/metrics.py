"""`whistle metrics`: the last values, and how they got there."""

from typing import Annotated

import typer

from whistlestop.cli.options import Json, Run, command, connect

app = command()


@app.command()
def metrics(
    run: Run,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these.")] = None,
    phase: Annotated[str | None, typer.Option("--phase", help="Only of this phase.")] = None,
    as_json: Json = False,
) -> None:
    """Show the metrics of a run. --json gives the whole series."""
    from whistlestop.cli.existing import check_metrics, check_phase

    with connect() as client:
        check_phase(client, run, phase)
        if names:
            check_metrics(client, run, names, phase)
        found = client.metrics(run, names or [], phase=phase)

    from whistlestop.cli import words
    from whistlestop.cli.failures import printable
    from whistlestop.cli.output import print_json, say, show, table

    if as_json:
        print_json(found.series)
        return
    shown = [series for series in found.series if series.points]
    if not shown:
        say("No metrics yet.")
        return
    made = table("phase", "metric", "last", "step", "min", "max", "", right=("last", "step", "min", "max"))
    for series in shown:
        step, last, _ = series.points[-1]
        finite = [value for _, value, _ in series.points if value is not None]
        made.add_row(
            printable(series.phase),
            printable(series.name),
            series.nonfinite.get(str(step), "nan") if last is None else words.number(last),
            f"{step:,}",
            words.number(min(finite)) if finite else "–",
            words.number(max(finite)) if finite else "–",
            words.sparkline([value for _, value, _ in series.points]),
        )
    show(made)
