"""Which checkpoint an attempt goes on from, and what the phases before it have left. What comes from afar is fetched
here, or noted down to be fetched while the program starts."""

import errno
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from whistlestop.channel import layout
from whistlestop.domain.checkpoints import passed_over
from whistlestop.runner.fetching import CannotStart, Fetching, fetch, place_of

if TYPE_CHECKING:
    from pathlib import Path

    from whistlestop.blobs.manifest import Checkpoint
    from whistlestop.blobs.storage import Storage
    from whistlestop.wire.launch import Launch

_NOT_FINITE = "a value was not finite before it was saved"


class Aside(NamedTuple):
    """A checkpoint that is not gone on from. `why` need not name it."""

    path: str
    why: str
    step: int
    healthy: bool = True  # False: nothing is wrong with its files, but with what was trained

    def in_words(self, run: str) -> str:
        if self.healthy:
            return f"A checkpoint can't be used: {self.why}"
        return f"The checkpoint of step {self.step} is passed over: {self.why}. {_all_the_same(run, self.step, 'it')}"

    def once(self) -> str:
        """Its path, once, and why."""
        return self.why if self.path in self.why else f"{self.path}: {self.why}"


class Chosen(NamedTuple):
    """A checkpoint to go on from."""

    path: str  # on this machine, verified, unless `fetching`
    address: str  # where it is kept
    step: int
    id: str
    own: bool  # of this phase, not of a run that this one continues
    fetching: Fetching | None = None  # what is left to do while the program starts


class Tried(NamedTuple):
    """The storage, as it was tried before anything was trained."""

    place: str
    seconds: float
    conditional: bool

    def in_words(self) -> str:
        twice = "" if self.conditional else "; it does not refuse a name that is taken, and need not"
        took = f"{self.seconds * 1000:.0f} ms"
        return f"Checkpoints can be kept in {self.place}: written, read and removed in {took}{twice}."


