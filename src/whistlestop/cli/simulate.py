"""`whistle simulate`: what a run with a deadline would have cost on recorded capacity. Needs no server."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whistlestop.cli.failures import Usage
from whistlestop.cli.options import Json, Sets, command

if TYPE_CHECKING:
    from whistlestop.capacity.comparing import Comparison
    from whistlestop.capacity.deadline import Job
    from whistlestop.capacity.traces import Trace
    from whistlestop.wire.spec import PhaseSpec, Spec

app = command()

CHANGEOVER = 120.0  # seconds, where the spec says nothing
KNOWN = 14 * 86400.0  # seconds of a recording before the start, which a server would have seen
SHOWN = 6  # pools in a picture; more would hide what it is about


@app.command()
def simulate(
    file: Annotated[str, typer.Argument(help="The spec; - is standard input.")] = "whistle.yaml",
    traces: Annotated[
        list[Path] | None,
        typer.Option("--traces", metavar="PATH", help="A recording, or a directory of them; a pool each."),
    ] = None,
    phase: Annotated[str | None, typer.Option("--phase", help="Which one; else the first that trains.")] = None,
    work: Annotated[str | None, typer.Option("--work", metavar="TIME", help="How long it computes: 48h.")] = None,
    deadline: Annotated[str | None, typer.Option("--deadline", metavar="TIME", help="From its start: 60h.")] = None,
    on_demand_price: Annotated[float, typer.Option(help="Credits per slot-hour.")] = 3.0,
    spot_price: Annotated[float | None, typer.Option(help="The same, on spot; else the recording's, else 1.")] = None,
    starts: Annotated[int, typer.Option(min=1, max=1000, help="How many moments of the recordings it begins at.")] = 5,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the first start there.")] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """What a phase would have cost under its deadline, by several policies and in hindsight, on recorded capacity."""
    from whistlestop.capacity.advising import between_saves
    from whistlestop.capacity.comparing import compare
    from whistlestop.cli.output import aside, print_json, say
    from whistlestop.cli.spec_reading import judge, read_spec

    spec = judge(read_spec(file), sets or [], file)
    chosen = _phase(spec, phase)
    job = _job(spec, chosen, work, deadline)
    if not 0 < on_demand_price < math.inf or not (spot_price is None or 0 < spot_price < math.inf):
        raise Usage("A price is more than nothing.")
    if svg is not None and not svg.parent.is_dir():
        raise Usage(f"There is no directory {svg.parent} to draw in.")
    pools = _pools(traces or [], job, chosen.slots, spot_price)
    spans = min(pool.seconds for pool in pools) - job.time
    begins = [spans * number / starts for number in range(starts)]
    between = between_saves(chosen.checkpoint.every, None) if chosen.kind == "train" else math.inf
    price = on_demand_price * chosen.slots
    found = compare(job, pools, on_demand=price, starts=begins, warm=KNOWN, between=between)
    if svg is not None:
        _draw(svg, found, pools, chosen.name)
    if as_json:
        print_json(_as_json(found, chosen.name))
        return
    _print(found, pools, chosen)
    if svg is not None:
        say(f"\nDrawn in {svg}.")
    if math.isinf(between):
        aside(_unsaved(chosen))
    if chosen.capacity.market != "any":
        aside(f"Its spec asks for {chosen.capacity.market} only; both were simulated.")


def _unsaved(phase: "PhaseSpec") -> str:
    if phase.kind != "train":
        return "A task saves nothing: a loss was taken to cost all of it."
    if phase.checkpoint.every:
        return (
            "How long its steps take is only known when it runs: until then a loss is taken to cost all of it. Say how "
            "often it saves in minutes: --set 'checkpoint={every: 10 minutes}'."
        )
    return (
        "The spec does not say that it saves: a loss was taken to cost all of it, as a server would. Say how often: "
        "--set 'checkpoint={every: 10 minutes}'."
    )


def _phase(spec: "Spec", name: str | None) -> "PhaseSpec":
    if name is None:
        return next((phase for phase in spec.phases if phase.kind == "train"), spec.phases[0])
    known = [phase.name for phase in spec.phases]
    if name not in known:
        raise Usage(f"There is no phase {name!r}.", hint=f"one of: {', '.join(known)}")
    return spec.phase(name)


def _job(spec: "Spec", phase: "PhaseSpec", work: str | None, deadline: str | None) -> "Job":
    from whistlestop.capacity.deadline import Job
    from whistlestop.cli.words import length

    needs = _seconds("--work", work) or (phase.work.total_seconds() if phase.work else None)
    until = _seconds("--deadline", deadline) or (spec.deadline.total_seconds() if spec.deadline else None)
    if needs is None:
        raise Usage(
            f"How long does phase {phase.name} compute?", hint="say it with --work 48h, or `work: 48h` in the spec"
        )
    if until is None:
        raise Usage("There is no deadline.", hint="say it with --deadline 60h, or `deadline: 60h` in the spec")
    lasts = phase.capacity.changeover
    job = Job(needs, until, CHANGEOVER if lasts is None else lasts.total_seconds())
    if job.time < job.work + job.changeover:
        raise Usage(
            f"{length(job.work)} of work and {length(job.changeover)} to start do not fit into {length(job.time)}, "
            "whatever it runs on."
        )
    return job


def _seconds(option: str, text: str | None) -> float | None:
    from whistlestop.wire.durations import parse_duration

    if text is None:
        return None
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise Usage(f"{option} {text}: {error}.") from error
    if not seconds:
        raise Usage(f"{option} must be longer than zero.")
    return seconds


def _pools(paths: list[Path], job: "Job", slots: int, price: float | None) -> "list[Trace]":
    from dataclasses import replace

    from whistlestop.capacity.traces import read_traces
    from whistlestop.cli.words import length

    if not paths:
        raise Usage("On which recordings?", hint="--traces FILE or --traces DIRECTORY; examples/traces has small ones")
    found = [trace for path in paths for trace in read_traces(path)]
    if not found:
        places = ", ".join(map(str, paths))
        raise Usage(f"There is no recording in {places}.", hint="their forms are in docs/how-to/meet-a-deadline.md")
    names = [trace.name for trace in found]
    made = []
    for trace in found:
        if trace.seconds < job.time:
            raise Usage(
                f"Recording {trace.name} covers {length(trace.seconds)} only; the deadline is after {length(job.time)}."
            )
        name = trace.name if names.count(trace.name) == 1 else f"{trace.family}/{trace.name}"
        made.append(replace(trace, name=name, price=(price or trace.price) * slots))
    return made


def _print(found: "Comparison", pools: "list[Trace]", phase: "PhaseSpec") -> None:
    from whistlestop.capacity.drawing import LEGEND, line, there
    from whistlestop.cli import words
    from whistlestop.cli.output import console, say, show, table

    job, starts = found.job, len(found.starts)
    means = f"means of {starts} starts" if starts > 1 else "1 start"
    slots = f"{phase.all_slots} slot{'s' if phase.all_slots > 1 else ''}"
    say(
        f"Phase {phase.name}: {_hours(job.work)} of work on {slots}, {_hours(job.time)} to the deadline, "
        f"{words.length(job.changeover)} to change over; {len(pools)} spot pool{'s' if len(pools) > 1 else ''}, "
        f"{means}.\n"
    )
    numbers = ("credits", "above least", "done after", "preempted", "too late")
    made = table("policy", *numbers, right=numbers)
    for row in found.rows:
        made.add_row(
            row.name,
            words.amount(row.cost),
            f"{row.cost / found.least - 1:+.1%}" if not row.missed else "–",
            "–" if row.finished is None else _hours(row.finished * 3600),
            f"{row.preemptions:.1f}",
            f"{row.missed} of {starts}",
        )
    made.add_row("least, in hindsight", words.amount(found.least), "", "", "", "")
    show(made)
    width = max(20, min(100, console().width - 24))
    say(f"\nThe first of these starts, to the deadline:  {LEGEND}\n")
    for pool in pools[:SHOWN]:
        say(f"{pool.name[:20]:<20}  {line(there(pool, found.starts[0], job.time), job.time, width)}".rstrip())
    if len(pools) > SHOWN:
        say(f"and {len(pools) - SHOWN} more")
    say("")
    for row in found.rows:
        say(f"{row.name:<20}  {line(row.outcomes[0].pieces, job.time, width)}".rstrip())


def _hours(seconds: float) -> str:
    """48 h, 51.6 h: as deadlines are thought of, and one like the other."""
    return f"{seconds / 3600:,.1f}".removesuffix(".0") + " h"


def _draw(file: Path, found: "Comparison", pools: "list[Trace]", phase: str) -> None:
    from whistlestop.capacity.drawing import Lane, picture, there

    job = found.job
    lanes = [Lane(pool.name, "spot, as it was", there(pool, found.starts[0], job.time), True) for pool in pools[:SHOWN]]
    for row in found.rows:
        first = row.outcomes[0]
        end = "missed" if first.finished is None else _hours(first.finished)
        lanes.append(Lane(row.name, f"{first.cost:,.1f} credits, {end}", first.pieces))
    title = f"Phase {phase}: {_hours(job.work)} of work, {_hours(job.time)} to the deadline"
    file.write_text(picture(lanes, job.time, title=title), encoding="utf-8")


def _as_json(found: "Comparison", phase: str) -> dict[str, Any]:
    job = found.job
    return {
        "phase": phase,
        "work_s": job.work,
        "deadline_s": job.time,
        "changeover_s": job.changeover,
        "starts": len(found.starts),
        "least": found.least,
        "policies": [
            {
                "name": row.name,
                "credits": row.cost,
                "done_after_s": row.finished * 3600 if row.finished is not None else None,
                "preemptions": row.preemptions,
                "missed": row.missed,
            }
            for row in found.rows
        ],
    }
