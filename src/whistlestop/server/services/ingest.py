"""What runners send, stored exactly once: bytes and the new offset of their stream in one transaction."""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from whistlestop.channel.layout import Kind
from whistlestop.channel.records import parse
from whistlestop.domain.errors import BadRequest, DiskFull, StaleAttempt
from whistlestop.domain.estimates import Pace
from whistlestop.domain.guarding import stop_reason
from whistlestop.domain.states import AttemptState, Stage
from whistlestop.domain.stops import Stop
from whistlestop.server.services import changes, cleaning, gangs, points, runner_events
from whistlestop.server.services.context import Context
from whistlestop.server.services.runner_events import Decides
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import admin, checkpoints, events, logs, nodes, phases, runs, streams
from whistlestop.wire.frames import (
    Data,
    LogLine,
    Order,
    Progress,
    decode_line,
    pack_record,
    split_node,
    split_records,
)
from whistlestop.wire.spec import Secret

log = logging.getLogger(__name__)
Row = sa.Row[Any]
RUNNER = "runner"
PROGRAM_LIMIT = "54"  # the class of PostgreSQL's errors
TOO_LARGE = (
    "too many SQL variables",
    "too many terms",
    "Expression tree is too large",
    "string or blob too big",
    "number of parameters must be",
)
PERSIST_EVERY = 2.0  # seconds between two writes of an attempt's progress


def offsets(context: Context, attempt_id: str) -> dict[str, int]:
    with context.database.read() as connection:
        return streams.offsets(connection, attempt_id)


def order(context: Context, attempt_id: str) -> Order:
    """The standing order for an attempt."""
    with context.database.read() as connection:
        attempt = phases.attempt(connection, attempt_id)
        if attempt is None:
            raise StaleAttempt(f"attempt {attempt_id} is not known here any more")
        orders = dict(standing_orders(connection, attempt.run_id, with_protected=True, now=context.clock()))
        return orders.get(attempt_id, Order())  # an ended one has nothing more to do


def standing_orders(
    connection: sa.Connection, run_id: str, *, with_protected: bool = False, now: float = 0.0
) -> list[tuple[str, Order]]:
    """For every live attempt of a run, from the requests beside run and phase; one query on a stop's way."""
    protected = checkpoints.protected(connection, run_id) if with_protected else None
    found = phases.live_with_requests(connection, run_id)
    leaves = {row.id: gangs.why_leave(connection, row, now) for row in found if row.nodes > 1}
    return [(row.id, _order(row, protected, leaves.get(row.id, ""))) for row in found]


def _order(row: sa.Row[*tuple[Any, ...]], protected: list[str] | None, leave: str) -> Order:
    level = max(Stop(row.request), Stop.FINISH_PHASE if row.stop_seq else Stop.NONE)
    return Order(
        # Raised by whatever is asked for, so that of two orders the newer one is known.
        seq=row.request_seq
        + row.stop_seq
        + row.save_seq
        + changes.last_seq(row.steering)
        + (row.preempt_at is not None)
        + bool(leave),
        stop=int(level),
        latest=row.request_latest,
        actor=row.request_by if row.request else row.stop_by,
        reason=stop_reason(row.stop_by),
        # A new attempt starts counting at 0: what an earlier one has saved is not asked for again.
        checkpoint_now=row.save_seq if row.saves_done < row.save_seq else 0,
        kill_save=row.kill_grace,
        protected=protected,
        steering=changes.standing(row.steering) or None,
        preempt_deadline=row.preempt_at or 0.0,
        preempt_why=row.preempt_why,
        leave=leave,
    )


def store(context: Context, attempt: Row, batch: Sequence[Data]) -> dict[str, int]:
    """Take in what is new of the frames, in one transaction; the answer is how far each stream is safe here.

    Bytes and offset go together: after a power cut the runner is asked for both again, so no disk is waited for. What
    the runner itself says (checkpoints, the end) is acted upon, and has to be on the disk first.
    """
    ordered = sorted(batch, key=lambda frame: _is_runners(frame))  # `ended` finds everything else stored
    try:
        safe, decides = _store_all(context, attempt, _joined(ordered))
    except Exception as error:
        if passes(error):
            raise  # the same again later
        # One of them can't be stored, now or ever. It must not hold up the others, least of all the runner's words.
        log.exception("attempt %s: a batch can't be stored as a whole; frame by frame", attempt.id)
        safe, decides = _store_apart(context, attempt, ordered)
    if decides >= Decides.SCHEDULER:
        context.hub.changed(attempt.run_id)
    else:
        context.hub.shown(attempt.run_id)
    if decides:
        context.hub.suspected(attempt.run_id, anew=decides > Decides.LOOK)
    return safe