class Choice(NamedTuple):
    restored: Chosen | None
    inputs: dict[str, str]  # variables
    aside: list[Aside]
    tried: Tried | None

    def news(self, run: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """What to tell of it: kind, words and data of each event."""
        if self.tried is not None:
            data = {"milliseconds": self.tried.seconds * 1000, "conditional": self.tried.conditional}
            yield "storage_ready", self.tried.in_words(), data
        for each in self.aside:
            yield "checkpoint_set_aside", each.in_words(run), {"path": each.path, "why": each.why}


def choose(launch: "Launch") -> Choice:
    """Raises CannotStart."""
    from whistlestop.blobs.storage import Fenced, StorageFailed

    aside: list[Aside] = []
    try:
        storage, tried = _open(launch)
        restored = _restored(launch, storage, aside)
        return Choice(restored, _inputs(launch, storage, aside), aside, tried)
    except Fenced as error:
        place = launch.storage or launch.checkpoints
        raise CannotStart("prepare_failed", f"The checkpoints in {place} can't be used: {error}") from error
    except (StorageFailed, OSError) as error:
        raise CannotStart.without_storage(launch, error) from error


def _open(launch: "Launch") -> "tuple[Storage, Tried | None]":
    """The fence comes first: an earlier attempt that is still alive somewhere can't add one behind our back."""
    from whistlestop.blobs.open import open_storage

    place = launch.storage or launch.checkpoints
    storage = open_storage(place, launch.storage_options)
    if launch.storage_worked and launch.storage is None and not os.path.isdir(place):
        # Not to be made anew: what was saved is on a disk that is not there.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
    if launch.kind != "train":
        return storage, None
    began = time.perf_counter()
    probe = storage.probe(launch.phase)
    tried = Tried(place, time.perf_counter() - began, probe.conditional)
    storage.open_attempt(launch.phase, launch.attempt_number, launch.attempt_id)
    return storage, tried


def _restored(launch: "Launch", storage: "Storage", aside: list[Aside]) -> Chosen | None:
    """Never a silent start from zero where checkpoints were committed before."""
    if not launch.restore:
        return None
    beside = launch.fetch_beside and launch.storage is not None
    over = launch.passed_over
    if (found := _newest(launch, storage, launch.phase, aside, over, beside=beside, whole=False)) is not None:
        _check_known(launch, aside)
        return found
    if aside or (launch.must_restore and launch.restore_from is None):
        raise CannotStart("checkpoint_unusable", _unusable(launch, aside))
    if launch.restore_from is None:
        return None
    return _verified(launch, launch.restore_from, launch.restore_options, whole=False)


def _check_known(launch: "Launch", aside: list[Aside]) -> None:
    """Each of several nodes looks at its own ranks' part: what one finds damaged, the others have to hear of first."""
    news = [each for each in aside if each.healthy and each.path not in launch.checkpoint_damaged]
    if launch.nodes > 1 and news:
        words = f"Node {launch.node} can't use a checkpoint, and the others may not know of it: {news[0].once()}."
        raise CannotStart("checkpoint_damaged", words, news)


def _unusable(launch: "Launch", aside: list[Aside]) -> str:
    poisoned = [each for each in aside if not each.healthy]
    if poisoned and len(poisoned) == len(aside):
        paths = ", ".join(each.path for each in poisoned)
        return (
            "No checkpoint of this phase is fit to go on from: a value was not finite before they were saved "
            f"({paths}). Nothing was touched. {_all_the_same(launch.run_id, poisoned[0].step)}"
        )
    whys = "".join(f" {each.once()}." for each in aside)
    instead = f" {_all_the_same(launch.run_id, poisoned[0].step, f'step {poisoned[0].step}')}" if poisoned else ""
    return (
        f"This phase has committed checkpoints, and none of them can be used.{whys} Nothing was touched: put the files "
        f"back and whistle resume {launch.run_id}, or begin at step 0: whistle resume {launch.run_id} --from-start."
        f"{instead}"
    )


def _all_the_same(run: str, step: int, what: str = "the newest") -> str:
    return f"To go on from {what} all the same: whistle continue {run} --step {step}"


def _inputs(launch: "Launch", storage: "Storage", aside: list[Aside]) -> dict[str, str]:
    """A phase that left no checkpoint gives no variable; one whose checkpoints are all damaged is an error."""
    env = {}
    for wanted in launch.inputs:
        damaged: list[Aside] = []
        variable = layout.ENV_INPUT + re.sub(r"[^A-Z0-9]", "_", wanted.phase.upper())
        if wanted.path is not None:
            env[variable] = _verified(launch, wanted.path, wanted.options).path
            continue
        found = _newest(launch, storage, wanted.phase, damaged, wanted.passed_over)
        aside += damaged
        if found is not None:
            env[variable] = found.path
        elif damaged:
            raise CannotStart(
                "checkpoint_unusable", f"No checkpoint of phase {wanted.phase} can be used: {damaged[0].once()}"
            )
    return env


def _verified(launch: "Launch", address: str, options: dict[str, str] | None, *, whole: bool = True) -> Chosen:
    from whistlestop.blobs.manifest import Damaged
    from whistlestop.blobs.open import locate
    from whistlestop.blobs.storage import Removed

    try:
        storage, checkpoint = locate(address, launch.storage_options if options is None else options)
        path = fetch(launch, storage, checkpoint, whole=whole)
    except (Damaged, Removed) as error:
        raise CannotStart(
            "checkpoint_unusable", f"The checkpoint to start from, {address}, can't be used: {error.text}"
        ) from error
    return Chosen(str(path), address, checkpoint.step, checkpoint.id, own=False)


def _newest(
    launch: "Launch",
    storage: "Storage",
    phase: str,
    aside: list[Aside],
    over: Sequence[Sequence[int]],
    *,
    beside: bool = False,
    whole: bool = True,
) -> Chosen | None:
    """`over`: what was passed over by a guard is not even looked at, so that it does not count as set aside."""
    from whistlestop.blobs.manifest import Damaged

    paths: dict[str, Path] = {}

    def get(checkpoint: "Checkpoint") -> None:
        if storage.where(checkpoint) in launch.checkpoint_damaged:
            raise Damaged(f"{storage.where(checkpoint)} was found damaged by a node of an earlier attempt")
        if beside:
            paths[checkpoint.id] = place_of(launch, checkpoint)
        else:
            paths[checkpoint.id] = fetch(launch, storage, checkpoint, whole=whole)

    def without(checkpoint: "Checkpoint") -> bool:
        return passed_over(over, attempt=checkpoint.attempt_number, step=checkpoint.step)

    found, damaged = storage.newest(phase, verify=get, without=without)
    aside += [
        Aside(storage.where(each), why if each.healthy else _NOT_FINITE, each.step, each.healthy)
        for each, why in damaged
    ]
    if found is None:
        return None
    fetching = Fetching(launch, storage, found) if beside else None
    if fetching is not None:
        fetching.announce()
    return Chosen(str(paths[found.id]), storage.where(found), found.step, found.id, own=True, fetching=fetching)
