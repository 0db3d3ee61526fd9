"""An attempt as its runner needs it: the spec's phase, the run's code and surroundings, what is already there."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from whistlestop.blobs.open import is_remote
from whistlestop.capacity.records import Tenure, unnoticed_rate
from whistlestop.domain import credits
from whistlestop.domain.checkpoints import passed_over
from whistlestop.domain.errors import NotFound
from whistlestop.domain.guarding import stop_reason
from whistlestop.domain.reasons import EndReason
from whistlestop.domain.states import AttemptState
from whistlestop.domain.stops import Stop
from whistlestop.server.services import budgets, bundles, changes, standing, storages, views
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import admin, checkpoints, phases, pools, runs
from whistlestop.wire.launch import Input, Launch
from whistlestop.wire.spec import PhaseSpec, Secret

Row = sa.Row[Any]


def build(context: Context, attempt_id: str, token: str, url: str) -> tuple[Launch, dict[str, str]]:
    """The launch and the secrets that go beside it."""
    with context.database.read() as connection:
        attempt = phases.attempt(connection, attempt_id)
        if attempt is None:
            raise NotFound(f"there is no attempt {attempt_id}")
        run = runs.get(connection, attempt.run_id)
        phase = phases.get(connection, attempt.phase_id)
        spec = spec_of(run.spec).phase(phase.name)
        # With the removed ones: where all of them were, it must not begin at step 0 as if nothing had been done.
        made = checkpoints.of_run(connection, run.id, phase.name, trashed=True)
        made = [row for row in made if not passed_over(phase.passed_over, attempt=row.attempt, step=row.step)]
        protected = checkpoints.protected(connection, run.id)
        inputs = _inputs(context, connection, run, spec)
        limit, why = remaining(context, connection, run, phase, spec, len(attempt.slots), attempt.price)
        secrets = _secrets(context, connection, spec)
        worked = _storage_worked(connection, run)
        beside = _waits_for_its_checkpoint(connection, attempt, made)
        options = _options(context, connection, run, phase.restore_from)
        rate = preemption_rate(phases.of_pool(connection, attempt.pool), context.clock())
        pool = pools.get(connection, attempt.pool)
        avoid = _excluded(connection, attempt.pool, context.clock())
    where = storages.root(context.settings, run)
    remote = is_remote(where)
    settings = context.settings
    env = {**run.env, **{name: value for name, value in spec.env.items() if isinstance(value, str)}}
    launch = Launch(
        attempt_id=attempt_id,
        attempt_number=attempt.number,
        run_id=run.id,
        run_name=run.name,
        phase=phase.name,
        kind=phase.kind,
        command=list(spec.command),
        env=env,
        secret_names=sorted(secrets),
        directory=str(settings.attempts / attempt_id),
        workdir=run.in_place or str(settings.work(run.id)),
        cwd=spec.workdir,
        bundle=str(bundles.path_of(settings, run.bundle)) if run.bundle else None,
        checkpoints=where if not remote else str(settings.checkpoints(run.id)),
        storage=where if remote else None,
        storage_options=run.storage_options or {},
        storage_worked=worked,
        preemption_rate=rate,
        restore=not attempt.fresh,
        restore_from=None if attempt.fresh else phase.restore_from,
        restore_options=options,
        fetch_beside=beside,
        must_restore=not attempt.fresh and (bool(made) or phase.restore_from is not None),
        checkpoint_damaged=[row.path for row in made if not row.verified] if attempt.nodes > 1 else [],
        inputs=inputs,
        checkpoint_every=list(spec.checkpoint.every),
        checkpoint_keep=spec.checkpoint.keep,
        checkpoint_policy=spec.checkpoint.policy(),
        checkpoint_protected=protected,
        stop_when=json.dumps([dict(rule) for rule in spec.stop_when]),
        steering=changes.standing(phase.steering),
        slots=attempt.slots,
        nodes=attempt.nodes,
        ranks=spec.ranks,
        host=attempt.host or "",
        avoid=avoid,
        devices=_devices(pool, attempt.slots),
        notices=pool.notices if pool is not None else {},
        stop=int(Stop.FINISH_PHASE) if phase.stop_seq else 0,
        stop_by=phase.stop_by,
        stop_reason=stop_reason(phase.stop_by),
        skip=phase.skips,
        passed_over=phase.passed_over,
        time_limit=limit,
        launched_at=context.clock(),
        limit_reason=why,
        ladder=_ladder(run, spec),
        server=_socket(url),
        token=token,
        server_file=str(settings.server_file),
        log_limit=settings.log_limit,
        sdk_path=str(settings.data / "sdk"),
    )
    return launch, secrets


def _excluded(connection: sa.Connection, pool: str, now: float) -> list[str]:
    """Hosts that a person has excluded: where its engine chooses one, it has to know."""
    said = [row for row in pools.all_hosts(connection).values() if row.pool == pool and row.excluded_at is not None]
    return sorted(row.name for row in said if row.excluded_until is None or row.excluded_until > now)


def _devices(pool: Row | None, slots: Sequence[int]) -> list[int] | None:
    """None: a slot's number is its device's."""
    named = pool.devices if pool is not None else None
    if not named or max(slots, default=0) >= len(named):
        return None
    return [named[slot] for slot in slots]


def _storage_worked(connection: sa.Connection, run: Row) -> bool:
    """No program of a train phase is started before something was written to its storage, and read."""
    if checkpoints.of_run(connection, run.id, trashed=True):
        return True
    trains = {row.id for row in phases.of_runs(connection, [run.id])[run.id] if row.kind == "train"}
    return any(row.up and row.phase_id in trains for row in phases.attempts_of_runs(connection, [run.id])[run.id])


def _waits_for_its_checkpoint(connection: sa.Connection, attempt: Row, made: Sequence[Row]) -> bool:
    """Its loop was ours in an earlier attempt: it takes its checkpoint from the SDK, not from the directory. Not where
    one was found damaged: then the next one has to be found before the program starts."""
    rows = phases.attempts_of_runs(connection, [attempt.run_id])[attempt.run_id]
    before = [row for row in rows if row.phase_id == attempt.phase_id and row.number < attempt.number]
    if not before or before[-1].reason == EndReason.CHECKPOINT_DAMAGED or not all(row.verified for row in made):
        return False
    return any((row.progress or {}).get("loop_started_at") for row in before)


def _options(context: Context, connection: sa.Connection, run: Row, address: str | None) -> dict[str, str] | None:
    """Of the storage in which a checkpoint of an earlier run lies; None: as this run's own."""
    parent = run.parent_run
    while address is not None and parent is not None:
        found = runs.by_id(connection, [parent]).get(parent)
        if found is None:
            break
        if address.startswith(f"{storages.root(context.settings, found)}/"):
            return found.storage_options or {}
        parent = found.parent_run
    return None


