"""Saving and restoring the tracked parts. A failed save is a warning, a failed restore is an error."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whistlestop.blobs.checkpoints import Checkpoint, CheckpointWriter, SaveFailed
from whistlestop.blobs.retention import removable
from whistlestop.channel.layout import ProgramStage, Word
from whistlestop.sdk.attachment import Attachment
from whistlestop.sdk.group import STAGE_FAILED, STAGED
from whistlestop.sdk.parts import Part, RestoreFailed, unpack
from whistlestop.sdk.place import Place
from whistlestop.sdk.staging import read_digests, stage

_PARTS, _FILES, _PICKLE = "parts", "files", ".pickle"


@dataclass(frozen=True)
class Restored:
    """What the program goes on from. `state` holds the parts that are not tracked, by name."""

    step: int
    path: Path
    state: Mapping[str, Any]
    meta: Mapping[str, Any] = field(default_factory=dict)


class Saver:
    """In a training of several ranks every rank calls `save` at the same steps: each makes its own part of it."""

    def __init__(self, place: Place, attachment: Attachment, *, keep: int, digests: bool = False) -> None:
        self.place = place
        self.parts: dict[str, Part] = {}
        self.saved_step = -1  # of the last checkpoint of this process
        self.failed_at = -math.inf
        self.save_seconds = 0.0
        self._attachment = attachment
        self._group = attachment.group
        self._digests = digests
        self._keep = keep
        self._swept = False
        self._saves = 0

    @property
    def needs_all_ranks(self) -> bool:
        return self._group is not None and any(part.per_rank for part in self.parts.values())

    def save(
        self, step: int, *, why: str, meta: Mapping[str, Any], files: Mapping[str, Path] | None = None
    ) -> Checkpoint | None:
        """None if it could not be saved: people are told, training goes on. Only the process that leads commits."""
        if not self._attachment.leads and not self.needs_all_ranks:
            return None
        progress = self._attachment.progress
        before = progress[Word.STAGE]
        progress[Word.STAGE] = ProgramStage.SAVING
        progress[Word.SAVING] = step + 1
        begun = time.perf_counter()
        try:
            saved = self._save(step, {**meta, "why": why}, files or {})
        except Exception as error:  # our errors and those of the user's state_dict alike: neither ends training
            self.failed_at = time.time()
            self._attachment.warn(f"step {step} could not be saved ({why}): {error!r}")
            return None
        finally:
            self.save_seconds = time.perf_counter() - begun
            progress.set_seconds(Word.SAVE_SECONDS, self.save_seconds)
            progress[Word.SAVING] = 0
            progress[Word.STAGE] = before
        self.saved_step = step
        self.failed_at = -math.inf
        progress[Word.SAVED_STEP] = step + 1
        if saved is None:
            return None
        self._attachment.tell(
            {"kind": "checkpoint", "step": step, "dir": str(saved.path), "id": saved.id, "bytes": saved.bytes}
        )
        if self.place.standalone:  # with a runner it is the runner's: it knows what is pinned and in use
            self._retain(saved)
        return saved

    def restore(self) -> Restored | None:
        """Load every tracked part. RestoreFailed names the one that did not; None if there is no checkpoint."""
        start = self.place.start
        if start is None:
            return None
        world = start.meta.get("world", 1)
        shared, own = self._stored(start, ""), self._stored(start, f"ranks/{self._rank}/")
        missing = []
        for name, part in self.parts.items():
            if part.per_rank and world != self._size:
                self._mismatch(start, name, part, world)
            elif name not in (own if part.per_rank and self._size > 1 else shared):
                missing.append(name)
        self._check_missing(start, missing, shared | own)
        for name, part in self.parts.items():
            if name in missing or (part.per_rank and world != self._size):
                continue
            self._load(start, name, part)
        rest = {
            name: self._read(start.path / _PARTS / f"{name}{_PICKLE}", start, name)
            for name in sorted(self._stored(start, "", files=False) - set(self.parts))
        }
        if self.parts and rest:
            self._attachment.warn(
                f"the checkpoint of step {start.step} also holds {', '.join(rest)}, which is not tracked: it is not "
                "loaded, unless you load it from run.restore().state"
            )
        return Restored(start.step, start.path, rest, start.meta)

    # Saving.

    def _save(self, step: int, meta: Mapping[str, Any], files: Mapping[str, Path]) -> Checkpoint | None:
        self._saves += 1
        if not self._attachment.leads:
            self._save_own(step)
            return None
        place = self.place
        if not self._swept:
            self._swept = True
            place.store.sweep(place.phase, place.attempt_number)
        writer = place.store.begin(place.phase, step, place.attempt_number, place.attempt_id)
        try:
            shared = {name: part for name, part in self.parts.items() if not (part.per_rank and self._size > 1)}
            digests = stage(writer.path, shared, digests=self._digests)
            for name, source in files.items():
                _add(writer, name, source)
            if self.needs_all_ranks:
                digests |= self._gather(writer, step)
            told = {"digests": digests} if self._digests else {}
            return writer.commit({**meta, **told, "world": self._size, "parts": sorted(self.parts)})
        except Exception:
            writer.discard()
            raise

    def _save_own(self, step: int) -> None:
        """A rank's own parts, laid where rank 0 looks for them. Whatever happens, rank 0 must not wait for it."""
        assert self._group is not None
        mine = self._group.mine
        try:
            self._stage_own(step)
        except BaseException:
            mine[STAGE_FAILED] = self._saves
            raise
        finally:
            mine[STAGED] = self._saves

    def _stage_own(self, step: int) -> None:
        import os
        import shutil

        place = self.place
        target = place.store.ranks_stage(place.phase, step, place.attempt_number) / str(self._rank)
        making = target.with_name(f"{self._rank}.{os.getpid()}")
        for left in (target, making):
            shutil.rmtree(left, ignore_errors=True)
        making.mkdir(parents=True)
        own = {name: part for name, part in self.parts.items() if part.per_rank}
        stage(making, own, digests=self._digests, note=True)
        os.rename(making, target)

    def _gather(self, writer: CheckpointWriter, step: int) -> dict[str, str]:
        """Rank 0: its own parts, then those of all others."""
        import shutil

        group, place = self._group, self.place
        assert group is not None
        self._stage_own(step)
        group.mine[STAGED] = self._saves
        group.wait_for_all(STAGED, self._saves, f"all ranks to save step {step}")
        if group.most(STAGE_FAILED) >= self._saves:
            raise SaveFailed(f"a rank could not save its part of step {step}; its own warning says why")
        laid = place.store.ranks_stage(place.phase, step, place.attempt_number)
        digests: dict[str, str] = {}
        for rank in range(self._size):
            if not (laid / str(rank)).is_dir():
                raise SaveFailed(f"rank {rank} laid its part of step {step} where rank 0 can't see it: {laid}")
            digests |= {f"rank-{rank}/{leaf}": each for leaf, each in read_digests(laid / str(rank)).items()}
            writer.move_in(f"ranks/{rank}", laid / str(rank))
        shutil.rmtree(laid, ignore_errors=True)
        return digests

    def _retain(self, saved: Checkpoint) -> None:
        store = self.place.store
        try:
            gone = removable(store.list(self.place.phase), keep=self._keep, protected={saved.id})
        except OSError as error:
            self._attachment.warn(f"old checkpoints could not be looked for: {error}")
            return
        for each in gone:
            try:
                store.remove(each)
            except OSError as error:
                self._attachment.warn(f"an old checkpoint could not be removed: {error}")

    # Restoring.

    @property
    def _rank(self) -> int:
        return self._group.world.rank if self._group else 0

    @property
    def _size(self) -> int:
        return self._group.world.size if self._group else 1

    @staticmethod
    def _stored(start: Checkpoint, prefix: str, *, files: bool = True) -> set[str]:
        parts, trees = f"{prefix}{_PARTS}/", f"{prefix}{_FILES}/"
        names = {name[len(parts) : -len(_PICKLE)] for name in start.files if name.startswith(parts)}
        if files:
            names |= {name[len(trees) :].partition("/")[0] for name in start.files if name.startswith(trees)}
        return names

    def _mismatch(self, start: Checkpoint, name: str, part: Part, world: int) -> None:
        words = f"{name} was saved by each of {world} ranks at step {start.step}, and here there are {self._size}"
        if not part.spare:
            raise RestoreFailed(words, hint=f"go on with {world} ranks, or don't track it per rank")
        self._attachment.warn(f"{words}: it starts afresh, so what comes is not what an uninterrupted run would give")

    def _check_missing(self, start: Checkpoint, missing: list[str], stored: set[str]) -> None:
        for name in [name for name in missing if self.parts[name].spare]:
            self._attachment.warn(f"the checkpoint of step {start.step} does not hold {name}: it starts afresh")
        needed = sorted(name for name in missing if not self.parts[name].spare)
        if needed:
            raise RestoreFailed(
                f"{', '.join(needed)} is tracked, but the checkpoint of step {start.step} in {start.path} has "
                f"no such part; it has: {', '.join(sorted(stored)) or 'none'}"
            )

    def _load(self, start: Checkpoint, name: str, part: Part) -> None:
        place = start.path / f"ranks/{self._rank}" if part.per_rank and self._size > 1 else start.path
        given: Any = place / _FILES / name
        if not part.files:
            given = self._read(place / _PARTS / f"{name}{_PICKLE}", start, name)
        try:
            part.load(given)
        except Exception as error:
            raise RestoreFailed(
                f"{name} could not be restored from step {start.step} in {start.path}: {error!r}"
            ) from error

    def _read(self, path: Path, start: Checkpoint, name: str) -> Any:
        try:
            return unpack(path.read_bytes())
        except Exception as error:
            raise RestoreFailed(
                f"{name} could not be read from step {start.step} in {start.path}: {error!r}"
            ) from error


def _add(writer: CheckpointWriter, name: str, source: Path) -> None:
    if source.is_dir():
        writer.add_tree(name, source)
    else:
        writer.add_file(name, source)
