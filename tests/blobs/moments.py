"""Every single moment of something that a storage does: what happens if the process ends there, or another one does
something of its own."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.blobs.manifest import Checkpoint
from whistlestop.blobs.remote import RemoteStorage
from whistlestop.blobs.staged import Staged
from whistlestop.blobs.storage import Storage
from whistlestop.testing.slots import lay

BASE = os.urandom(70_000)  # large enough to be linked to


class Cut(BaseException):
    """The process ends here: no handler of ours may run, so it is no Exception."""


class Place:
    """A storage, and `again` another object for it as another process has."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._directory, self._laid = directory, count()
        if kind == "local":
            self.again: Callable[[], Storage] = lambda: CheckpointStore(directory / "checkpoints")
            names = ("open", "write", "fsync", "close", "rename", "unlink", "mkdir", "link", "rmdir")
            self.writes: list[tuple[Any, str]] = [(os, name) for name in names]
            self.calls = [*self.writes, (os, "listdir"), (os, "stat")]
        else:
            self.store = store = MemoryStore()

            def again() -> Storage:
                made = RemoteStorage("memory://", patience=0.0)
                made._objects._made = store
                return made

            self.again = again
            self.writes = [(obstore, name) for name in ("put", "delete")]
            self.calls = [*self.writes, *((obstore, name) for name in ("get", "list", "list_with_delimiter"))]
        self.storage = self.again()

    def lay(self, step: int) -> Staged:
        content = {"base": BASE, "own": b"%d" % step}
        return lay(self._directory / f"slot-{next(self._laid)}", step, files=content, phase="main")

    def save(self, step: int) -> Checkpoint:
        return self.storage.commit(self.lay(step)).checkpoint

    def half_a_save(self, step: int) -> None:
        with pytest.raises(Cut), Moment(self.writes, 6 if self.writes[0][0] is os else 1, cut):
            self.save(step)

    def check(self) -> None:
        """Whatever is listed is whole, and so is whatever can be had back."""
        storage = self.again()
        for found in (*storage.list("main"), *(each for each, _ in storage.trashed("main"))):
            storage.verify(found)


class Moment:
    """The calls go on as ever, but before one of them something happens, once."""

    def __init__(self, calls: list[tuple[Any, str]], number: int, act: Callable[[], object]) -> None:
        self.reached = False
        self._calls, self._left, self._act, self._real = calls, number, act, [getattr(*each) for each in calls]

    def __enter__(self) -> "Moment":
        for (module, name), real in zip(self._calls, self._real, strict=True):
            setattr(module, name, self._wrap(real))
        return self

    def __exit__(self, *exc: object) -> None:
        for (module, name), real in zip(self._calls, self._real, strict=True):
            setattr(module, name, real)

    def _wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                self.reached = True
                if self._act is not cut:  # what is dead stays dead
                    self.__exit__()
                self._act()
            return real(*arguments, **options)

        return call


def every_moment(
    place: Callable[[], Place], calls: str, act: Callable[[Place], Callable[[], object]]
) -> Iterator[tuple[Place, Moment]]:
    """A new place for each moment, until there is no further one. `act` makes ready what happens then."""
    for number in count():
        here = place()
        moment = Moment(getattr(here, calls), number, act(here))
        yield here, moment
        if not moment.reached:
            assert number > 0, "nothing was called"
            return


def cut() -> None:
    raise Cut


@pytest.fixture(params=["local", "memory"])
def places(request: pytest.FixtureRequest, quick: Path) -> Callable[[], Place]:
    numbers = count()
    return lambda: Place(request.param, quick / str(next(numbers)))
