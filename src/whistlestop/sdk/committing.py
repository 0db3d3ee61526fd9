"""Without a runner the program makes its saves durable itself, in a thread: training goes on meanwhile."""

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whistlestop.blobs import staged
from whistlestop.blobs.manifest import Checkpoint
from whistlestop.blobs.retention import removable
from whistlestop.blobs.staged import Staged
from whistlestop.blobs.storage import Storage, StorageFailed
from whistlestop.channel.control import Control
from whistlestop.channel.layout import Word
from whistlestop.domain.errors import WhistleError
from whistlestop.sdk.attachment import Attachment
from whistlestop.sdk.parts import RestoreFailed

_LOOK_SECONDS = 0.02


class Saved:
    """A save that is on its way: what was saved is safe from the program's own changes, and `wait` says when it is safe
    from all else."""

    def __init__(self, step: int, *, by_runner: bool = False) -> None:
        self.step = step
        self.bytes = 0
        self.handed: Handed | None = None  # to a runner, once it is
        self._by_runner = by_runner
        self._over = threading.Event()
        self._checkpoint: Checkpoint | None = None

    def wait(self, seconds: float | None = None) -> bool:
        """True: it is durable. False: it failed, or is not yet after so many seconds."""
        if not self._by_runner:
            return self._over.wait(seconds) and self._checkpoint is not None
        end = time.monotonic() + seconds if seconds is not None else float("inf")
        while not self._over.is_set():
            durable = self.handed.look() if self.handed is not None else None
            if durable is not None:
                return durable
            if time.monotonic() >= end:
                break
            time.sleep(_LOOK_SECONDS)
        return False

    def checkpoint(self, seconds: float | None = None) -> Checkpoint | None:
        """As it was committed, by this process. None if that failed, or is a runner's business."""
        return self._checkpoint if not self._by_runner and self.wait(seconds) else None

    def settle(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint = checkpoint
        self._over.set()


class Handed:
    """A save that is a runner's: what has become of it. To be made before it is handed over, and looked at before its
    slot is used again."""

    def __init__(self, found: Staged, orders: Control, *, again: bool) -> None:
        """`again`: the same step was handed over before."""
        self._found = found
        self._orders = orders
        self._again = again
        self._failed_before = orders[Word.SAVES_FAILED]
        self._durable: bool | None = None

    def look(self) -> bool | None:
        """Whether it is durable; None: nobody knows yet. The runner writes its words before it frees the slot."""
        if self._durable is None and staged.is_free(self._found.directory):
            newest, step = self._orders[Word.DURABLE_STEP] - 1, self._found.step
            if self._orders[Word.SAVES_FAILED] != self._failed_before:  # this one, or the one in the other slot
                self._durable = newest == step and not self._again
            elif newest >= step:
                self._durable = True
        return self._durable


class Committer:
    """One save after the other, in their order."""

    def __init__(
        self, storage: Storage, attachment: Attachment, *, keep: int | None, on_failed: Callable[[int], None]
    ) -> None:
        """`keep`: how many stay; None: somebody else decides that."""
        self._storage = storage
        self._attachment = attachment
        self._keep = keep
        self._on_failed = on_failed
        self._queue: queue.SimpleQueue[tuple[Staged, Saved]] = queue.SimpleQueue()
        self._open = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._swept = False

    def submit(self, found: Staged, saved: Saved) -> None:
        with self._changed:
            self._open += 1
        if self._thread is None:
            thread = threading.Thread(target=self._run, daemon=True, name="whistlestop-commit")
            try:
                thread.start()
                self._thread = thread
            except RuntimeError:  # the program is ending, or has too many: then it is done here
                self._take(found, saved)
                return
        self._queue.put((found, saved))

    def wait(self) -> None:
        """Until all of them are durable, or have failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0)

    def _run(self) -> None:
        while True:
            self._take(*self._queue.get())

    def _take(self, found: Staged, saved: Saved) -> None:
        done: Checkpoint | None = None
        try:
            done = self._commit(found)
        except Exception as error:  # a full disk, a fence, or what nobody thought of: training goes on
            self._failed(found, error)
        finally:
            self._release(found.directory)
            saved.settle(done)
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def _commit(self, found: Staged) -> Checkpoint:
        if not self._swept:
            self._swept = True
            self._storage.sweep(found.phase, found.attempt_number)
        begun = time.time()
        done = self._storage.commit(found).checkpoint
        attachment = self._attachment
        event: dict[str, Any] = {
            "kind": "checkpoint",
            "step": done.step,
            "dir": str(done.path),
            "id": done.id,
            "bytes": done.bytes,
        }
        attachment.tell(event)
        if not attachment.attached:  # nobody else writes these words
            attachment.orders.set_seconds(Word.DURABLE_SECONDS, time.time() - begun)
            attachment.orders[Word.DURABLE_STEP] = done.step + 1
        if self._keep is not None:
            self._retain(done, self._keep)
        return done

    def _failed(self, found: Staged, error: Exception) -> None:
        text = error.text if isinstance(error, WhistleError) else repr(error)
        why = found.meta.get("why", "")
        self._on_failed(found.step)
        self._attachment.warn(f"step {found.step} could not be saved ({why}): {text}")
        self._attachment.tell({"kind": "save_failed", "step": found.step, "why": str(why), "text": text, "tries": 1})

    def _release(self, directory: Path) -> None:
        try:
            staged.release(directory)
        except OSError as error:
            self._attachment.warn(f"{directory} could not be used again: {error}")

    def _retain(self, saved: Checkpoint, keep: int) -> None:
        storage, phase = self._storage, saved.phase
        try:
            gone = removable(storage.list(phase), keep=keep, protected={saved.id})
        except (OSError, WhistleError) as error:
            self._attachment.warn(f"old checkpoints could not be looked for: {error}")
            return
        for each in gone:
            try:
                storage.discard(each, time.time())
                storage.purge(phase, time.time() + 1)  # nobody could ask for it back
            except (OSError, WhistleError) as error:
                self._attachment.warn(f"an old checkpoint could not be removed: {error}")


def salvage(storage: Storage, directory: Path) -> list[str]:
    """Saves of a process that is gone, which were complete but not durable yet. Returns what went wrong, in words.
    RestoreFailed where that may change: once this start has its own number, nobody can commit them any more."""
    wrong = []
    for slot in staged.slots(directory):
        try:
            found = staged.read(slot)
            if found is not None:
                storage.commit(found)
            staged.release(slot)
        except (OSError, WhistleError) as error:
            words = f"a save that an earlier process left in {slot} could not be brought to safety: {error}"
            if isinstance(error, OSError | StorageFailed) or isinstance(error.__cause__, OSError):
                hint = f"nothing was touched; start it again when that is mended, or remove {slot} to go on without it"
                raise RestoreFailed(words, hint=hint) from error
            wrong.append(words)
    return wrong
