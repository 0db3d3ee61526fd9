"""What one pass of the scheduler does: settle runs, place phases; looking after jobs is in jobs.py."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from whistlestop.domain.clock import iso
from whistlestop.domain.lifecycle import PhaseChange, RunChange, RunFacts, after, decide, ready
from whistlestop.domain.states import RUN_ENDED, RunState
from whistlestop.server.scheduler.aside import Aside
from whistlestop.server.scheduler.clusters import Clusters
from whistlestop.server.scheduler.engines import Engines
from whistlestop.server.scheduler.following import Following
from whistlestop.server.scheduler.jobs import Jobs
from whistlestop.server.scheduler.placing import Placer
from whistlestop.server.scheduler.sweeping import Sweeper
from whistlestop.server.services import budgets, storages, views
from whistlestop.server.services.context import Context
from whistlestop.server.store import admin, checkpoints, events, phases, placing, runs

log = logging.getLogger(__name__)
Row = sa.Row[Any]


class Passes:
    def __init__(self, context: Context, engines: Engines, url: Callable[[], str]) -> None:
        self._context = context
        # Removing files and forcing kills may take long; the queue does not wait for them.
        self._aside = Aside()
        self.jobs = Jobs(context, engines, url, self._aside)
        self._following = Following(context, engines, self._aside)
        self._placer = Placer(context, self.jobs.launch)
        self.sweeper = Sweeper(context)
        self.clusters = Clusters(context, engines)

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
                self._mark(connection, after(facts, changes))
                if changes:
                    touched.append(facts.id)
        return touched

    def _mark(self, connection: sa.Connection, run: RunFacts) -> None:
        """Which of its phases wait for capacity from now on, and which do not any more."""
        waits = {phase.id for phase in ready(run)}
        for phase in run.phases:
            if phase.waits != (phase.id in waits):
                at = self._context.clock() if phase.id in waits else None
                phases.update(connection, phase.id, ready_at=at)

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
                failure=phase.failure,
                failure_step=phase.failure_step,
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
            data = {"attention": change.attention} if change.attention else None
            events.add(connection, run_id, f"run_{change.state.value}", text, at=now, data=data)

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
        return self._placer.place()

    # --- jobs: what the engines say against what we believe ---------------------------------------------------

    def check_everything(self) -> set[str]:
        """The slow tick: every live job, every active run that does not just wait in the queue."""
        with self._context.database.read() as connection:
            active = placing.unsettled(connection)
        self._following.look()
        self.jobs.check_all()
        try:
            budgets.watch(self._context)
        except Exception:
            log.exception("budgets could not be looked at; it is tried again")
        self._aside.soon("sweep", self.sweeper.sweep)
        return set(active)