def passes(error: Exception) -> bool:
    """The database's trouble, not the frames'. A statement that a frame makes too large will be so the next time."""
    if not isinstance(error, sa.exc.OperationalError):
        return isinstance(error, DiskFull)
    beyond = (getattr(error.orig, "sqlstate", None) or "").startswith(PROGRAM_LIMIT)
    return not beyond and not any(words in str(error.orig) for words in TOO_LARGE)


def _is_runners(frame: Data) -> bool:
    return split_node(frame.stream)[0] == RUNNER


def _joined(batch: Sequence[Data]) -> list[Data]:
    """Metrics that follow each other as one piece: each piece costs the same few queries."""
    parts: list[list[Data]] = []
    newest: dict[str, list[Data]] = {}
    for frame in batch:
        part = newest.get(frame.stream)
        if part and frame.stream.startswith("metrics-") and part[-1].offset + len(part[-1].data) == frame.offset:
            part.append(frame)
        else:
            newest[frame.stream] = [frame]
            parts.append(newest[frame.stream])
    return [
        part[0] if len(part) == 1 else Data(part[0].stream, part[0].offset, b"".join(frame.data for frame in part))
        for part in parts
    ]


def _store_all(context: Context, attempt: Row, batch: Sequence[Data]) -> tuple[dict[str, int], Decides]:
    safe: dict[str, int] = {}
    decides = Decides.NOTHING
    with context.database.write(durable=any(map(_is_runners, batch))) as connection:
        for frame in batch:
            safe[frame.stream], decided = _store_one(context, connection, attempt, frame)
            decides = max(decides, decided)
    if decides is Decides.OVER:
        context.hub.over(attempt.id)
    elif decides is Decides.ORDERS:
        context.hub.ordered(attempt.id, order(context, attempt.id))
    return safe, decides


def _store_apart(context: Context, attempt: Row, batch: Sequence[Data]) -> tuple[dict[str, int], Decides]:
    safe: dict[str, int] = {}
    decides = Decides.NOTHING
    for frame in batch:
        try:
            part, decided = _store_all(context, attempt, [frame])
        except Exception as error:
            if passes(error):
                raise
            part, decided = {frame.stream: _set_aside(context, attempt, frame, error)}, Decides.NOTHING
        safe |= part
        decides = max(decides, decided)
    return safe, decides


def _set_aside(context: Context, attempt: Row, frame: Data, error: Exception) -> int:
    """Go on behind what can't be read, and say so where people look."""
    end = frame.offset + len(frame.data)
    said = f"{len(frame.data)} bytes of {frame.stream} could not be read and were left out: {error}"
    with context.database.write() as connection:
        here, records = streams.position(connection, attempt.id, frame.stream)
        streams.advance(connection, attempt.id, frame.stream, offset=max(here, end), records=records)
        events.add(
            connection,
            attempt.run_id,
            "notice",
            cleaning.text(said, 500),
            at=context.clock(),
            scope="instance",
            attempt=attempt.number,
        )
    return max(here, end)


def _store_one(context: Context, connection: sa.Connection, attempt: Row, frame: Data) -> tuple[int, Decides]:
    decides = Decides.NOTHING
    here, records = streams.position(connection, attempt.id, frame.stream)
    fresh = frame.data[max(0, here - frame.offset) :] if frame.offset <= here else b""
    if not fresh:
        return here, Decides.NOTHING  # a gap, or nothing new
    name, node = split_node(frame.stream)
    if name == "logs":
        taken, count = _logs(connection, attempt, fresh)
    elif name.startswith("metrics-"):
        taken, count, odd = _metrics(context, connection, attempt, frame.stream, fresh)
        decides = Decides.LOOK if odd else decides
    elif name.startswith("events-"):
        taken, count = _sdk_events(context, connection, attempt, fresh)
    elif name == RUNNER and node < attempt.nodes:
        bodies, taken = split_records(fresh)
        count = len(bodies)
        decides = runner_events.apply(context, connection, attempt, bodies, node=node)
    else:
        raise BadRequest(f"there is no stream {frame.stream!r}")
    streams.advance(connection, attempt.id, frame.stream, offset=here + taken, records=records + count)
    return here + taken, decides


