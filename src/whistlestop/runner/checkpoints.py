"""From "the program has staged a save" to a checkpoint that counts: a thread writes, reads back, commits and tells."""

import os
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from whistlestop.blobs import staged
from whistlestop.blobs.manifest import Checkpoint, SaveFailed
from whistlestop.blobs.retention import Policy, removable
from whistlestop.blobs.staged import Staged
from whistlestop.blobs.storage import DAY, Committed, Fenced, Storage, StorageFailed
from whistlestop.domain.checkpoints import passed_over
from whistlestop.domain.errors import WhistleError
from whistlestop.runner.notes import note
from whistlestop.runner.sharing import Sharing

Tell = Callable[..., None]
FIRST_DELAY, LAST_DELAY = 0.5, 30.0  # seconds between two tries
PATIENCE = 900.0  # seconds for which a storage that fails is tried again, once the program has ended
LOOK_PATIENCE = 10.0  # and for what was there before, if nothing is left to save
TIDY_EVERY = 3600.0
TELL_EVERY = 300.0
_NICE = 10  # the loop comes first


class CheckpointKeeper:
    """`tell` is called from this keeper's thread, and so is `durable` with the step and the seconds it took.
    `answers`: how many saves had been asked for when one was staged."""

    def __init__(
        self,
        storage: Storage,
        phase: str,
        attempt: tuple[int, str],
        stage: Path,
        *,
        node: int = 0,
        nodes: int = 1,
        policy: Policy,
        protected: Collection[str],
        over: Sequence[Sequence[int]] = (),
        tell: Tell,
        answers: Callable[[float], int] = lambda at: 0,
        durable: Callable[[int, float], None] = lambda step, seconds: None,
        failed: Callable[[], None] = lambda: None,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._storage, self._phase = storage, phase
        self._stage = stage
        self._node, self._nodes = node, nodes
        self._attempt_number, self._attempt_id = attempt
        self._policy = policy
        self._protected = set(protected)
        self._over = over  # by guards
        self._in_use: set[str] = set()
        self._aside: set[str] = set()  # addresses of those that were found damaged
        self._tell, self._answers, self._durable, self._failed = tell, answers, durable, failed
        self._before_commit = before_commit  # may raise what a storage may
        self._left = threading.Event()  # nothing more is told
        self._ending: float | None = None  # when the program had ended
        self._sharing = Sharing(storage, left=self._left, ended=lambda: self._ending, say=self._say)
        self._kept_on: set[str] = set()  # could not be removed, and that was said
        self._kept: dict[str, Checkpoint] = {}
        self._looked = threading.Event()  # at what was there before
        self._told_at: float | None = None  # of this outage
        self._tidied = 0.0
        self._waiting: set[Path] = set()
        self._saving = False
        self._over_at: float | None = None  # then nobody waits any longer
        self._at_risk = False  # what is being saved is not safe yet, or not told of
        self._queue: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def saved_step(self) -> int | None:
        """The newest that is safe."""
        return max((each.step for each in list(self._kept.values())), default=None)

    def start(self) -> None:
        """Not needed for what hardly ever saves: the first save does so."""
        if self._thread.ident is None:
            self._thread.start()

    def protect(self, ids: Collection[str]) -> None:
        """These, and no others, are left alone by retention."""
        self._protected = set(ids)

    def use(self, checkpoint_id: str) -> None:
        """The program goes on from it: it stays, whatever anybody says."""
        self._in_use.add(checkpoint_id)

    def set_aside(self, addresses: Collection[str]) -> None:
        """They were found damaged: they are not told of, and nothing is built on them."""
        self._aside |= set(addresses)
        for address in addresses:
            self._storage.distrust(address)

    def announce(self, directory: str) -> None:
        """The program says that a save is staged here."""
        path = Path(directory)
        if path.parent == self._stage and path.name.startswith("slot-") and path not in self._waiting:
            self._waiting.add(path)
            self._queue.put(path)
            self.start()

    def scan(self) -> None:
        """What is complete and was not announced: the program may have died right after it."""
        for slot in staged.slots(self._stage):
            if not staged.is_free(slot):
                self.announce(str(slot))

    def finish(self, patience: float | None = None) -> bool:
        """Returns when all that is staged is safe, or given up, or after `patience` seconds: a kill does not wait for
        an upload. Nothing is told after it. False: some of it is not safe, and is given up by this."""
        self._ending = time.monotonic()
        if patience is None:
            self.scan()
        self._queue.put(None)
        if patience is not None:
            self.hurry(patience)
        while self._thread.is_alive() and not self._left.is_set():
            over = self._over_at
            if over is not None and time.monotonic() >= over:
                break
            if not self.busy and (self._looked.is_set() or time.monotonic() - self._ending > LOOK_PATIENCE):
                break  # only tidying is left
            self._thread.join(0.05 if over is None else max(0.0, min(0.05, over - time.monotonic())))
        safe = not self._is_at_risk()  # now: once nobody waits, the thread lets go of what it could not save
        if (waits := self._sharing.open) is not None and not safe:
            words = f"Step {waits.save.step} is given up: {waits.text}. The ones before it are untouched."
            self._say("save_failed", words, **_failure(waits.save, waits.text), final=True)
        self._left.set()
        return safe

    def hurry(self, patience: float) -> None:
        """From now on so many seconds are left."""
        self._over_at = min(self._over_at or float("inf"), time.monotonic() + patience)

    def abandon(self) -> None:
        """Nobody waits for what is not safe yet."""
        self._left.set()

    @property
    def busy(self) -> bool:
        """Something is staged that is not safe yet, or not told of; or what it makes superfluous is being removed."""
        return self._saving or self._is_at_risk()

    def _is_at_risk(self) -> bool:
        slots = staged.slots(self._stage)
        return self._at_risk or bool(self._waiting) or any(not staged.is_free(slot) for slot in slots)

    def _run(self) -> None:
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        except OSError:
            pass
        if self._node == 0:
            self._look()
            self._tidy()
        else:
            self._looked.set()  # what is there is the first node's business
        while (slot := self._queue.get()) is not None and not self._left.is_set():
            # Not behind the save: the slot is free before everything is done, and may be full again by then.
            self._saving = self._at_risk = True
            self._waiting.discard(slot)
            self._guarded(partial(self._save, slot))
            self._saving = self._at_risk = False

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # what stands in a slot is the program's, and a storage may answer anything
            note(f"checkpoints: {error!r}")
            self._say("notice", f"Something went wrong with the checkpoints: {error}")

    def _look(self) -> None:
        """At those of earlier attempts, or of this one's earlier runner: committed, and perhaps never reported."""
        try:
            found = self._storage.list(self._phase)
        except Exception as error:  # a storage may answer anything
            note(f"checkpoints: {error!r}")
            self._say(
                "notice", f"What is in the storage can't be looked at: {_text(error)}. The next save tries it again."
            )
            return
        for checkpoint in reversed(found):
            if self._storage.where(checkpoint) not in self._aside and checkpoint.id not in self._kept:
                self._kept[checkpoint.id] = checkpoint
                self._say("checkpoint", f"Checkpoint of step {checkpoint.step} is there.", **self._describe(checkpoint))
        self._looked.set()

    def _save(self, slot: Path) -> None:
        ahead = time.time() - time.monotonic()  # the time of day may be set while it is uploaded
        found: Staged | None = None
        try:
            found = staged.read(slot)
            if found is None:
                return
            if (found.attempt_number, found.attempt_id, found.phase) != (
                self._attempt_number,
                self._attempt_id,
                self._phase,
            ):
                raise SaveFailed(f"{slot} belongs to attempt {found.attempt_number} of {found.phase}")
            done = self._try(found)
        except _Overtaken as error:
            words = f"Step {error.step} is given up for step {error.by}: {error.text}"
            self._give_up(slot, found, error.text, words, quiet=not self._is_time_to_tell())
            return
        except Exception as error:  # also what nobody thought of: a slot must not stay taken for ever
            note(f"checkpoints: {error!r}")
            self._give_up(slot, found, _text(error), f"A save was given up: {_text(error)}", error=error)
            return
        if done is not None and not self._left.is_set():
            self._took(slot, found, done, ahead)
        else:
            staged.release(slot)

    def _try(self, found: Staged) -> Committed | None:
        """Until it is committed; None if nobody waits for it any more. Raises what can't be helped by trying again."""
        delay, tries = FIRST_DELAY, 0
        while True:
            try:
                self._before_commit()
                if found.share is not None:
                    return self._sharing.commit(found)
                return self._storage.commit(found, cancelled=self._left.is_set)
            except (StorageFailed, SaveFailed, OSError) as error:
                if type(error) is SaveFailed and not isinstance(error.__cause__, OSError):
                    raise
                tries += 1
                self._make_room(error)
                if (newest := self._newest_staged()) > found.step:
                    raise _Overtaken(_text(error), found.step, newest) from error
                if tries == 1 and self._is_time_to_tell():
                    self._say(
                        "save_failed",
                        f"Step {found.step} is not safe yet: {_text(error)}. It is tried again; training goes on.",
                        **_failure(found, _text(error)),
                        tries=tries,
                        final=False,
                    )
                if self._ending is not None and time.monotonic() - self._ending > PATIENCE:
                    raise
            if self._left.wait(delay):
                return None
            delay = min(LAST_DELAY, delay * 2)

    def _is_time_to_tell(self) -> bool:
        """An outage may last for days, and every save fails in it."""
        now = time.monotonic()
        if self._told_at is not None and now - self._told_at < TELL_EVERY:
            return False
        self._told_at = now
        return True

    def _newest_staged(self) -> int:
        """While nothing can be saved the program can stage no more than its slots hold: then the newest counts."""
        steps = [-1]
        for slot in staged.slots(self._stage):
            try:
                found = staged.read(slot)
            except SaveFailed:
                continue
            if found is not None and (found.attempt_id, found.phase) == (self._attempt_id, self._phase):
                steps.append(found.step)
        return max(steps)

    def _make_room(self, error: Exception) -> None:
        """On a full disk what was removed is not kept for a day."""
        import errno

        if getattr(error.__cause__, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
            return
        try:
            if gone := self._storage.purge(self._phase, time.time() + 1):
                self._say("notice", f"The disk is full: {gone} removed checkpoints were deleted for good.")
        except (OSError, WhistleError) as problem:
            note(f"checkpoints: {problem!r}")

    def _give_up(
        self,
        slot: Path,
        found: Staged | None,
        text: str,
        words: str,
        *,
        error: Exception | None = None,
        quiet: bool = False,
    ) -> None:
        self._failed()
        if found is not None and found.share is not None:
            self._sharing.let_go(found, text)
        staged.release(slot)  # last: who finds it free looks for the word about it
        if quiet:
            return
        if isinstance(error, Fenced):
            self._say("notice", f"A save was not committed: {text}.")
            return
        said = f"{words}. The ones before it are untouched."
        self._say("save_failed", said, **_failure(found, text), final=True)

    def _took(self, slot: Path, found: Staged, done: Committed, ahead: float) -> None:
        checkpoint = done.checkpoint
        self._told_at = None
        self._kept[checkpoint.id] = checkpoint
        seconds = max(0.0, time.monotonic() + ahead - found.at)
        self._durable(checkpoint.step, seconds)
        staged.release(slot)
        self._say(
            "checkpoint",
            f"Checkpoint of step {checkpoint.step} is safe and verified.",
            **self._describe(checkpoint),
            saves=self._answers(found.at),
            block_seconds=found.block_seconds,
            upload_seconds=seconds,
            written=done.written,
        )
        self._at_risk = False
        if not self._looked.is_set():
            self._look()
        self._retain(checkpoint)
        if time.monotonic() - self._tidied > TIDY_EVERY:
            self._tidy()

    def _retain(self, newest: Checkpoint) -> None:
        if not self._removable():
            return
        now = time.time()
        # A person may have removed some meanwhile, or had some back: only what is there may count.
        try:
            self._storage.check_fence(self._phase, self._attempt_number)
            there = {each.id: each for each in self._storage.list(self._phase)} | {newest.id: newest}
        except (OSError, WhistleError) as error:  # there is a next time
            note(f"retention: {error!r}")
            return
        self._kept = {id: each for id, each in there.items() if self._storage.where(each) not in self._aside}
        gone = [checkpoint for checkpoint in self._removable() if self._discard(checkpoint, now)]
        if gone:
            steps = ", ".join(str(each.step) for each in gone)
            self._say(
                "checkpoints_removed",
                f"Older checkpoints were removed (steps {steps}); they can be had back for a day.",
                ids=[each.id for each in gone],
                until=now + DAY,
            )

    def _removable(self) -> list[Checkpoint]:
        """What a guard has passed over takes nobody's place, and goes when training has come as far again."""
        protected, all_kept = self._protected | self._in_use, list(self._kept.values())
        counted = [each for each in all_kept if not self._is_over(each)]
        reached = max((each.step for each in counted if each.healthy), default=-1)
        over = [each for each in all_kept if self._is_over(each) and each.step <= reached and each.id not in protected]
        return over + removable(counted, policy=self._policy, protected=protected)

    def _is_over(self, checkpoint: Checkpoint) -> bool:
        return passed_over(self._over, attempt=checkpoint.attempt_number, step=checkpoint.step)

    def _discard(self, checkpoint: Checkpoint, now: float) -> bool:
        """True when it counts no more. One that resists must not keep the others."""
        try:
            self._storage.discard(checkpoint, now)
        except (OSError, WhistleError) as error:
            if checkpoint.id not in self._kept_on:
                self._kept_on.add(checkpoint.id)
                self._say("notice", f"Checkpoint {self._storage.where(checkpoint)} could not be removed: {error}")
            return False
        del self._kept[checkpoint.id]
        return True

    def _tidy(self) -> None:
        """Nobody waits for it: what can't be done now is done in an hour, or by the next attempt."""
        self._tidied = time.monotonic()
        for act in (
            lambda: self._storage.check_fence(self._phase, self._attempt_number),
            lambda: self._storage.purge(self._phase, time.time() - DAY),
            lambda: self._storage.sweep(self._phase, self._attempt_number, nodes=self._nodes),
        ):
            try:
                act()
            except Fenced:
                return
            except Exception as error:
                note(f"tidying: {error!r}")

    def _describe(self, checkpoint: Checkpoint) -> dict[str, Any]:
        metrics = checkpoint.meta.get("metrics")
        return {
            "id": checkpoint.id,
            "step": checkpoint.step,
            "attempt": checkpoint.attempt_number,
            "path": self._storage.where(checkpoint),
            "bytes": checkpoint.bytes,
            "files": len(checkpoint.files),
            "metrics": metrics if isinstance(metrics, dict) else {},
            "verified": True,
            "healthy": checkpoint.healthy,
            "why": str(checkpoint.meta.get("why", "")),
            "at": checkpoint.at,
        }

    def _say(self, kind: str, text: str, **data: Any) -> None:
        if not self._left.is_set():
            self._tell(kind, text, **data)


class _Overtaken(Exception):
    """The storage fails, and a newer one is staged."""

    def __init__(self, text: str, step: int, by: int) -> None:
        super().__init__(text)
        self.text, self.step, self.by = text, step, by


def _failure(found: Staged | None, text: str) -> Mapping[str, Any]:
    """`why`: what it was saved for."""
    return {
        "step": found.step if found else None,
        "why": str(found.meta.get("why", "")) if found else "",
        "error": text,
    }


def _text(error: Exception) -> str:
    return error.text if isinstance(error, WhistleError) else str(error) or repr(error)
