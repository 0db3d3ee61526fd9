"""Saving the tracked parts: into a slot, which is then the runner's; without one, our own thread makes it durable. A
failed save is a warning, never an error."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from whistlestop.blobs import staged
from whistlestop.blobs.manifest import SaveFailed
from whistlestop.channel.layout import ProgramStage, Word
from whistlestop.sdk.attachment import Attachment
from whistlestop.sdk.committing import Committer, Handed, Saved
from whistlestop.sdk.group import PUBLISHED, PUT_OFF, SERIES, STAGE_FAILED, STAGED
from whistlestop.sdk.lazy import ChangedMeanwhile, Lazy, Unchanged, Unfit
from whistlestop.sdk.parts import Part
from whistlestop.sdk.place import Place
from whistlestop.sdk.restoring import Restored, Restoring
from whistlestop.sdk.slots import Slot, Slots
from whistlestop.sdk.staging import Laid, lay, read_table, write_table

# All of it is imported before the loop: a class that is made when the main thread has ended by Ctrl-C, in a save of
# another one, would make Python forget how it ended.
__all__ = ["PERIODIC", "Restored", "Saver"]

PERIODIC: Final = "on its cadence"  # such a save can wait for the next boundary
_LATER: Final = (PERIODIC, "on request")  # made at a boundary, with a step behind it: can be lazy
_GOES_ON: Final = (*_LATER, "asked by the program")  # after any other one the loop is over
_SLOT_SECONDS: Final = 600.0  # for the runner to be done with an earlier save
_WORTH_PREPARING: Final = 4 << 20


class _PutOff(Exception):
    """There is no free slot, and nobody waits for this save."""


class Saver:
    """In a training of several ranks every rank calls `save` at the same steps: each makes its own part of it."""

    def __init__(
        self, place: Place, attachment: Attachment, *, keep: int, digests: bool = False, lazy: bool = False
    ) -> None:
        self.place = place
        self.parts: dict[str, Part] = {}
        self.saved_step = -1  # of the last save of this process that did not fail
        self.put_off = False  # the last one found no free slot; it comes later
        self.failed_at = -math.inf
        self._save_seconds = 0.0
        self._attachment = attachment
        self._group = attachment.group
        self._digests = digests
        self._keep = keep
        self._saves = 0
        self._lazily = lazy and not digests
        self._lazy: Lazy | None = None
        self._slots: Slots | None = None
        self._committer: Committer | None = None
        self._handed: list[Handed] = []  # whose end nobody has seen yet
        self._handed_step = -1  # the highest

    @property
    def needs_all_ranks(self) -> bool:
        return self._group is not None and any(part.per_rank for part in self.parts.values())

    @property
    def has_room(self) -> bool:
        """A save could begin at once."""
        if self._lazy is not None and self._lazy.busy:  # its slot is taken, though nothing is to be seen there yet
            return False
        return self._slots is None or self._slots.take(self._slot_number(self._saves + 1)) is not None

    @property
    def cost(self) -> float | None:
        """Seconds for which the loop has waited for the last save; None while it may still have to."""
        if self._lazy is None:
            return self._save_seconds
        return self._save_seconds + self._lazy.waited if self._lazy.copied else None

    def save(
        self, step: int, *, why: str, meta: Mapping[str, Any], files: Mapping[str, Path] | None = None
    ) -> Saved | None:
        """None if it could not be saved: people are told, training goes on; or if it was put off. Only the process
        that leads hands it over."""
        if not self._attachment.leads and not self.needs_all_ranks:
            return None
        self.put_off = why == PERIODIC and not self.needs_all_ranks and not self.has_room
        if self.put_off:
            return None
        progress = self._attachment.progress
        before = progress[Word.STAGE]
        progress[Word.STAGE] = ProgramStage.SAVING
        progress[Word.SAVING] = step + 1
        try:
            saved = self._save(step, {**meta, "why": why}, files or {})
        except _PutOff:
            self.put_off = True
            return None
        except Exception as error:  # our errors and those of the user's state_dict alike: neither ends training
            self._lost(step)
            self._attachment.warn(f"step {step} could not be saved ({why}): {error!r}")
            return None
        finally:
            progress[Word.SAVING] = 0
            progress[Word.STAGE] = before
        if saved is not None and self._committer is not None and why not in _GOES_ON and not saved.wait():
            return None
        return saved

    def prepare(self) -> bool:
        """Make room for what the next save will need, in the background. False: it is too early to tell how much."""
        sizes = [part.size() for part in self.parts.values() if part.size is not None]
        total = sum(size for size in sizes if size is not None)
        if total >= _WORTH_PREPARING and (self._attachment.leads or self.needs_all_ranks):
            self._open_slots().prepare(total + total // 64 + (1 << 20))
        return None not in sizes

    def restore(self) -> Restored | None:
        """Load every tracked part. RestoreFailed names the one that did not; None if there is no checkpoint."""
        start = self.place.start
        if start is None:
            return None
        return Restoring(start, self.parts, rank=self._rank, size=self._size, warn=self._attachment.warn).restore()

    def finish(self) -> None:
        """Returns when all that was saved here is durable, or has failed."""
        if self._lazy is not None:
            self._lazy.join()
        if self._committer is not None:
            self._committer.wait()

    def close(self) -> None:
        self.finish()
        if self._lazy is not None:
            self._lazy.close()
        if self._slots is not None:
            self._slots.close()
        self.place.release()

    # Saving.

    def _save(self, step: int, meta: Mapping[str, Any], files: Mapping[str, Path]) -> Saved | None:
        self._saves += 1
        begun = time.perf_counter()
        if self._lazy is not None:
            self._lazy.join()
            self._lazy.waited = 0.0  # it is part of this save
        if not self._attachment.leads:
            self._save_own(step, meta["why"], begun)
            self._took(begun)
            self._keep_in_mind(step)
            self._attachment.progress[Word.SAVED_STEP] = step + 1
            return None
        try:
            slots = self._open_slots()
            slot = self._take(slots, meta["why"])
            lazy = self._open_lazy() if meta["why"] in _LATER else None
            laid = self._lay(slots, slot, files, lazy.storages() if lazy is not None else {})
            if lazy is not None and laid.rest is not None:
                return self._hand_over_later(lazy, slot, laid, step, meta, begun)
            if self.needs_all_ranks:
                self._gather(slot, laid, step)
            return self._hand_over(slot, laid, step, meta, begun)
        finally:
            if self.needs_all_ranks and self._group is not None:
                self._group.tell({PUBLISHED: self._saves})

    def _take(self, slots: Slots, why: str) -> Slot:
        slot = slots.take(self._slot_number(self._saves), seconds=0.0 if why == PERIODIC else _SLOT_SECONDS)
        if slot is None:
            if why == PERIODIC:
                raise _PutOff
            raise SaveFailed(f"earlier saves are still on their way after {_SLOT_SECONDS:.0f} s")
        return slot

    def _slot_number(self, save: int) -> int | None:
        """Several ranks have to use the same one, without a word between them."""
        return save if self.needs_all_ranks else None

    def _lay(self, slots: Slots, slot: Slot, files: Mapping[str, Path], stays: Mapping[int, Any] | None = None) -> Laid:
        own, leads = f"ranks/{self._rank}/", self._attachment.leads
        parts = {
            name: (own if part.per_rank and self._size > 1 else "", part)
            for name, part in self.parts.items()
            if leads or part.per_rank
        }
        return lay(slots, slot, parts, added=files, digests=self._digests, stays=stays)

    def _hand_over_later(
        self, lazy: Lazy, slot: Slot, laid: Laid, step: int, meta: Mapping[str, Any], begun: float
    ) -> Saved:
        """When the rest is copied. The loop goes on, up to its optimizer's step."""
        saved, unchanged = Saved(step, by_runner=self.place.stage is not None), Unchanged(laid.unchanged)
        failed: list[Exception] = []
        self._took(begun)
        self._keep_in_mind(step)
        blocked = self._save_seconds

        def copy() -> None:
            nonlocal blocked
            try:
                laid.finish()
                unchanged.check()
                blocked += lazy.blocked()
            except Exception as error:
                failed.append(error)

        def hand_over() -> None:
            try:
                for error in failed:
                    raise error
                self._attachment.progress.set_seconds(Word.SAVE_SECONDS, blocked)
                self._publish(self._describe(slot, laid, step, meta, blocked), saved)
            except Exception as error:
                if isinstance(error, ChangedMeanwhile):
                    self._lazily, self.put_off = False, True  # made again, at the next boundary
                self._lost(step)
                saved.settle(None)
                words = error if isinstance(error, ChangedMeanwhile) else repr(error)
                self._attachment.warn(f"step {step} could not be saved ({meta['why']}): {words}")

        lazy.begin(copy, hand_over)
        return saved

    def _open_lazy(self) -> Lazy | None:
        if self._lazily and self._lazy is None:
            try:
                if self._group is not None:
                    raise Unfit("several ranks train together")
                self._lazy = Lazy([part.optimizer for part in self.parts.values() if part.optimizer is not None])
            except Unfit as why:
                self._lazily = False
                self._attachment.warn(f"lazy=True does nothing here: {why}")
        return self._lazy if self._lazily else None

    def _hand_over(self, slot: Slot, laid: Laid, step: int, meta: Mapping[str, Any], begun: float) -> Saved:
        saved = Saved(step, by_runner=self.place.stage is not None)
        self._took(begun)
        self._keep_in_mind(step)
        self._publish(self._describe(slot, laid, step, meta, self._save_seconds), saved)
        if laid.size >= _WORTH_PREPARING and self._slots is not None:
            self._slots.prepare(laid.size)  # the other one, if it was never used
        return saved

    def _describe(self, slot: Slot, laid: Laid, step: int, meta: Mapping[str, Any], blocked: float) -> staged.Staged:
        place = self.place
        told = {"digests": laid.digests} if self._digests else {}
        return staged.Staged(
            slot.path,
            place.phase,
            step,
            place.attempt_number,
            place.attempt_id,
            {**meta, **told, "world": self._size, "parts": sorted(self.parts)},
            laid.pieces,
            at=time.time(),
            block_seconds=blocked,
            share=self._share(),
        )

    def _publish(self, found: staged.Staged, saved: Saved) -> None:
        place, progress = self.place, self._attachment.progress
        saved.bytes = found.bytes
        self._handed = [each for each in self._handed if each.look() is None]
        handed = Handed(found, self._attachment.orders, again=found.step <= self._handed_step)
        staged.publish(found)
        progress[Word.STAGED_STEP] = progress[Word.SAVED_STEP] = found.step + 1
        if place.stage is not None:
            saved.handed, self._handed_step = handed, max(self._handed_step, found.step)
            self._handed.append(handed)
            self._attachment.tell({"kind": "staged", "dir": str(found.directory), "step": found.step})
            return
        if self._committer is None:
            keep = self._keep if place.standalone else None
            self._committer = Committer(place.store, self._attachment, keep=keep, on_failed=self._lost)
        self._committer.submit(found, saved)

    def _took(self, begun: float) -> None:
        self._save_seconds = time.perf_counter() - begun
        self._attachment.progress.set_seconds(Word.SAVE_SECONDS, self._save_seconds)

    def _keep_in_mind(self, step: int) -> None:
        """Before another thread may find that it is lost."""
        self.saved_step = step
        self.failed_at = -math.inf

    def _lost(self, step: int) -> None:
        """This save will not become durable. Also in the threads that copy and commit."""
        self.failed_at = time.time()
        if self.saved_step == step:
            self.saved_step = -1

    def _open_slots(self) -> Slots:
        if self._slots is None:
            group, place = self._group, self.place
            # What frameworks write themselves is of unknown size: not into memory.
            writes = any(part.files for part in self.parts.values())
            self._slots = Slots(
                place.slots_directory(),
                None if writes else place.memory(group),
                inside=f"rank-{self._rank}" if self._rank else "",
                ranks=group.world.local_size if group is not None and self.needs_all_ranks else 1,
                owned=place.stage is None and self._attachment.leads,
            )
        return self._slots

    # Several ranks.

    def _save_own(self, step: int, why: str, begun: float) -> None:
        """A rank's own parts, laid where rank 0 looks for them, or the first rank of its node. Whatever happens, nobody
        must wait for it."""
        group = self._group
        assert group is not None
        try:
            # A rank that runs ahead must not write into what rank 0 has not handed over yet.
            group.wait(lambda: group.decided[PUBLISHED] >= self._saves - 2, "rank 0 to hand over an earlier save")
            slots = self._open_slots()
            slot = self._take(slots, why)
            laid = self._lay(slots, slot, {})
            if self._by_nodes and group.world.local_rank == 0:
                self._hand_over_share(slot, laid, step, why, begun)
            else:
                write_table(slot, laid, step, shared=group.world.nodes > 1 and not self._by_nodes)
        except _PutOff:
            group.mine[PUT_OFF] = self._saves
            raise
        except BaseException:
            group.mine[STAGE_FAILED] = self._saves
            raise
        finally:
            group.mine[STAGED] = self._saves

    def _hand_over_share(self, slot: Slot, laid: Laid, step: int, why: str, begun: float) -> None:
        """The first rank of another node than rank 0's: what the ranks of this one have laid goes to its runner."""
        group = self._group
        assert group is not None
        group.wait_for_node(STAGED, self._saves, f"the ranks of this node to save step {step}")
        self._check(lambda word: max((page[word] for _, page in group.peers()), default=0), step)
        self._add(laid, slot, step, [rank for rank, _ in group.peers()])
        found = self._describe(slot, laid, step, {"why": why}, time.perf_counter() - begun)
        staged.publish(found)
        self._attachment.tell({"kind": "staged", "dir": str(found.directory), "step": step})

    def _gather(self, slot: Slot, laid: Laid, step: int) -> None:
        """Rank 0: what all others have laid, or those of its node, where the others' runners take theirs."""
        group = self._group
        assert group is not None
        group.mine[STAGED] = self._saves
        group.wait_for_all(STAGED, self._saves, f"all ranks to save step {step}")
        self._check(group.most, step)
        ranks = [rank for rank, _ in group.peers()] if self._by_nodes else range(1, self._size)
        self._add(laid, slot, step, ranks)

    def _check(self, last: Callable[[int], int], step: int) -> None:
        """That all have laid theirs. `last`: the highest value of a word in their pages."""
        if last(STAGE_FAILED) >= self._saves:
            raise SaveFailed(f"a rank could not save its part of step {step}; its own warning says why")
        if last(PUT_OFF) >= self._saves:  # it looked before the slot was free
            raise _PutOff

    def _add(self, laid: Laid, slot: Slot, step: int, ranks: Iterable[int]) -> None:
        for rank in ranks:
            theirs = read_table(slot, rank, step)
            laid.pieces += theirs.pieces
            laid.digests |= theirs.digests

    @property
    def _by_nodes(self) -> bool:
        """Each node's runner takes what its own ranks have laid: they need not see each other's disks."""
        group = self._group
        return group is not None and group.world.nodes > 1 and self.place.stage is not None and self.needs_all_ranks

    def _share(self) -> staged.Share | None:
        group = self._group
        if not self._by_nodes or group is None:
            return None
        return staged.Share(f"{group.decided[SERIES]:x}-{self._saves}", group.world.node, group.world.nodes)

    @property
    def _rank(self) -> int:
        return self._group.world.rank if self._group else 0

    @property
    def _size(self) -> int:
        return self._group.world.size if self._group else 1
