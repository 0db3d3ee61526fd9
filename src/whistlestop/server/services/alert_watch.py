"""What no single event tells: a checkpoint that is too old, a budget that is nearly used. Looked at now and then; each
becomes an event of its run when it begins, and once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.alerts import AlertKind
from whistlestop.domain.errors import SpecInvalid
from whistlestop.domain.estimates import Pace, seconds_left
from whistlestop.domain.states import Stage
from whistlestop.server.services import budgets
from whistlestop.server.services.budgets import Balance
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import alerts as store
from whistlestop.server.store import events

Row = sa.Row[Any]
SHARE = 0.8  # of a budget
RUN = "run "  # how the subject begins that is a run's own budget
AT_LEAST = 45.0  # seconds: nobody need know that a checkpoint is half a minute old
COMMITS = 8  # that are looked at: how often it has saved of late
ASKED = "on request"  # as the SDK says why it saved: that says nothing of how often it does
_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}


@dataclass(frozen=True)
class _Begun:
    run_id: str
    subject: str
    text: str
    phase: str | None = None
    attempt: int | None = None
    data: dict[str, Any] | None = None


@dataclass
class _Seen:
    found: list[_Begun] = field(default_factory=list)
    unsure: set[str] = field(default_factory=set)  # subjects of which nobody can say just now: what lasted, lasts


def watch(context: Context) -> None:
    with context.database.read() as connection:
        known = {kind: store.lasting(connection, kind) for kind in (AlertKind.CHECKPOINT_TOO_OLD, AlertKind.BUDGET_80)}
        stale = _too_old(context, connection)
        spent = _nearly_spent(context, connection, known[AlertKind.BUDGET_80])
    _tell(context, AlertKind.CHECKPOINT_TOO_OLD, stale, known[AlertKind.CHECKPOINT_TOO_OLD])
    _tell(context, AlertKind.BUDGET_80, spent, known[AlertKind.BUDGET_80])


def _tell(context: Context, kind: AlertKind, seen: _Seen, known: set[str]) -> None:
    """Those that are new become events; those that are over may begin again."""
    fresh = [each for each in seen.found if each.subject not in known]
    gone = known - {each.subject for each in seen.found} - seen.unsure
    if not fresh and not gone:
        return
    with context.database.write() as connection:
        store.over(connection, kind, gone)
        for each in fresh:
            if store.begin(connection, kind, each.subject, context.clock()):
                events.add(connection, each.run_id, kind.value, each.text, at=context.clock(),
                           phase=each.phase, attempt=each.attempt, data=each.data)  # fmt: skip
    for each in fresh:
        context.hub.shown(each.run_id)


# --- checkpoints --------------------------------------------------------------------------------------------------


def _too_old(context: Context, connection: sa.Connection) -> _Seen:
    now, seen = context.clock(), _Seen()
    for attempt in store.training(connection):
        progress = context.hub.progress.get(attempt.id)
        # Nothing is at risk of which nothing is known, and an evaluation makes no steps.
        if progress is None or progress.stage in (Stage.EVALUATING, Stage.STOPPING, Stage.ENDING):
            seen.unsure.add(attempt.id)
            continue
        rows = store.commits(connection, attempt.run_id, attempt.phase, COMMITS)
        since = max([attempt.loop_at, *(row.committed_at for row in rows)])
        if rows and progress.step <= rows[0].step:
            continue
        limit = allowed(_every(attempt), attempt, rows, context.hub.paces.get(attempt.id), progress.batches)
        if limit is None:
            seen.unsure.add(attempt.id)
            continue
        if now - since <= limit:
            continue
        last = f"the last is of step {rows[0].step:,}" if rows else "there is none yet"
        text = (
            f"no checkpoint of phase {attempt.phase} for {_length(now - since)}, and one was due after "
            f"{_length(limit)} at the latest: {last}, it is at step {progress.step:,}. Look whether its storage answers"
        )
        data = {"age_s": round(now - since, 1), "limit_s": round(limit, 1), "step": progress.step,
                "saved_step": rows[0].step if rows else None}  # fmt: skip
        seen.found.append(_Begun(attempt.run_id, attempt.id, text, attempt.phase, attempt.number, data))
    return seen


def allowed(
    every: Sequence[str], attempt: Any, commits: Sequence[Any], pace: Pace | None, batches: int
) -> float | None:
    """Seconds without a checkpoint after which one is missing: two intervals and an upload. None: nobody can say. How
    often it really saves counts, where it is rarer than it was told to."""
    mine = sorted(row.committed_at for row in commits if row.attempt == attempt.number and row.why != ASKED)
    gaps = [later - earlier for earlier, later in pairwise([attempt.loop_at, *mine])] if mine else _earlier(commits)
    stated = [seconds for each in every if (seconds := _stated(each, pace, batches)) is not None]
    if not every and len(mine) < 2:
        return None
    interval = max([*gaps[-5:], *([min(stated)] if stated else [])], default=None)
    if interval is None or not math.isfinite(interval):
        return None
    upload = max((row.upload_seconds or 0.0 for row in commits), default=0.0)
    return float(max(AT_LEAST, 2 * interval + upload))


def _earlier(commits: Sequence[Any]) -> list[float]:
    """As often as the attempts before it saved."""
    inside = [row for row in commits if row.why != ASKED]
    pairs = [(newer, older) for newer, older in pairwise(inside) if newer.attempt == older.attempt]
    return [newer.committed_at - older.committed_at for newer, older in pairs]


def _stated(cadence: str, pace: Pace | None, batches: int) -> float | None:
    count, _, unit = cadence.partition(" ")
    unit = unit.removesuffix("s")
    if unit in _SECONDS:
        return int(count) * _SECONDS[unit]
    if unit not in ("step", "epoch"):
        return None  # auto
    left = seconds_left(pace, int(count) * (batches if unit == "epoch" else 1))
    return left.likely if left is not None and left.likely > 0 else None


def _every(attempt: Row) -> tuple[str, ...]:
    try:
        return spec_of(attempt.spec).phase(attempt.phase).checkpoint.every
    except (SpecInvalid, StopIteration):
        return ()


# --- budgets ------------------------------------------------------------------------------------------------------


def _nearly_spent(context: Context, connection: sa.Connection, known: set[str]) -> _Seen:
    spending, seen = store.with_budget(connection), _Seen()
    for run in spending:
        balance = budgets.of_run(context, connection, run)
        if _share(balance) >= SHARE:
            seen.found.append(_Begun(run.id, RUN + run.id, _spent(balance), data=_figures(balance)))
    # A run that spends nothing just now, preempted or paused, has used what it has used.
    resting = {each.removeprefix(RUN) for each in known if each.startswith(RUN)} - {run.id for run in spending}
    seen.unsure.update(RUN + each for each in store.not_ended(connection, resting))
    for balance in budgets.balances(context, connection):
        if _share(balance) < SHARE:
            continue
        run_id = store.spends(connection, balance.project)
        if run_id is not None:
            subject = f"project {balance.project} {balance.credits:g} since {balance.since}"  # another one is new
            data = {**_figures(balance), "project": balance.project}
            seen.found.append(_Begun(run_id, subject, _spent(balance), data=data))
    return seen


def _share(balance: Balance) -> float:
    return (balance.spent + balance.running) / balance.credits if balance.credits > 0 else 1.0


def _spent(balance: Balance) -> str:
    lasts = balance.seconds()
    left = f"; at the present rate the rest lasts {_length(lasts)}" if lasts is not None and lasts > 0 else ""
    used = balance.spent + balance.running
    return f"{balance.whose} has used {used:.2f} of its {balance.credits:.2f} credits, {_share(balance):.0%}{left}"


def _figures(balance: Balance) -> dict[str, Any]:
    return {"of": balance.whose, "credits": balance.credits, "used": round(balance.spent + balance.running, 4)}


def _length(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