class ProgressKeeper:
    """The newest progress of one link: shown at once, written down now and then."""

    def __init__(self, context: Context, attempt: Row, node: int = 0) -> None:
        self._context, self._attempt, self._node, self._written = context, attempt, node, 0.0

    def take(self, progress: Progress) -> bool:
        """True: it is time to call `write`. Of several nodes the first tells how far all of them are."""
        hub = self._context.hub
        if self._node:
            return self._context.clock() - self._written >= PERSIST_EVERY
        hub.progress[self._attempt.id] = progress
        if progress.loop_started_at:
            # From the begin of the loop on: a server that was away has missed the reports, not how long they took.
            known = hub.paces.get(self._attempt.id) or Pace().told(progress.resumed_step, progress.loop_started_at)
            hub.paces[self._attempt.id] = known.told(progress.step, progress.progress_at)
        hub.shown(self._attempt.run_id)
        return self._context.clock() - self._written >= PERSIST_EVERY

    def write(self) -> None:
        if self._attempt.nodes > 1:
            self._written = self._context.clock()
            with self._context.database.write(durable=False) as connection:
                nodes.heard(connection, self._attempt.id, self._node, self._written)
            if self._node:
                return
        newest = self._context.hub.progress.get(self._attempt.id)
        if newest is None:
            return
        self._written = self._context.clock()
        stage = {"stage": newest.stage} if newest.stage in set(Stage) else {}
        with self._context.database.write(durable=False) as connection:
            row = phases.attempt(connection, self._attempt.id)
            if row is None or row.state != AttemptState.STARTED:
                self._context.hub.over(self._attempt.id)
            else:
                phases.update_attempt(
                    connection,
                    self._attempt.id,
                    progress=msgspec.to_builtins(newest),
                    last_step=newest.step,
                    seen_at=self._written,
                    **stage,
                )


def _logs(connection: sa.Connection, attempt: Row, data: bytes) -> tuple[int, int]:
    """Lines are numbered over all nodes."""
    bodies, taken = split_records(data)
    if bodies:
        before = streams.lines(connection, attempt.id)
        logs.append(connection, attempt.id, before + 1, [_readable(body) for body in bodies])
    return taken, len(bodies)


def _metrics(
    context: Context, connection: sa.Connection, attempt: Row, stream: str, data: bytes
) -> tuple[int, int, bool]:
    """How many bytes and records; and whether a value was not finite."""
    stored = points.store(connection, attempt.id, stream, data)
    if stored.first:
        most = f"{points.MOST_SERIES:,}"
        said = f"attempt {attempt.number} has logged {most} names; points of further names are left out"
        events.add(
            connection,
            attempt.run_id,
            "notice",
            f"{said}. A name is for a series: what differs from step to step belongs into its values",
            at=context.clock(),
            attempt=attempt.number,
        )
    return len(data), stored.records, stored.odd


def _readable(body: bytes) -> bytes:
    """What could not be decoded could not be shown either, then or ever."""
    try:
        decode_line(body)
    except msgspec.DecodeError:
        return pack_record(LogLine(0.0, "sys", 0, "[a line that could not be read]"))[4:]
    return body


def _sdk_events(context: Context, connection: sa.Connection, attempt: Row, data: bytes) -> tuple[int, int]:
    count, hidden = 0, _secrets(context, connection, attempt)
    for record in parse(data):
        count += 1
        if record.kind == Kind.EVENT:
            said = cleaning.masked(cleaning.data(record.event()), hidden)
            runner_events.from_program(context, connection, attempt, said)
    return len(data), count


def _secrets(context: Context, connection: sa.Connection, attempt: Row) -> list[str]:
    """What the program was given in confidence, and may have said aloud."""
    run, phase = runs.get(connection, attempt.run_id), phases.get(connection, attempt.phase_id)
    env = spec_of(run.spec).phase(phase.name).env
    sealed = admin.find_secrets(connection, {value.name for value in env.values() if isinstance(value, Secret)})
    return [context.vault.unseal(name, data) for name, data in sealed.items()]