def preemption_rate(rows: Iterable[Row], now: float) -> float:
    """By the pool's own record; the attempt that is to begin counts for nothing yet."""
    return unnoticed_rate(map(_tenure, rows), now)


def _tenure(row: Row) -> Tenure:
    saved = (row.progress or {}).get("saved_step")
    noticed = row.state == AttemptState.PREEMPTED and isinstance(saved, int) and saved >= (row.last_step or 0)
    return replace(standing.tenure(row), saved_at_end=noticed)


def remaining(
    context: Context,
    connection: sa.Connection,
    run: Row,
    phase: Row,
    spec: PhaseSpec,
    slots: int,
    price: float,
    purse: budgets.Purse | None = None,
) -> tuple[float | None, str]:
    """Seconds this attempt may take, and what says so: the time limit counts over all attempts of the phase. `purse`:
    of this transaction, where it asks for many."""
    purse = purse or budgets.Purse(context, connection)
    now = context.clock()
    attempts = phases.attempts_of_runs(connection, [run.id]).get(run.id, [])
    earlier = [row for row in attempts if row.phase_id == phase.id and row.ended_at is not None]
    limits: list[tuple[float, str]] = []
    if spec.time_limit is not None:
        limits.append((spec.time_limit.total_seconds() - views.elapsed(earlier, now), "time_limit"))
    # As if it ran alone: what others beside it take, or leave when they end, is not known now (see budgets.watch).
    if run.budget is not None and slots * price > 0:
        left = run.budget - credits.used(views.charges(attempts), now)
        limits.append((left * 3600 / (slots * price), "budget_exhausted"))
    alone = purse.seconds_left(run, slots * price)
    if alone is not None:
        limits.append((alone, "budget_exhausted"))
    if run.deadline_at is not None:
        limits.append((run.deadline_at - now, "deadline"))
    left, why = min(limits) if limits else (None, "time_limit")
    if left is not None and left > 0 and why == "budget_exhausted":
        left -= purse.reserve(run, left)
    return left, why


def _inputs(context: Context, connection: sa.Connection, run: Row, spec: PhaseSpec) -> list[Input]:
    """Every phase that comes before, not only the next one: synthesis needs what training made two phases ago."""
    rows = {row.name: row for row in phases.of_runs(connection, [run.id])[run.id]}
    found: list[Input] = []
    waiting, seen = list(spec.needs), set[str]()
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        row = rows[name]
        own = checkpoints.newest(connection, run.id, name)
        if own is not None:
            found.append(Input(phase=name, passed_over=row.passed_over))
        elif row.restore_from is not None:
            options = _options(context, connection, run, row.restore_from)
            found.append(Input(phase=name, path=row.restore_from, options=options))
        waiting.extend(row.needs)
    return found


def _secrets(context: Context, connection: sa.Connection, spec: PhaseSpec) -> dict[str, str]:
    named = {variable: value.name for variable, value in spec.env.items() if isinstance(value, Secret)}
    sealed = admin.find_secrets(connection, set(named.values()))
    missing = sorted(set(named.values()) - set(sealed))
    if missing:
        raise NotFound(f"the secret {missing[0]} is gone", hint=f"whistle secret set {missing[0]}")
    return {variable: context.vault.unseal(name, sealed[name]) for variable, name in named.items()}


def _ladder(run: Row, spec: PhaseSpec) -> dict[str, float]:
    grace = spec.grace
    return {
        "flag": grace.flag.total_seconds(),
        "interrupt": grace.interrupt.total_seconds(),
        "terminate": grace.terminate.total_seconds(),
        "attach": grace.attach.total_seconds(),
        "kill_save": grace.kill_save.total_seconds() if run.kill_grace is None else run.kill_grace,
    }


def _socket(url: str) -> str:
    parts = urlsplit(url)
    return f"{'wss' if parts.scheme == 'https' else 'ws'}://{parts.netloc}/api/v1/runner"
