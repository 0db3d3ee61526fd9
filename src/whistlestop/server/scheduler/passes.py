"""What one pass of the scheduler does: settle runs, place phases, look after jobs."""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from whistlestop.capacity.queue import Placement, Waiting, place
from whistlestop.domain.clock import iso
from whistlestop.domain.errors import EngineUnreachable
from whistlestop.domain.ids import new_id
from whistlestop.domain.lifecycle import PhaseChange, RunChange, RunFacts, decide, ready
from whistlestop.domain.reasons import EndReason
from whistlestop.domain.states import RUN_ENDED, PhaseState, RunState, Stage
from whistlestop.domain.stops import Stop
from whistlestop.engines.base import Engine, JobId, JobState
from whistlestop.server.scheduler.aside import Aside
from whistlestop.server.scheduler.sweeping import Sweeper
from whistlestop.server.services import accounts, launches, runner_events, storages, views
from whistlestop.server.services.context import Context
from whistlestop.server.services.specs import spec_of
from whistlestop.server.store import admin, checkpoints, events, phases, runs
from whistlestop.wire.spec import PhaseKind

log = logging.getLogger(__name__)
Row = sa.Row[Any]
LAUNCH_TRIES = 3  # of one attempt; what fails then counts as our own fault
PAGE = 64  # queued phases read at a time


