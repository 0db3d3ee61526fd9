"""Reading checkpoints back: in threads of their own, for as long as it takes, also if who asked has left."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from whistlestop.blobs.manifest import Damaged
from whistlestop.blobs.storage import Removed
from whistlestop.domain.errors import NoCheckpoint, NotFound, WhistleError
from whistlestop.server.services import keeping
from whistlestop.server.services.asking import named
from whistlestop.server.services.context import Actor, Context
from whistlestop.server.store import checkpoints, events
from whistlestop.wire.checkpoints import Verified

Row = sa.Row[Any]
AT_ONCE = 2  # each reads with several threads by itself
KEPT = 200  # results that can still be asked for
PATIENCE = 20.0  # seconds that a request waits; then it is told to ask again


@dataclass
class _Reading:
    run: Row
    row: Row
    actor: Actor
    began: float
    done: threading.Event = field(default_factory=threading.Event)
    files: int = 0
    seconds: float = 0.0
    ended: float = 0.0
    intact: bool | None = None
    text: str = ""


class Verifying:
    def __init__(
        self, context: Context, patience: float = PATIENCE, *, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._context, self._patience, self._timer = context, patience, timer
        self._lock = threading.Lock()
        self._turn = threading.Semaphore(AT_ONCE)
        self._readings: dict[str, _Reading] = {}

    def begin(self, reference: str, checkpoint_id: str, actor: Actor) -> Verified:
        """Start, or join one that is under way; the answer when it is done, or after a while."""
        with self._context.database.read() as connection:
            run, row = keeping.look(connection, reference, checkpoint_id)
        with self._lock:
            reading = self._readings.get(row.id)
            if reading is None or not self._will_do(reading, row):
                reading = _Reading(run, row, actor, self._timer())
                self._readings.pop(row.id, None)
                self._readings[row.id] = reading
                self._forget()
                threading.Thread(target=self._read, args=(reading,), name=f"verify {row.id}", daemon=True).start()
        return self._answer(reading)

    def ask(self, reference: str, checkpoint_id: str) -> Verified:
        """How it stands."""
        with self._context.database.read() as connection:
            _, row = keeping.look(connection, reference, checkpoint_id)
        with self._lock:
            reading = self._readings.get(row.id)
        if reading is None:
            raise NotFound(f"nobody has asked to verify {checkpoint_id} since the server started", hint="POST to begin")
        return self._answer(reading)

    def _will_do(self, reading: _Reading, row: Row) -> bool:
        """Who asks again sooner than the reading took has not heard the answer. What was damaged is read again: its
        files may have been put back."""
        if not reading.done.is_set():
            return True
        moved = row.trashed_until != reading.row.trashed_until
        return bool(reading.intact) and not moved and self._timer() - reading.ended <= reading.seconds

    def _answer(self, reading: _Reading) -> Verified:
        done = reading.done.wait(self._patience)
        with self._context.database.read() as connection:
            shown = keeping.view(connection, reading.run, reading.row.id)
        seconds = reading.seconds if done else self._timer() - reading.began
        return Verified(
            checkpoint=shown,
            reading=not done,
            intact=reading.intact,
            files=reading.files,
            bytes=reading.row.bytes,
            seconds=round(seconds, 3),
            text=reading.text or f"the checkpoint {keeping.said(reading.row)} of {named(reading.run)} is being read",
        )

    def _read(self, reading: _Reading) -> None:
        try:
            with self._turn:
                self._judge(reading)
        except Exception as error:  # the thread's top: who asked has to be told
            reading.text = f"it could not be read: {error.text if isinstance(error, WhistleError) else error!r}"
        finally:
            reading.done.set()

    def _judge(self, reading: _Reading) -> None:
        run, row = reading.run, reading.row
        what, why = f"the checkpoint {keeping.said(row)} of {named(run)}", ""
        began = self._timer()
        try:
            storage, found = keeping.manifest(self._context, run, row)
            reading.files = len(found.files)
            storage.verify(found)
        except Removed:
            moved = True
        except (NoCheckpoint, Damaged) as error:
            moved, why = self._moved(reading), error.text
        else:
            moved = False
        reading.ended = self._timer()
        reading.seconds = reading.ended - began
        if moved:
            reading.text = (
                f"{what} was removed, or brought back, while it was read: it is not known to be damaged; ask again"
            )
            return
        size = row.bytes / 2**20
        if why:
            reading.text = f"{what} is damaged and will not be resumed from: {why}"
        else:
            rate = f", {size / reading.seconds:,.0f} MiB/s" if reading.seconds > 0.01 else ""
            reading.text = (
                f"{what} is intact: {reading.files} file{'s' if reading.files != 1 else ''}, {size:,.1f} MiB read back "
                f"in {reading.seconds:.1f} s{rate}, every hash as it was saved"
            )
        reading.intact = not why
        self._record(reading)

    def _moved(self, reading: _Reading) -> bool:
        with self._context.database.read() as connection:
            row = checkpoints.find(connection, reading.run.id, reading.row.id)
        return row is None or row.trashed_until != reading.row.trashed_until

    def _record(self, reading: _Reading) -> None:
        run, row, now = reading.run, reading.row, self._context.clock()
        with self._context.database.write() as connection:
            checkpoints.update(connection, row.id, verified=reading.intact, verified_at=now)
            events.add(
                connection,
                run.id,
                "checkpoint_verified" if reading.intact else "checkpoint_damaged",
                reading.text,
                at=now,
                actor=reading.actor.name,
                phase=row.phase,
                data={"id": row.id, "step": row.step, "seconds": round(reading.seconds, 3), "bytes": row.bytes},
            )
        self._context.hub.shown(run.id)

    def _forget(self) -> None:
        for key in [key for key, each in self._readings.items() if each.done.is_set()][
            : max(0, len(self._readings) - KEPT)
        ]:
            del self._readings[key]
