"""Checkpoints with the files that a test gives, in any storage; and an attempt that tells the server of them."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whistlestop.blobs.manifest import Checkpoint
from whistlestop.blobs.staged import BUFFER, Piece, Staged
from whistlestop.blobs.storage import Storage
from whistlestop.server.services import ingest
from whistlestop.server.services.storages import of_run
from whistlestop.server.store import runs
from whistlestop.testing.world import World
from whistlestop.wire.api import RunView
from whistlestop.wire.frames import Data, Progress, RunnerEvent, pack_record


def write_checkpoint(
    storage: Storage,
    phase: str,
    step: int,
    attempt_number: int,
    attempt_id: str,
    files: Mapping[str, bytes],
    meta: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Committed as a runner does it."""
    storage.open_attempt(phase, attempt_number, attempt_id)
    with tempfile.TemporaryDirectory() as name:
        slot, offset, pieces = Path(name), 0, []
        with (slot / BUFFER).open("wb") as buffer:
            for file, data in files.items():
                buffer.write(data)
                pieces.append(Piece(file, len(data), BUFFER, offset))
                offset += len(data)
        staged = Staged(slot, phase, step, attempt_number, attempt_id, dict(meta or {}), pieces, time.time())
        return storage.commit(staged).checkpoint


class Attempt:
    """One attempt, as its runner speaks for it; its checkpoints are real ones, in the storage of the run."""

    def __init__(self, here: World, run: RunView) -> None:
        self.here, self.run, self._offset = here, run, 0
        here.settle()
        self.row = here.attempt(run.id)
        self.say("program_started")
        here.settle()

    def say(self, kind: str, **data: Any) -> None:
        body = pack_record(RunnerEvent(self.here.now, kind, f"{kind}!", data))
        ingest.store(self.here.context, self.row, [Data("runner", self._offset, body)])
        self._offset += len(body)

    def at(self, step: int, **more: Any) -> None:
        known = {"stage": "training", "total": 1000, "loop_started_at": self.row.started_at, **more}
        said = Progress(at=self.here.now, step=step, **known)
        self.here.context.hub.progress[self.row.id] = said

    @property
    def storage(self) -> Storage:
        with self.here.context.database.read() as connection:
            return of_run(self.here.settings, runs.get(connection, self.run.id))

    def saved(self, step: int, files: Mapping[str, bytes] | None = None, **more: Any) -> str:
        content = {"parts/x.pickle": b"x" * step} if files is None else files
        storage = self.storage
        made = write_checkpoint(storage, "main", step, self.row.number, self.row.id, content)
        said = {"path": storage.where(made), "bytes": made.bytes, "attempt": self.row.number, "at": self.here.now}
        self.say("checkpoint", id=made.id, step=step, **{"verified": True, **said, **more})
        return made.id

    def ended(self, reason: str) -> None:
        self.say("ended", reason=reason, last_step=0)
        self.here.context.hub.over(self.row.id)
        self.here.settle()