class Passes:
    def __init__(self, context: Context, engine: Engine, url: Callable[[], str]) -> None:
        self._context, self._engine, self._url = context, engine, url
        self._salvaged: dict[str, float] = {}
        self._tries: Counter[str] = Counter()  # launches of an attempt that did not come up
        # Removing files and forcing kills may take long; the queue does not wait for them.
        self._aside = Aside()
        self.sweeper = Sweeper(context)

    # --- settle: facts become states --------------------------------------------------------------------------

    def settle(self, run_ids: Sequence[str]) -> None:
        try:
            touched = self._settle(run_ids)
        except Exception:
            if len(run_ids) <= 1:
                raise
            # One run's trouble is not the others': each by itself.
            log.exception("runs could not be settled together")
            for run_id in run_ids:
                with contextlib.suppress(Exception):
                    self.settle([run_id])
            return
        for run_id in touched:
            self._context.hub.shown(run_id)
        self._aside.soon("sweep", self.sweeper.sweep)

    def _settle(self, run_ids: Sequence[str]) -> list[str]:
        touched: list[str] = []
        with self._context.database.write() as connection:
            for facts in phases.facts(connection, run_ids):
                changes = decide(facts, self._context.clock())
                for change in changes:
                    self._apply(connection, facts, change)
                if changes:
                    touched.append(facts.id)
        return touched

    def _apply(self, connection: sa.Connection, run: RunFacts, change: PhaseChange | RunChange) -> None:
        now, run_id = self._context.clock(), run.id
        if isinstance(change, PhaseChange):
            phase = change.phase
            moved = phases.move(
                connection,
                phase.id,
                change.state,
                reason=change.reason,
                not_before=change.not_before,
                errors_used=phase.errors_used,
                faults=phase.faults,
                fault_step=phase.fault_step,
            )
            if moved:
                text = f"phase {phase.name} is {change.state.value}: {change.reason}"
                events.add(connection, run_id, f"phase_{change.state.value}", text, at=now, phase=phase.name)
            return
        ended = {"ended_at": now} if change.state in RUN_ENDED else {}
        moved = runs.move(
            connection,
            run_id,
            change.state,
            reason=change.reason,
            recovering=change.recovering,
            attention=change.attention,
            **ended,
        )
        if not moved or (run.state is change.state and run.reason == change.reason):
            return
        if change.state is RunState.KILLED:
            self._killed(connection, runs.get(connection, run_id), now)
        else:
            text = change.state.value + (f": {change.reason}" if change.reason else "")
            events.add(connection, run_id, f"run_{change.state.value}", text, at=now)

    def _killed(self, connection: sa.Connection, run: Row, now: float) -> None:
        attempts = phases.attempts_of_runs(connection, [run.id]).get(run.id, []) if run.attempts else []
        cost = views.credits_of(self._context, run, attempts, now)
        saved = f", {cost.saved:.2f} saved" if cost.saved is not None else ""
        asked = iso(run.request_at) if run.request_at else "?"
        text = (
            f"killed by {run.request_by} (asked at {asked}): nothing of it runs any more; {cost.used:.2f} credits used"
        )
        if run.discard:
            text += self._discard(connection, run, now)
        data = {"requested_at": asked, "requested_by": run.request_by, "credits_used": cost.used}
        events.add(connection, run.id, "run_killed", text + saved, at=now, data=data)

    def _discard(self, connection: sa.Connection, run: Row, now: float) -> str:
        """All checkpoints but those that another active run starts from."""
        kept = set(checkpoints.protected(connection, run.id))
        counted = [row.id for row in checkpoints.of_run(connection, run.id)]
        gone = [row_id for row_id in counted if row_id not in kept]
        if kept:
            checkpoints.trash(connection, run.id, gone, now)  # at once: the next sweep takes them
        else:
            checkpoints.remove_all(connection, run.id)
            where = storages.root(self._context.settings, run)
            admin.discard(connection, [where], now, run.storage_options)
        left = f", {len(kept)} kept because another run starts from it" if kept else ""
        return f"; {len(gone)} checkpoint{'s' if len(gone) != 1 else ''} discarded{left}"

    # --- place: queued phases get slots -----------------------------------------------------------------------

    def place(self) -> float | None:
        """Start what fits, in order. The answer: when the next back-off ends."""
        while True:
            now = self._context.clock()
            with self._context.database.read() as connection:
                pools = views.pool_facts(connection)
                retry_at = runs.next_retry(connection, now)
                if not pools or not pools[0].free:
                    return retry_at
                placements = place(self._ready(connection, now), pools[0])
            started = [attempt for placement in placements if (attempt := self._intend(placement)) is not None]
            for attempt_id, token in started:
                self._launch(attempt_id, token)
            if not started:
                return retry_at

    def _ready(self, connection: sa.Connection, now: float) -> Iterator[Waiting]:
        """The queue from its head, page by page: whoever places stops reading when nothing fits any more."""
        skip = 0
        while rows := runs.queue(connection, now=now, limit=PAGE, skip=skip):
            skip += len(rows)
            facts = phases.facts(connection, {row.run_id for row in rows})
            can = {phase.id for run in facts for phase in ready(run)}
            for row in rows:
                if row.phase_id in can:
                    yield Waiting(row.run_id, row.phase_id, row.slots)

    def _intend(self, placement: Placement) -> tuple[str, str] | None:
        """Intent first: the attempt is written down before anything is started under its id."""
        context, now = self._context, self._context.clock()
        waiting = placement.waiting
        token, attempt_id = accounts.new_token(), new_id("a")
        with context.database.write() as connection:
            run, phase = runs.get(connection, waiting.run_id), phases.get(connection, waiting.phase_id)
            if run.request != Stop.NONE or run.state in RUN_ENDED:
                return None
            if self._spent(connection, run, phase, placement):
                return None
            if not phases.move(connection, phase.id, PhaseState.RUNNING, reason=None):
                return None
            number = runs.next_attempt(connection, run.id)
            if phase.from_start:  # once: what it saves from now on counts again
                phases.update(connection, phase.id, from_start=False)
            phases.add_attempt(
                connection,
                id=attempt_id,
                run_id=run.id,
                phase_id=phase.id,
                number=number,
                stage=Stage.ALLOCATING,
                pool=placement.pool,
                slots=list(placement.slots),
                price=placement.price,
                token_hash=accounts.fingerprint(token),
                started_at=now,
                fresh=phase.from_start,
            )
            if run.state == RunState.QUEUED:
                runs.move(connection, run.id, RunState.STARTING, reason=None, recovering=False)
            runs.update(connection, run.id, started_at=run.started_at or now)
            slots = f"{len(placement.slots)} slot{'s' if len(placement.slots) != 1 else ''}"
            text = f"phase {phase.name}: attempt {number} gets {slots} of pool {placement.pool}"
            events.add(connection, run.id, "placed", text, at=now, phase=phase.name, attempt=number)
        context.hub.shown(waiting.run_id)
        return attempt_id, token

    def _spent(self, connection: sa.Connection, run: Row, phase: Row, placement: Placement) -> bool:
        """No budget, time or deadline left: the phase ends before it costs anything, with its checkpoint if any."""
        spec = spec_of(run.spec).phase(phase.name)
        left, why = launches.remaining(
            self._context, connection, run, phase, spec, len(placement.slots), placement.price
        )
        if left is None or left > 0:
            return False
        text = {
            "time_limit": "its time limit is used up",
            "budget_exhausted": "the run's budget is used up",
            "deadline": "the run's deadline has passed",
        }[why]
        keeps = spec.kind is PhaseKind.TRAIN and checkpoints.newest(connection, run.id, phase.name) is not None
        state = PhaseState.COMPLETED if keeps else PhaseState.FAILED
        said = [{"reason": why, "decisive": True, "text": text}] if keeps else []
        phases.move(connection, phase.id, state, reason=text, stop_reasons=said)
        told = f"phase {phase.name} is {state.value}: {text}"
        now = self._context.clock()
        events.add(connection, run.id, f"phase_{state.value}", told, at=now, phase=phase.name)
        self._context.hub.changed(run.id)
        return True

    def _launch(self, attempt_id: str, token: str) -> None:
        try:
            launch, secrets = launches.build(self._context, attempt_id, token, self._url())
            if Path(launch.workdir).is_relative_to(self._context.settings.data):
                Path(launch.workdir).mkdir(parents=True, exist_ok=True)
            self._engine.launch(launch, secrets)
        except EngineUnreachable as error:
            log.warning("attempt %s: %s", attempt_id, error)
        except Exception as error:  # one attempt's trouble; the others are launched all the same
            log.exception("attempt %s can't be launched", attempt_id)
            self._never_ran(attempt_id, EndReason.LAUNCH_FAILED, f"the runner could not be started: {error}")

    # --- jobs: what the engine says against what we believe ---------------------------------------------------

    def check_everything(self) -> set[str]:
        """The slow tick: every live job, every active run."""
        with self._context.database.read() as connection:
            live = phases.live_attempts(connection)
            active = runs.active_ids(connection)
            ended = phases.unforgotten(connection)
        self._check(live)
        self._forget(ended)
        self._aside.soon("sweep", self.sweeper.sweep)
        kept = {row.id for row in live} | set(ended)
        self._salvaged = {job: at for job, at in self._salvaged.items() if job in kept}
        self._tries = Counter({job: tries for job, tries in self._tries.items() if job in kept})
        return set(active)

    def _forget(self, attempt_ids: Sequence[str]) -> None:
        """What the server has stored needs no second copy. A runner that still ships is left alone."""
        if not attempt_ids:
            return
        statuses = self._engine.poll([JobId(attempt_id) for attempt_id in attempt_ids])
        gone = [job for job, status in statuses.items() if status.state in (JobState.ENDED, JobState.UNKNOWN)]
        for job, status in statuses.items():
            if status.state is JobState.DEAD:  # its end is known to us, its last bytes may not be
                with contextlib.suppress(OSError, EngineUnreachable):
                    self._salvage(job)
        if gone:
            self._aside.soon("forget", lambda: self._forget_now(gone))

    def _forget_now(self, jobs: Sequence[JobId]) -> None:
        for job in jobs:
            self._engine.forget(job)
        with self._context.database.write(durable=False) as connection:
            for job in jobs:
                phases.update_attempt(connection, job, forgotten=True)

    def check_jobs(self, attempt_ids: Collection[str]) -> set[str]:
        with self._context.database.read() as connection:
            live = [row for row in phases.live_attempts(connection) if row.id in attempt_ids]
        self._check(live)
        return {row.run_id for row in live}

    def _check(self, live: Sequence[Row]) -> None:
        if not live:
            return
        statuses = self._engine.poll([JobId(row.id) for row in live])
        now = self._context.clock()
        for row in live:
            try:
                self._look_after(row, statuses[JobId(row.id)].state, now)
            except Exception:
                log.exception("attempt %s could not be looked after; it is tried again", row.id)

    def _look_after(self, row: Row, state: JobState, now: float) -> None:
        job = JobId(row.id)
        match state:
            case JobState.DEAD:
                # Its journals hold what it did not ship, and its program may still live: a new runner ends both.
                self._salvage(job)
            case JobState.UNKNOWN:
                self._relaunch(row)
            case JobState.ENDED:
                # Everything was acknowledged, and yet we do not know the end: the database is older than the disk.
                if now - row.started_at > 10.0:
                    self._end(row.id, EndReason.RUNNER_LOST, "its runner has left, and nothing tells how it ended")
            case JobState.RUNNING | JobState.PENDING:
                self._force_kill(row, now)

    def _salvage(self, job: JobId) -> None:
        now = self._context.clock()
        if now - self._salvaged.get(job, 0.0) > 10.0:
            self._salvaged[job] = now
            self._engine.salvage(job)

    def _force_kill(self, row: Row, now: float) -> None:
        """Kill always wins: a runner that does not carry it out in time is ended with everything below it."""
        if row.request != Stop.KILL or row.request_at is None:
            return
        if now > row.request_at + self._kill_grace(row) + self._context.settings.kill_watch:
            self._aside.soon(f"cancel {row.id}", lambda: self._engine.cancel(JobId(row.id)))

    def _kill_grace(self, row: Row) -> float:
        if row.kill_grace is not None:
            return float(row.kill_grace)
        with self._context.database.read() as connection:
            run, phase = runs.get(connection, row.run_id), phases.get(connection, row.phase_id)
        return spec_of(run.spec).phase(phase.name).grace.kill_save.total_seconds()

    def _relaunch(self, row: Row) -> None:
        """The intent was written, the launch never happened. Its token was never used: a new one takes its place."""
        if row.request == Stop.KILL:
            self._never_ran(row.id, EndReason.KILLED, "killed before its runner was started")
            return
        if row.request == Stop.PAUSE:
            self._never_ran(row.id, EndReason.PAUSED, "paused before its runner was started")
            return
        if row.seen_at is not None:  # it did run, and its directory is gone
            self._end(row.id, EndReason.RUNNER_LOST, "nothing is left of its runner, nor of what it had not sent")
            return
        self._tries[row.id] += 1
        if self._tries[row.id] > LAUNCH_TRIES:
            text = f"its runner did not come up in {LAUNCH_TRIES} tries"
            self._never_ran(row.id, EndReason.LAUNCH_FAILED, text)
            return
        token = accounts.new_token()
        with self._context.database.write() as connection:
            phases.update_attempt(connection, row.id, token_hash=accounts.fingerprint(token))
        self._launch(row.id, token)

    def _never_ran(self, attempt_id: str, reason: EndReason, text: str) -> None:
        """Nothing ran, so nothing is charged."""
        self._end(attempt_id, reason, text, charged=False)

    def _end(self, attempt_id: str, reason: EndReason, text: str, *, charged: bool = True) -> None:
        now = self._context.clock()
        with self._context.database.write() as connection:
            attempt = phases.attempt(connection, attempt_id)
            if attempt is None or not runner_events.end(
                connection, attempt, reason, text, at=now if charged else attempt.started_at
            ):
                return
            phase = phases.get(connection, attempt.phase_id)
            events.add(
                connection,
                attempt.run_id,
                "ended",
                text,
                at=now,
                scope="instance",
                phase=phase.name,
                attempt=attempt.number,
                data={"reason": reason.value},
            )
        self._context.hub.over(attempt_id)
        self._context.hub.changed(attempt.run_id)
