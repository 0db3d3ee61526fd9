"""What was deleted goes for good: directories, addresses in an object storage, and checkpoints whose day is over. What
was pinned and removed all the same comes back.

All of it is in a table first. What can't be done now, because its storage does not answer, is tried again."""

import logging
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from whistlestop.blobs.open import is_remote, open_storage
from whistlestop.blobs.storage import DAY
from whistlestop.domain.errors import NoCheckpoint, NotFound
from whistlestop.domain.states import PHASE_ENDED, RUN_ENDED
from whistlestop.server.services import accounting, keeping, storages
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import admin, checkpoints, events, phases, runs

log = logging.getLogger(__name__)
Row = sa.Row[Any]
AGAIN = 60.0  # seconds until a storage that did not answer is asked again


class Sweeper:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._later: dict[str, float] = {}  # what failed -> when it is tried again
        self._ledger_whole = False

    def sweep(self) -> None:
        if not self._ledger_whole:  # here, since a long history takes its time
            self._guarded("writing down what old attempts cost", self._catch_up)
        with self._context.database.read() as connection:
            found = admin.discarded(connection)
            pinned = checkpoints.pinned_in_trash(connection)
            over = checkpoints.over(connection, self._context.clock())
        for row in pinned:
            self._guarded(f"having the pinned {row.path} back", partial(self._have_back, row))
        for row in found:
            if is_remote(row.path):
                self._guarded(f"removing {row.path}", partial(self._remote, row))
            else:
                self._directory(Path(row.path))
        by_phase: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in over:
            by_phase[row.run_id, row.phase].append(row)
        for (run_id, phase), rows in by_phase.items():
            self._guarded(f"removing checkpoints of {run_id}/{phase}", partial(self._purge, run_id, phase, rows))

    def _catch_up(self) -> None:
        accounting.catch_up(self._context)
        self._ledger_whole = True

    def _directory(self, target: Path) -> None:
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        # Under the write lock: a submit that wants this very bundle either comes before, or finds it gone.
        with self._context.database.write(durable=False) as connection:
            bundle = target.parent == self._context.settings.bundles
            if not target.is_dir() and not (bundle and runs.uses_bundle(connection, target.stem)):
                target.unlink(missing_ok=True)
            if bundle or not target.exists():
                admin.swept(connection, str(target))

    def _have_back(self, row: Row) -> None:
        try:
            keeping.restore(self._context, row.run_id, row.id, Actor(events.SYSTEM, "admin"))
        except NoCheckpoint as error:
            log.warning("a pinned checkpoint is lost: %s", error)
            with self._context.database.write() as connection:
                checkpoints.update(connection, row.id, pinned=False)

    def _remote(self, row: Row) -> None:
        open_storage(row.path, row.options or {}).remove_all()
        with self._context.database.write(durable=False) as connection:
            admin.swept(connection, row.path)

    def _purge(self, run_id: str, phase: str, rows: Sequence[Row]) -> None:
        with self._context.database.read() as connection:
            run = runs.get(connection, run_id)
            states = {row.name: row.state for row in phases.of_runs(connection, [run_id])[run_id]}
        storage, now = storages.of_run(self._context.settings, run), self._context.clock()
        ids = {row.id for row in rows}
        for checkpoint in storage.list(phase):
            if checkpoint.id in ids:
                storage.discard(checkpoint, now - DAY - 1)
        storage.purge(phase, now - DAY)
        if run.state in RUN_ENDED or states.get(phase) in PHASE_ENDED:  # else its runner does so, who knows when
            storage.sweep(phase, run.attempts)
        with self._context.database.write(durable=False) as connection:
            checkpoints.remove(connection, run_id, ids)

    def _guarded(self, what: str, work: Callable[[], None]) -> None:
        if time.monotonic() < self._later.get(what, 0.0):
            return
        try:
            work()
            self._later.pop(what, None)
        except NotFound:
            self._later.pop(what, None)  # the run was deleted meanwhile, with all that it had
        except Exception as error:  # one storage's trouble is not the others'
            self._later[what] = time.monotonic() + AGAIN
            log.warning("%s does not work yet: %s", what, error)
