"""All that a diagnosis may look at, gathered from the store: a fixed number of questions, however long the run is."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from whistlestop.capacity.hosts import GOOD, HOST_CAUSED, PERHAPS
from whistlestop.diagnosis.evidence import LINES, End, Evidence, HostRecord, Line, Place, Told
from whistlestop.domain.reasons import EndReason
from whistlestop.domain.states import PHASE_ENDED, AttemptState, PhaseState
from whistlestop.domain.stop_rules import Above, AllOf, AnyOf, Below, Plateau, Rule, judge_rules
from whistlestop.server.services import accounting, charts, curves
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.services.standing import HOST_RECORD
from whistlestop.server.store import events, logs, phases, placing
from whistlestop.wire.spec import PhaseSpec

Row = sa.Row[Any]
MOST_ENDS = 50  # attempts, the newest
MOST_TOLD = 200  # events, the newest
MOST_MARKS = 60
MOST_HOSTS = 8
MOST_BESIDE = 500  # ends of other runs on those hosts
LOOKED_AT = 1_000_000  # characters of output, for lines of stderr
WIDEST = 2_000  # characters of a line

# What is told when something is amiss, and what comes again and again in every good run.
KINDS = (
    "straggler", "stuck", "going_again", "save_failed", "notice", "notice_too_short", "dropped", "leftovers", "rung",
    "program", "checkpoint_set_aside", "rehearsal",
)  # fmt: skip
MARKS = ("evaluation", "epoch", "checkpoint")
_FAILED = HOST_CAUSED | PERHAPS


def gather(context: Context, connection: sa.Connection, run_row: Row, phase_row: Row) -> Evidence:
    """One phase of a run, as of now."""
    tries = phases.attempts_of_runs(connection, [run_row.id]).get(run_row.id, [])
    mine = [row for row in tries if row.phase_id == phase_row.id]
    newest = mine[-1] if mine else None
    aims = aims_of(spec_of(run_row.spec).phase(phase_row.name))
    return Evidence(
        now=context.clock(),
        kind=phase_row.kind,
        status=_status(run_row, phase_row),
        place=_place(context, newest),
        series=curves.read(connection, run_row.id, phase_row.name, charts.cuts(tries), aims),
        ends=tuple(_end(row) for row in mine[-MOST_ENDS:] if row.ended_at is not None),
        lines=_lines(connection, newest),
        told=_told(connection, run_row.id, phase_row.name),
        hosts=_hosts(connection, run_row.id, mine, context.clock()),
        aims=aims,
        attempts=len(mine),
        price=newest.price * len(newest.slots) / 3600.0 if newest is not None else 0.0,
        spent=sum(accounting.spent_on(context, connection, run_row.id).values()),
    )


def _status(run: Row, phase: Row) -> str:
    """The run's, but for a phase that is over while others go on: nobody is to end those for what it was."""
    if phase.state not in PHASE_ENDED:
        return str(run.state)
    return "completed" if phase.state == PhaseState.SKIPPED else str(phase.state)


def aims_of(phase: PhaseSpec) -> dict[str, str]:
    """Which way its metrics should go, as far as the spec tells: by what keeps a checkpoint, and by what stops it."""
    rules, _ = judge_rules(phase.stop_when)
    found = dict(_aims(rules))
    if phase.checkpoint.by:
        found[phase.checkpoint.by] = phase.checkpoint.mode
    return found


def _aims(rules: Iterable[Rule]) -> Iterable[tuple[str, str]]:
    for rule in rules:
        match rule:
            case Plateau():
                yield rule.metric, rule.mode
            case Above():
                yield rule.metric, "max"
            case Below():
                yield rule.metric, "min"
            case AllOf() | AnyOf():
                yield from _aims(rule.rules)


