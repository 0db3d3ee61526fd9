"""Saving and restoring the tracked parts. A failed save is a warning, a failed restore is an error."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whistlestop.blobs.checkpoints import Checkpoint, CheckpointWriter
from whistlestop.blobs.retention import removable
from whistlestop.channel.layout import ProgramStage, Word
from whistlestop.sdk.attachment import Attachment
from whistlestop.sdk.parts import Part, RestoreFailed, pack, unpack
from whistlestop.sdk.place import Place

_PARTS = "parts"


@dataclass(frozen=True)
class Restored:
    """What the program goes on from. `state` holds the parts that are not tracked, by name."""

    step: int
    path: Path
    state: Mapping[str, Any]


class Saver:
    def __init__(self, place: Place, attachment: Attachment, *, keep: int) -> None:
        self.place = place
        self.parts: dict[str, Part] = {}
        self.saved_step = -1  # of the last checkpoint of this process
        self.failed_at = -math.inf
        self.save_seconds = 0.0
        self._attachment = attachment
        self._keep = keep
        self._swept = False

    def save(
        self, step: int, *, why: str, meta: Mapping[str, Any], files: Mapping[str, Path] | None = None
    ) -> Checkpoint | None:
        """None if it could not be saved: people are told, training goes on. Only the process that leads saves."""
        if not self._attachment.leads:
            return None
        progress = self._attachment.progress
        stage = progress[Word.STAGE]
        progress[Word.STAGE] = ProgramStage.SAVING
        progress[Word.SAVING] = step + 1
        begun = time.perf_counter()
        try:
            saved = self._write(step, {**meta, "why": why}, files or {})
        except Exception as error:  # our errors and those of the user's state_dict alike: neither ends training
            self.failed_at = time.time()
            self._attachment.warn(f"step {step} could not be saved ({why}): {error!r}")
            return None
        finally:
            self.save_seconds = time.perf_counter() - begun
            progress.set_seconds(Word.SAVE_SECONDS, self.save_seconds)
            progress[Word.SAVING] = 0
            progress[Word.STAGE] = stage
        self.saved_step = step
        self.failed_at = -math.inf
        progress[Word.SAVED_STEP] = step + 1
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
        prefix, suffix = f"{_PARTS}/", ".pickle"
        stored = {
            name[len(prefix) : -len(suffix)]
            for name in start.files
            if name.startswith(prefix) and name.endswith(suffix)
        }
        missing = sorted(set(self.parts) - stored)
        if missing:
            raise RestoreFailed(
                f"{', '.join(missing)} is tracked, but the checkpoint of step {start.step} in {start.path} has "
                f"no such part; it has: {', '.join(sorted(stored)) or 'none'}"
            )
        for name, part in self.parts.items():
            state = self._read(start, name)
            try:
                part.load(state)
            except Exception as error:
                raise RestoreFailed(
                    f"{name} could not be restored from step {start.step} in {start.path}: {error!r}"
                ) from error
        rest = {name: self._read(start, name) for name in sorted(stored - set(self.parts))}
        return Restored(start.step, start.path, rest)

    def _write(self, step: int, meta: Mapping[str, Any], files: Mapping[str, Path]) -> Checkpoint:
        place = self.place
        if not self._swept:
            self._swept = True
            place.store.sweep(place.phase, place.attempt_number)
        writer = place.store.begin(place.phase, step, place.attempt_number, place.attempt_id)
        try:
            for name, part in self.parts.items():
                writer.add_bytes(f"{_PARTS}/{name}.pickle", pack(part.save()))
            for name, source in files.items():
                _add(writer, name, source)
            return writer.commit({**meta, "parts": sorted(self.parts)})
        except Exception:
            writer.discard()
            raise

    def _read(self, start: Checkpoint, name: str) -> Any:
        try:
            return unpack((start.path / _PARTS / f"{name}.pickle").read_bytes())
        except Exception as error:
            raise RestoreFailed(
                f"{name} could not be read from step {start.step} in {start.path}: {error!r}"
            ) from error

    def _retain(self, saved: Checkpoint) -> None:
        store = self.place.store
        for each in removable(store.list(self.place.phase), keep=self._keep, protected={saved.id}):
            try:
                store.remove(each)
            except OSError as error:
                self._attachment.warn(f"an old checkpoint could not be removed: {error}")


def _add(writer: CheckpointWriter, name: str, source: Path) -> None:
    if source.is_dir():
        writer.add_tree(name, source)
    else:
        writer.add_file(name, source)
