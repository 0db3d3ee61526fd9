"""From "the program says it saved" to a verified checkpoint: hashes are read back in a thread, then it counts."""

import queue
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from whistlestop.blobs.checkpoints import Checkpoint, CheckpointStore, Damaged
from whistlestop.blobs.manifest import MANIFEST
from whistlestop.blobs.retention import removable
from whistlestop.runner.verified import Verified

Tell = Callable[..., None]


class CheckpointKeeper:
    """Verifies every complete checkpoint of the phase once, tells of it, and removes what retention lets go.

    `tell` is called from this keeper's thread. `answers`: how many saves had been asked for at the time of a commit.
    """

    def __init__(
        self,
        store: CheckpointStore,
        phase: str,
        *,
        keep: int,
        protected: Collection[str],
        tell: Tell,
        answers: Callable[[float], int] = lambda at: 0,
    ) -> None:
        self._store = store
        self._phase = phase
        self._keep = keep
        self.protected = set(protected)
        self._tell = tell
        self._answers = answers
        self._left = False
        self._read_before = Verified(store.root / phase)
        self._kept_on: set[str] = set()  # could not be removed, and that was said
        self._seen: set[Path] = set()
        self._verified: dict[str, Checkpoint] = {}
        self._queue: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def saved_step(self) -> int | None:
        """The newest verified one."""
        return max((each.step for each in list(self._verified.values())), default=None)

    def start(self) -> None:
        self._thread.start()
        self.scan()  # of earlier attempts: complete, and perhaps never reported

    def announce(self, directory: str) -> None:
        """The program says that it saved here."""
        path = Path(directory)
        if path.parent == self._store.root / self._phase and path not in self._seen:
            self._seen.add(path)
            self._queue.put(path)

    def scan(self) -> None:
        """Whatever is complete on disk and was not announced: the program may have died right after its commit."""
        for checkpoint in reversed(self._store.list(self._phase)):
            self.announce(str(checkpoint.path))

    def finish(self, patience: float | None = None) -> None:
        """Returns when all that is on disk has been judged, or after `patience` seconds: a kill does not wait for
        hashing, and whoever comes next finds the rest. Nothing is told after it."""
        if patience is None:
            self.scan()
        self._queue.put(None)
        self._thread.join(patience)
        self._left = True

    def _run(self) -> None:
        while (path := self._queue.get()) is not None and not self._left:
            try:
                self._judge(path)
            except Exception as error:  # the path and the manifest are the program's: anything may stand there
                self._tell("notice", f"Checkpoint {path} could not be looked at: {error}.")

    def _judge(self, path: Path) -> None:
        try:
            checkpoint = self._store.load(path)
            if not self._read_before.holds(checkpoint):
                self._store.verify(checkpoint)
                self._read_before.remember(checkpoint)
        except Damaged as error:
            if path.exists():  # retention of the program's own may have been quicker
                self._tell(
                    "checkpoint_set_aside", f"A checkpoint is damaged: {error.text}", path=str(path), why=error.text
                )
            return
        if self._left:
            return
        self._verified[checkpoint.id] = checkpoint
        said = _describe(checkpoint) | {"saves": self._answers(checkpoint.at)}
        self._tell("checkpoint", f"Checkpoint of step {checkpoint.step} is verified.", **said)
        self._retain()

    def _retain(self) -> None:
        gone = removable(list(self._verified.values()), keep=self._keep, protected=self.protected)
        gone = [checkpoint for checkpoint in gone if self._remove(checkpoint)]
        if gone:
            steps = ", ".join(str(each.step) for each in gone)
            self._tell(
                "checkpoints_removed",
                f"Older checkpoints were removed (steps {steps}); {self._keep} are kept.",
                ids=[each.id for each in gone],
            )

    def _remove(self, checkpoint: Checkpoint) -> bool:
        """True when it counts no more. One that resists must not keep the others."""
        try:
            self._store.remove(checkpoint)
        except OSError as error:
            left = (checkpoint.path / MANIFEST).exists()
            if checkpoint.id not in self._kept_on:
                self._kept_on.add(checkpoint.id)
                self._tell("notice", f"Checkpoint {checkpoint.path} could not be removed: {error}. "
                           "Check the permissions of its directories.")  # fmt: skip
            if left:
                return False
        del self._verified[checkpoint.id]
        return True


def _describe(checkpoint: Checkpoint) -> dict[str, Any]:
    metrics = checkpoint.meta.get("metrics")
    return {
        "id": checkpoint.id,
        "step": checkpoint.step,
        "attempt": checkpoint.attempt_number,
        "path": str(checkpoint.path),
        "bytes": checkpoint.bytes,
        "files": len(checkpoint.files),
        "metrics": metrics if isinstance(metrics, dict) else {},
        "verified": True,
        "healthy": checkpoint.meta.get("healthy") is not False,
        "at": checkpoint.at,
    }