def _place(context: Context, attempt: Row | None) -> Place:
    """What the runner said last: from memory while it is connected, else as it was stored."""
    if attempt is None:
        return Place()
    fresh = context.hub.progress.get(attempt.id) if attempt.state == AttemptState.STARTED else None
    said: Mapping[str, Any] = msgspec.to_builtins(fresh) if fresh is not None else (attempt.progress or {})
    return Place(
        stage=str(said.get("stage") or attempt.stage),
        step=max(int(said.get("step") or 0), attempt.last_step or 0),
        total=int(said.get("total") or 0),
        epoch=int(said.get("epoch") or 0),
        resumed_step=int(said.get("resumed_step") or attempt.resumed_from or 0),
        started_at=attempt.started_at,
        loop_started_at=float(said.get("loop_started_at") or attempt.loop_at or 0.0),
        progress_at=float(said.get("progress_at") or 0.0),
        ended_at=attempt.ended_at,
    )


def _end(row: Row) -> End:
    return End(
        attempt=row.number,
        reason=row.reason or "",
        text=row.text,
        host=row.host or "",
        exit_code=row.exit_code,
        signal=row.signal,
        last_step=row.last_step,
        at=row.ended_at,
    )


def _lines(connection: sa.Connection, attempt: Row | None) -> tuple[Line, ...]:
    """The last ones; and since stdout may drown what matters, of stderr as many again, as far as that is near."""
    if attempt is None:
        return ()
    found, errors, seen = [], 0, 0
    for place, (_, line) in enumerate(logs.read_back(connection, attempt.id)):
        if place < LINES or line.stream == "err":
            found.append(Line(line.at, line.stream, line.rank, line.text[:WIDEST], attempt.number))
            errors += line.stream == "err"
        seen += len(line.text) + 1
        if place >= LINES and (errors >= LINES or seen >= LOOKED_AT):
            break
    return tuple(reversed(found))


def _told(connection: sa.Connection, run_id: str, phase: str) -> tuple[Told, ...]:
    """In order. Marks are many: they never push out what is rare."""
    rows = [
        *events.last_of_kinds(connection, run_id, KINDS, MOST_TOLD),
        *events.last_of_kinds(connection, run_id, MARKS, MOST_MARKS),
    ]
    return tuple(
        Told(row.at, row.kind, row.text, row.data, row.attempt or 0)
        for row in sorted(rows, key=lambda row: row.seq)
        if row.phase in (None, phase)
    )


def _hosts(connection: sa.Connection, run_id: str, mine: Sequence[Row], now: float) -> tuple[HostRecord, ...]:
    """Of the hosts where this phase has failed last: what others have seen there, and itself elsewhere."""
    failed = [row for row in mine if row.reason in _FAILED and row.host]
    names = list(dict.fromkeys(row.host for row in reversed(failed)))[:MOST_HOSTS]
    if not names:
        return ()
    since = now - HOST_RECORD
    beside = placing.ends_beside(connection, names, without=run_id, since=since, limit=MOST_BESIDE)
    bad = [row for row in beside if row.reason in _FAILED]
    of_phase: dict[str, list[Any]] = defaultdict(list)
    if bad:
        for row in placing.ends_of_phases(connection, {row.phase_id for row in bad}, since=since):
            of_phase[row.phase_id].append(row)
    return tuple(
        HostRecord(
            host=name,
            good=sum(1 for row in beside if row.host == name and row.reason in GOOD),
            failed=sum(1 for row in bad if row.host == name and not _elsewhere(row, of_phase[row.phase_id])),
            elsewhere=_got_on(name, [row for row in failed if row.host == name], mine),
        )
        for name in names
    )


def _elsewhere(end: Any, ends: Iterable[Any]) -> bool:
    """The same failure, on another host: it takes its trouble along."""
    return any(other.host != end.host and other.reason == end.reason for other in ends)


def _got_on(host: str, failed: Sequence[Row], mine: Sequence[Row]) -> int:
    """Attempts on other hosts that did not fail so, or came further before they did."""
    reasons: set[EndReason] = {row.reason for row in failed}
    furthest = max(row.last_step or 0 for row in failed)
    return sum(
        1
        for row in mine
        if row.host not in (None, host)
        and (row.reason in GOOD or (row.reason not in reasons and (row.last_step or 0) > furthest))
    )
