"""What a verb would do to a run, before anybody does it: kept, lost, freed, paid, and how long it takes by measurement.

Nothing here changes anything, and nothing is promised: the verb itself judges again.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from whistlestop.capacity.hosts import shut
from whistlestop.capacity.queue import plan
from whistlestop.domain import credits
from whistlestop.domain.clock import iso
from whistlestop.domain.errors import Refused
from whistlestop.domain.lifecycle import RunFacts, ready
from whistlestop.domain.states import PHASE_ENDED, AttemptState, PhaseState, RunState
from whistlestop.domain.stops import Ladder
from whistlestop.server.services import effects, standing, verbs, views
from whistlestop.server.services.asking import check_active
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.services.waiting import Queue, Queued
from whistlestop.server.store import checkpoints, durations, phases, placing, runs
from whistlestop.wire.api import CreditsView
from whistlestop.wire.pages import Consequences, FreesView, NewestView, NextView, TakesView, Verb

Row = sa.Row[Any]
QUEUED = 64  # phases of the queue that are looked at for who is next
NAMED = 3  # of them that are named


@dataclass(frozen=True)
class Subject:
    """A run as the verb finds it."""

    run: Row
    rows: Sequence[Row]  # its phases
    live: Sequence[Row]  # attempts that the verb would end
    phase: Row | None  # the one that a stop is about, else the one that runs or comes next
    saved: Sequence[Row]  # checkpoints
    steps: Mapping[str, int]  # by phase: how far it has come
    total: int | None  # steps of `phase`


def consequences(context: Context, reference: str, verb: Verb, phase: str | None) -> Consequences:
    now = context.clock()
    with context.database.read() as connection:
        run = runs.resolve(connection, reference)
        try:
            stopped = _judge(connection, run, verb, phase)
        except Refused as error:
            return Consequences(run=run.id, verb=verb, phase=phase, refused=error.text, hint=error.hint)
        subject = _subject(context, connection, run, verb, stopped)
        said = effects.of(verb, subject.run, subject.rows, subject.phase, subject.saved, subject.steps, subject.total)
        return Consequences(
            run=run.id,
            verb=verb,
            phase=stopped.name if stopped is not None else None,
            kept=said.kept,
            lost=said.lost,
            goes_on=said.goes_on,
            undo=said.undo,
            frees=_frees(context, connection, subject, verb, now),
            per_hour=sum(len(row.slots) * row.price for row in subject.live),
            credits=_credits(context, connection, run, now),
            checkpoint=_newest(subject, now),
            takes=_takes(connection, subject, verb),
            at_most_s=_at_most(subject, verb),
        )


def _judge(connection: sa.Connection, run: Row, verb: Verb, phase: str | None) -> Row | None:
    if verb == "stop":
        return verbs.stoppable(connection, run, phase)
    if verb == "delete":
        verbs.deletable(connection, run)
    else:
        check_active(run, "paused" if verb == "pause" else "killed")
    return None


def _subject(context: Context, connection: sa.Connection, run: Row, verb: Verb, stopped: Row | None) -> Subject:
    rows = phases.of_runs(connection, [run.id])[run.id]
    attempts = phases.attempts_of_runs(connection, [run.id])[run.id]
    live = [row for row in attempts if row.state == AttemptState.STARTED]
    newest = {row.phase_id: row for row in attempts}
    saved = checkpoints.of_run(connection, run.id)
    phase = stopped or next((row for row in rows if row.id in {each.phase_id for each in live}), None)
    phase = phase or next((row for row in rows if row.state not in PHASE_ENDED), None)
    said = views.progress_of(context, newest.get(phase.id)) if phase is not None else None
    steps = {
        row.name: max(
            views.progress_of(context, newest.get(row.id)).step,
            max((each.step for each in saved if each.phase == row.name), default=0) if row.id in newest else 0,
        )
        for row in rows
    }
    if verb == "stop" and phase is not None:
        live = [row for row in live if row.phase_id == phase.id]
    return Subject(run, rows, live, phase, saved, steps, said.total if said else None)


def _frees(context: Context, connection: sa.Connection, subject: Subject, verb: Verb, now: float) -> FreesView:
    """Its slots, and who would get them: planned as the scheduler does, on the pools without these attempts."""
    mine = {(row.pool, slot) for row in subject.live for slot in row.slots}
    held = sorted({row.pool for row in subject.live})
    if not mine:
        return FreesView(slots=0, pool=None)
    there = [
        replace(pool, taken=frozenset(slot for slot in pool.taken if (pool.name, slot) not in mine))
        for pool in views.pool_facts(connection)
    ]
    first: list[Row] = [*itertools.islice(itertools.chain.from_iterable(placing.queue(connection, now)), QUEUED)]
    rows = [row for row in first if row.run_id != subject.run.id]
    if verb == "stop" and subject.phase is not None:
        rows = _with_what_follows(connection, subject, first)
    waiting = Queue().waiting(connection, rows, now, {})
    out = shut(standing.of_hosts(connection, there, now))
    made = plan(waiting, there, now=now, records=context.hub.records, shut=out)
    placed = [each for each in made.placements if each.pool in held][:NAMED]
    names = {row.phase_id: row.name for row in rows}
    known = runs.by_id(connection, {each.waiting.run_id for each in placed})
    return FreesView(
        slots=len(mine),
        pool=" and ".join(held),
        next=[
            NextView(
                run=each.waiting.run_id,
                number=known[each.waiting.run_id].number,
                name=known[each.waiting.run_id].name,
                phase=names[each.waiting.phase_id],
                slots=each.waiting.slots,
            )
            for each in placed
        ],
    )


def _with_what_follows(connection: sa.Connection, subject: Subject, queue: Sequence[Any]) -> list[Any]:
    """The queue with the phases that can start when the stopped one is done."""
    assert subject.phase is not None
    [facts] = phases.facts(connection, [subject.run.id])
    can = {phase.id for phase in ready(_as_if_done(facts, subject.phase.id))}
    waits = {row.phase_id for row in queue}
    own = [
        Queued(subject.run.id, row.id, row.name, row.slots, subject.run.priority, subject.run.attempts)
        for row in subject.rows
        if row.id in can and row.id not in waits
    ]
    numbers = runs.numbers(connection, {row.run_id for row in queue})
    numbers[subject.run.id] = subject.run.number
    return sorted([*queue, *own], key=lambda row: (-row.priority, numbers[row.run_id]))


def _as_if_done(facts: RunFacts, phase_id: str) -> RunFacts:
    done = tuple(
        replace(phase, state=PhaseState.COMPLETED) if phase.id == phase_id else phase for phase in facts.phases
    )
    return replace(facts, phases=done)


def _credits(context: Context, connection: sa.Connection, run: Row, now: float) -> CreditsView:
    cost = views.credits_of(context, run, phases.attempts_of_runs(connection, [run.id])[run.id], now)
    if cost.saved is not None or run.state in (RunState.COMPLETED, RunState.FAILED):
        return cost
    return cost.model_copy(update={"saved": credits.saved(cost.estimated, cost.used)})


def _newest(subject: Subject, now: float) -> NewestView | None:
    found = effects.newest(subject.phase, subject.saved)
    if found is None:
        return None
    return NewestView(
        phase=found.phase,
        step=found.step,
        committed_at=iso(found.committed_at),
        age_s=max(0.0, now - found.committed_at),
        steps_since=max(0, subject.steps.get(found.phase, 0) - found.step) if subject.live else None,
    )


def _takes(connection: sa.Connection, subject: Subject, verb: Verb) -> TakesView | None:
    """This phase of this workflow first; else anything on its pool."""
    if verb == "delete" or not subject.live:
        return None
    measure = {"stop": durations.stops, "pause": durations.pauses}.get(verb, durations.kills)
    made, run = measure(connection), subject.run
    workflow = (run.workflow or "").partition("@")[0]
    name = subject.phase.name if subject.phase is not None else ""

    def alike(row: Any) -> bool:
        same = (row.project, row.run) == (run.project, run.name)
        return row.phase == name and (same or bool(workflow and (row.workflow or "").partition("@")[0] == workflow))

    own = [float(row.seconds) for row in made if alike(row)]
    if own:
        return TakesView(seconds=statistics.median(own), longest=max(own), count=len(own), among="phase")
    pools = {row.pool for row in subject.live}
    others = [float(row.seconds) for row in made if row.pool in pools]
    if others:
        return TakesView(seconds=statistics.median(others), longest=max(others), count=len(others), among="pool")
    return None


def _at_most(subject: Subject, verb: Verb) -> float | None:
    """What the ladder allows: then it ends without its consent."""
    if verb == "delete" or not subject.live:
        return None
    spec, ids = spec_of(subject.run.spec), {row.phase_id for row in subject.live}
    ladders: list[Ladder] = [spec.phase(row.name).grace for row in subject.rows if row.id in ids]
    if verb in ("kill", "cancel"):
        return max(ladder.kill_save.total_seconds() for ladder in ladders)
    return max(ladder.total.total_seconds() for ladder in ladders)
