"""Bringing a checkpoint to this host, before a program starts or beside it; and what keeps one from starting."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from whistlestop.sdk.fetched import mark_of

if TYPE_CHECKING:
    from whistlestop.blobs.manifest import Checkpoint
    from whistlestop.blobs.storage import Storage
    from whistlestop.runner.choosing import Aside
    from whistlestop.wire.launch import Launch

RANKS: Final = "ranks"  # in a checkpoint: ranks/R/… is what rank R has saved by itself


class CannotStart(Exception):
    """The program is not started, or was ended before it could go on from its checkpoint. `reason` is an EndReason."""

    def __init__(self, reason: str, text: str, aside: "Sequence[Aside]" = ()) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.aside = aside  # checkpoints that were found damaged, to be told of

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


def needed_here(launch: "Launch", checkpoint: "Checkpoint") -> Callable[[str], bool] | None:
    """Of the files of a checkpoint that is gone on from: what all ranks share, and what those of this node have saved.
    None: all of them, since nobody knows which ranks are here, or it is for their program to say who takes what."""
    if launch.nodes == 1 or not launch.ranks or checkpoint.meta.get("world") != launch.nodes * launch.ranks:
        return None
    first = launch.node * launch.ranks
    here = tuple(f"{RANKS}/{rank}/" for rank in range(first, first + launch.ranks))
    return lambda name: not name.startswith(f"{RANKS}/") or name.startswith(here)


def fetch(launch: "Launch", storage: "Storage", checkpoint: "Checkpoint", *, whole: bool = True) -> Path:
    """Every hash is compared. Damaged, Removed, StorageFailed or NoRoom. `whole`: not only what this node needs of it
    to go on."""
    only = None if whole else needed_here(launch, checkpoint)
    try:
        return storage.fetch(checkpoint, place_of(launch, checkpoint), only=only)
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

    def tell(self, problem: CannotStart | None, address: str, tell: Callable[..., None]) -> None:
        if problem is None:
            step, size = self.checkpoint.step, self.checkpoint.bytes
            text = f"The checkpoint of step {step} was fetched in {self.seconds:.1f} s while the program started."
            tell("checkpoint_fetched", text, seconds=self.seconds, bytes=size, path=address)
        elif problem.reason == "checkpoint_damaged":
            text = f"A checkpoint can't be used: {problem.text}"
            tell("checkpoint_set_aside", text, path=address, why=problem.text)

    def announce(self) -> None:
        """Before the program starts."""
        mark = mark_of(place_of(self._launch, self.checkpoint))
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()

    def run(self) -> CannotStart | None:
        """In a thread. The program still waits: see `release`."""
        from whistlestop.blobs.manifest import Damaged
        from whistlestop.blobs.storage import Removed

        began = time.monotonic()
        try:
            fetch(self._launch, self._storage, self.checkpoint, whole=False)
            self.seconds = time.monotonic() - began
        except (Damaged, Removed) as error:
            return CannotStart("checkpoint_damaged", error.text)
        except Exception as error:  # whatever it is: the program must not wait for ever
            return CannotStart.without_storage(self._launch, error)
        return None

    def release(self) -> None:
        """When all is well, and said: the program goes on, and may end at once."""
        mark_of(place_of(self._launch, self.checkpoint)).unlink()
