"""`whistle show`: everything about one run."""

from typing import TYPE_CHECKING, Any

from whistlestop.cli.options import Json, Run, command, connect

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import RunView

app = command()


@app.command()
def show(run: Run, as_json: Json = False) -> None:
    """Show one run: its phases, attempts, stop reasons and summary, its place in the queue, its origin and its cost."""
    with connect() as client:
        found = client.run(run)
        said = {} if as_json else summaries(client, found)
        saving = [] if as_json else client.saving(found.id)
        slow = "" if as_json else slow_rank(client, found)

    from whistlestop.cli import output

    if as_json:
        output.print_json(found)
        return
    from whistlestop.cli.run_view import run_view

    output.show(run_view(found, said, saving, slow))


def slow_rank(client: "Client", run: "RunView") -> str:
    """The last word of the attempt that runs."""
    attempt = next((each for phase in run.phases for each in phase.attempts if each.ended_at is None), None)
    if attempt is None:
        return ""
    told = client.events(run.id, scope="instance", search="slow", newest=True, limit=100)
    told = [event for event in told if event.kind == "straggler" and event.attempt == attempt.number]
    last = max(told, key=lambda event: event.seq, default=None)
    return last.text if last is not None and "rank" in last.data else ""


def summaries(client: "Client", run: "RunView") -> dict[str, dict[str, Any]]:
    """What the programs put into `run.summary`, by phase: the last word of each."""
    if not any(attempt.status != "started" for phase in run.phases for attempt in phase.attempts):
        return {}  # it is told when a program ends
    told = client.events(run.id, scope="instance", search="summary", newest=True, limit=500)
    found = {event.phase or "": event.data.get("values") for event in told if event.kind == "summary"}
    return {phase: values for phase, values in found.items() if isinstance(values, dict) and values}
