"""Alerts: receivers, the outbox, and how far the events were looked at."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.reasons import EndReason
from whistlestop.domain.states import AttemptState, RunState
from whistlestop.server.store.schema import (
    alert_cursor,
    alert_episodes,
    alerts,
    attempts,
    checkpoints,
    events,
    phases,
    receivers,
    runs,
)

Row = sa.Row[Any]
WAITING, SENT, GIVEN_UP = "waiting", "sent", "given_up"
MORE_TRIES = alerts.c.tries + 1
_LOSSES = (EndReason.PREEMPTED, EndReason.HOST_LOST)


# --- receivers ----------------------------------------------------------------------------------------------------


def add_receiver(connection: sa.Connection, **values: Any) -> bool:
    """False: there is one of that name."""
    if receiver(connection, values["name"]) is not None:
        return False
    connection.execute(receivers.insert().values(**values))
    return True


def receiver(connection: sa.Connection, name: str) -> Row | None:
    return connection.execute(sa.select(receivers).where(receivers.c.name == name)).one_or_none()


def all_receivers(connection: sa.Connection) -> Sequence[Row]:
    return connection.execute(sa.select(receivers).order_by(receivers.c.name)).all()


def remove_receiver(connection: sa.Connection, name: str) -> bool:
    """With all that is on its way to it."""
    return connection.execute(receivers.delete().where(receivers.c.name == name)).rowcount == 1


def update_receiver(connection: sa.Connection, name: str, **values: Any) -> None:
    connection.execute(receivers.update().where(receivers.c.name == name).values(**values))


# --- from events to the outbox ------------------------------------------------------------------------------------


def cursor(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(alert_cursor.c.seq)) or 0)


def move_cursor(connection: sa.Connection, seq: int) -> None:
    connection.execute(alert_cursor.update().values(seq=seq))


def news(connection: sa.Connection, after: int, kinds: Collection[str], limit: int) -> tuple[int, Sequence[Row]]:
    """Events of these kinds behind that number, and the number up to which nothing else is left to look at."""
    query = sa.select(events).where(events.c.seq > after, events.c.kind.in_(kinds)).order_by(events.c.seq)
    newest = int(connection.scalar(sa.select(sa.func.max(events.c.seq))) or 0)
    found = connection.execute(query.limit(limit)).all()
    return (found[-1].seq if len(found) == limit else max(after, newest)), found


def before(connection: sa.Connection, run_id: str, seq: int, kinds: Collection[str], limit: int) -> Sequence[Row]:
    """Of a run, the newest first."""
    query = sa.select(events).where(events.c.run_id == run_id, events.c.seq < seq, events.c.kind.in_(kinds))
    return connection.execute(query.order_by(events.c.seq.desc()).limit(limit)).all()


def losses(connection: sa.Connection, run_id: str, upto: int, limit: int) -> list[float]:
    """When the run lost its capacity, up to that attempt, the newest first; empty: that attempt did not."""
    query = (
        sa.select(attempts.c.number, attempts.c.ended_at)
        .where(attempts.c.run_id == run_id, attempts.c.number <= upto, attempts.c.reason.in_(_LOSSES))
        .order_by(attempts.c.number.desc())
        .limit(limit)
    )
    found = connection.execute(query).all()
    return [row.ended_at for row in found] if found and found[0].number == upto else []


def queue(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    connection.execute(alerts.insert(), [dict(row) for row in rows])


def begin(connection: sa.Connection, kind: str, subject: str, at: float) -> bool:
    """False: it lasts already."""
    same = sa.and_(alert_episodes.c.kind == kind, alert_episodes.c.subject == subject)
    if connection.scalar(sa.select(alert_episodes.c.at).where(same)) is not None:
        return False
    connection.execute(alert_episodes.insert().values(kind=kind, subject=subject, at=at))
    return True


def lasting(connection: sa.Connection, kind: str) -> set[str]:
    return set(connection.scalars(sa.select(alert_episodes.c.subject).where(alert_episodes.c.kind == kind)))


def over(connection: sa.Connection, kind: str, subjects: Collection[str]) -> None:
    connection.execute(
        alert_episodes.delete().where(alert_episodes.c.kind == kind, alert_episodes.c.subject.in_(subjects))
    )


def training(connection: sa.Connection) -> Sequence[Row]:
    """Attempts that have reached their loop, and are not about to end: what a checkpoint is expected of."""
    query = (
        sa.select(attempts, phases.c.name.label("phase"), runs.c.spec)
        .select_from(
            attempts.join(runs, runs.c.id == attempts.c.run_id).join(phases, phases.c.id == attempts.c.phase_id)
        )
        .where(attempts.c.state == AttemptState.STARTED, attempts.c.loop_at.is_not(None))
        .where(attempts.c.stopping_at.is_(None), phases.c.kind == "train")
    )
    return connection.execute(query).all()


def commits(connection: sa.Connection, run_id: str, phase: str, limit: int) -> Sequence[Row]:
    """The newest first, with those that retention has removed since."""
    query = sa.select(checkpoints).where(checkpoints.c.run_id == run_id, checkpoints.c.phase == phase)
    return connection.execute(query.order_by(checkpoints.c.step.desc()).limit(limit)).all()


def with_budget(connection: sa.Connection) -> Sequence[Row]:
    """Runs that spend, of a budget of their own."""
    lives = sa.exists().where(attempts.c.run_id == runs.c.id, attempts.c.state == AttemptState.STARTED)
    active = runs.c.state.in_((RunState.QUEUED, RunState.STARTING, RunState.RUNNING))
    return connection.execute(sa.select(runs).where(active, runs.c.budget.is_not(None), lives)).all()


def not_ended(connection: sa.Connection, run_ids: Collection[str]) -> set[str]:
    """Those of these runs that are there and go on, or may."""
    return set(connection.scalars(sa.select(runs.c.id).where(runs.c.id.in_(run_ids), runs.c.ended_at.is_(None))))


def spends(connection: sa.Connection, project: str) -> str | None:
    """The newest run of a project that costs something now, or the newest that it has."""
    mine = sa.select(runs.c.id).where(runs.c.project == project).order_by(runs.c.number.desc()).limit(1)
    active = runs.c.state.in_((RunState.STARTING, RunState.RUNNING))
    return connection.scalar(mine.where(active)) or connection.scalar(mine)


# --- from the outbox to receivers ---------------------------------------------------------------------------------


def waiting(connection: sa.Connection) -> dict[str, int]:
    """How many, by receiver. By the index of those that wait."""
    query = sa.select(alerts.c.receiver, sa.func.count().label("count")).where(alerts.c.state == WAITING)
    return {row.receiver: row._mapping["count"] for row in connection.execute(query.group_by(alerts.c.receiver))}


def expecting(connection: sa.Connection) -> Sequence[Row]:
    """Receivers that something waits for. However much it is, this looks at one of each."""
    waits = sa.exists().where(alerts.c.receiver == receivers.c.name, alerts.c.state == WAITING)
    return connection.execute(sa.select(receivers).where(waits).order_by(receivers.c.name)).all()


def head(connection: sa.Connection, name: str) -> Row | None:
    """What is sent next: the oldest that waits."""
    query = sa.select(alerts).where(alerts.c.receiver == name, alerts.c.state == WAITING).order_by(alerts.c.id)
    return connection.execute(query.limit(1)).one_or_none()


def before_them(connection: sa.Connection, rows: Sequence[Row]) -> dict[int, int]:
    """Of those that wait, by id: how many of the same receiver go out before. One walk over the outbox for them all."""
    wait = [row for row in rows if row.state == WAITING]
    if not wait:
        return {}
    place = sa.func.row_number().over(partition_by=alerts.c.receiver, order_by=alerts.c.id) - 1
    ahead = (
        sa.select(alerts.c.id, place.label("ahead"))
        .where(alerts.c.state == WAITING, alerts.c.receiver.in_({row.receiver for row in wait}))
        .where(alerts.c.id <= max(row.id for row in wait))
        .subquery()
    )
    query = sa.select(ahead).where(ahead.c.id.in_([row.id for row in wait]))
    return {row.id: row.ahead for row in connection.execute(query)}


def update(connection: sa.Connection, alert_id: int, **values: Any) -> None:
    connection.execute(alerts.update().where(alerts.c.id == alert_id).values(**values))


def log(
    connection: sa.Connection,
    *,
    receiver: str | None = None,
    run_id: str | None = None,
    state: str | None = None,
    delivery: str | None = None,
    limit: int,
) -> Sequence[Row]:
    """The newest first."""
    query = sa.select(alerts)
    given = {"receiver": receiver, "run_id": run_id, "state": state, "delivery": delivery}
    for column, value in given.items():
        if value is not None:
            query = query.where(alerts.c[column] == value)
    return connection.execute(query.order_by(alerts.c.id.desc()).limit(limit)).all()


def give_up(connection: sa.Connection, created_before: float, *, at: float) -> int:
    """All that has waited since before then: of what waits for a dead receiver, only the first is ever tried."""
    old = sa.and_(alerts.c.state == WAITING, alerts.c.created_at < created_before)
    return connection.execute(alerts.update().where(old).values(state=GIVEN_UP, ended_at=at)).rowcount


def forget(connection: sa.Connection, ended_before: float, *, kind: str) -> int:
    """Deliveries that ended before then, and episodes of a kind that nothing else ends."""
    connection.execute(alert_episodes.delete().where(alert_episodes.c.kind == kind, alert_episodes.c.at < ended_before))
    return connection.execute(alerts.delete().where(alerts.c.ended_at < ended_before)).rowcount
