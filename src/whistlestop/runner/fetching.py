"""Bringing a checkpoint to this host, before a program starts or beside it; and what keeps one from starting."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from whistlestop.sdk.fetched import mark_of

if TYPE_CHECKING:
    from whistlestop.blobs.manifest import Checkpoint
    from whistlestop.blobs.storage import Storage
    from whistlestop.wire.launch import Launch


class CannotStart(Exception):
    """The program is not started, or was ended before it could go on from its checkpoint. `reason` is an EndReason."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text

    @classmethod
    def without_storage(cls, launch: "Launch", error: Exception) -> Self:
        """One that has worked before comes back; one that never has is a mistake that somebody has to see at once."""
        reason = "storage_away" if launch.storage_worked else "storage_unfit"
        if isinstance(error, NoRoom):
            return cls(reason, str(error))
        place, why = launch.storage or launch.checkpoints, str(error)
        if isinstance(error, OSError):
            why = f"{error.strerror} ({error.filename}). Check that its disk is there, and that it can be written to"
        return cls(reason, f"{place}: {why}.")


class NoRoom(OSError):
    """On this host: it says nothing about the storage."""


def place_of(launch: "Launch", checkpoint: "Checkpoint") -> Path:
    """Where a checkpoint is put that comes from afar: gone with the attempt."""
    return Path(launch.directory) / "fetched" / checkpoint.phase / checkpoint.path.name


def fetch(launch: "Launch", storage: "Storage", checkpoint: "Checkpoint") -> Path:
    """Every hash is compared. Damaged, Removed, StorageFailed or NoRoom."""
    try:
        return storage.fetch(checkpoint, place_of(launch, checkpoint))
    except OSError as error:
        raise NoRoom(
            f"the checkpoint of step {checkpoint.step} ({checkpoint.bytes / 1e9:.3g} GB) could not be put on this "
            f"host, below {launch.directory}: {error.strerror or error}. Make room there."
        ) from error


class Fetching:
    """Of the checkpoint to go on from, while the program starts. It waits where it restores: see sdk/fetched.py."""

    def __init__(self, launch: "Launch", storage: "Storage", checkpoint: "Checkpoint") -> None:
        self._launch, self._storage = launch, storage
        self.checkpoint = checkpoint
        self.seconds = 0.0  # that it took

    def in_words(self) -> str:
        step = self.checkpoint.step
        return f"The checkpoint of step {step} was fetched in {self.seconds:.1f} s while the program started."

    def announce(self) -> None:
        """Before the program starts."""
        mark = mark_of(place_of(self._launch, self.checkpoint))
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()

    def run(self) -> CannotStart | None:
        """In a thread. The mark goes only when all is well."""
        from whistlestop.blobs.manifest import Damaged
        from whistlestop.blobs.storage import Removed

        began = time.monotonic()
        try:
            mark_of(fetch(self._launch, self._storage, self.checkpoint)).unlink()
            self.seconds = time.monotonic() - began
        except (Damaged, Removed) as error:
            return CannotStart("checkpoint_damaged", error.text)
        except Exception as error:  # whatever it is: the program must not wait for ever
            return CannotStart.without_storage(self._launch, error)
        return None
