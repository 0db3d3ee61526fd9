"""Where this program's checkpoints are, and which one it starts from. It reads; saving is in saver.py."""

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from whistlestop.blobs import staged
from whistlestop.blobs.checkpoints import Checkpoint, CheckpointStore, Damaged
from whistlestop.blobs.manifest import directory_name
from whistlestop.blobs.storage import Fenced, Removed, StorageFailed
from whistlestop.channel.control import Control
from whistlestop.channel.layout import Word
from whistlestop.channel.locks import Lock, Taken, hold
from whistlestop.domain.errors import Refused
from whistlestop.domain.ids import new_id
from whistlestop.sdk import group as words
from whistlestop.sdk.fetched import wait_until_fetched
from whistlestop.sdk.group import Group
from whistlestop.sdk.parts import RestoreFailed
from whistlestop.sdk.room import MEMORY
from whistlestop.sdk.settings import STANDALONE_ROOT, Settings, safe_name

_STAGE = ".stage-"  # where saves are handed over that are not the runner's, or that the ranks of several nodes make
_SETTLE_SECONDS = 60.0  # for the runner to be done with what an earlier process of this attempt has saved
FINISHED = "finished"  # standalone: this training came to its end, the next start is a new one


@dataclass(frozen=True)
class Place:
    store: CheckpointStore
    phase: str
    attempt_id: str
    attempt_number: int
    start: Checkpoint | None
    notes: tuple[str, ...] = ()  # what a person should know about how it was found
    standalone: bool = False
    lock: Lock | None = None  # held while this process trains here
    stage: Path | None = None  # the runner's: it makes durable what is handed over there
    seat: str = ""  # what that runner is called, where an attempt has several on one host

    def slots_directory(self) -> Path:
        """A runner's own, on each node. Without one the ranks of all nodes meet where the checkpoints are, and find it
        by the number: they don't know the id."""
        return self.stage or self.store.root / self.phase / f"{_STAGE}{self.attempt_number:09d}"

    def memory(self, group: Group | None) -> Path | None:
        """Where slots may be kept in memory. Ranks without a runner could leave it there for ever."""
        if group is not None and self.stage is None:
            return None
        seat = self.seat or self.attempt_id
        return MEMORY / f"whistle-{seat}" if seat else None

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()


def find_place(
    settings: Settings,
    *,
    checkpoints: Path | None,
    resume: str,
    group: Group | None = None,
    leads: bool = True,
    orders: Control | None = None,
) -> Place:
    """RestoreFailed when there are checkpoints and none can be used: that is never a start from step 0.

    Rank 0 looks, the others are told: two of them could see different things. `orders`: the words of a runner that can
    be told of saves.
    """
    if settings.restore is not None:
        wait_until_fetched(settings.restore)
    stage = settings.stage if orders is not None and settings.checkpoints is not None else None
    root = settings.checkpoints or checkpoints or Path(STANDALONE_ROOT) / safe_name(settings.name)
    store = CheckpointStore(root)
    try:
        if group is not None and group.world.rank > 0:
            return replace(_follow(settings, store, group), stage=stage, seat=settings.seat)
        if settings.checkpoints is not None:
            place = replace(_given(settings, store, stage, orders), stage=stage, seat=settings.seat)
        else:
            place = _standalone(store, resume=resume, lock=leads)
    except (OSError, StorageFailed, Removed) as error:
        raise RestoreFailed(f"{root} can't be searched for checkpoints: {error}") from error
    if group is not None:
        _tell(place, group)
    return place


_NONE, _GIVEN, _OWN = 0, 1, 2  # what the ranks start from: nothing, what the environment names, one of this phase


def _tell(place: Place, group: Group) -> None:
    start = place.start
    own = start is not None and start.path.parent == place.store.root / place.phase
    group.tell(
        {
            words.TRAINING: int(place.phase.removeprefix("run-")) if place.standalone else 0,
            words.ATTEMPT: place.attempt_number,
            words.START_STEP: start.step if start else 0,
            words.START_ATTEMPT: start.attempt_number if start else 0,
            words.START_REVISION: start.revision if start else 0,
            words.SERIES: int.from_bytes(os.urandom(8), "little") >> 2,
            words.PLACE_READY: 1 + (_OWN if own else _GIVEN if start else _NONE),
        }
    )


def _follow(settings: Settings, store: CheckpointStore, group: Group) -> Place:
    told = group.decided
    group.wait(lambda: told[words.PLACE_READY] > 0, "rank 0 to find the checkpoint to start from")
    standalone = settings.checkpoints is None
    phase = f"run-{told[words.TRAINING]:03d}" if standalone else settings.phase or "main"
    start = None
    if (kind := told[words.PLACE_READY] - 1) == _OWN:
        revision = told[words.START_REVISION]
        name = directory_name(told[words.START_STEP], told[words.START_ATTEMPT], revision)
        start = _load(store, store.root / phase / name)
    elif kind == _GIVEN:
        start = _load(store, settings.restore) if settings.restore is not None else None
        _check_same(start, group)
    return Place(store, phase, settings.attempt_id or "", told[words.ATTEMPT], start, standalone=standalone)


def _check_same(start: Checkpoint | None, group: Group) -> None:
    """Each node's runner fetches by itself: one may have found damaged what another could read."""
    told = group.decided
    here = (start.step, start.attempt_number, start.revision) if start is not None else None
    if here != (told[words.START_STEP], told[words.START_ATTEMPT], told[words.START_REVISION]):
        found = f"the checkpoint of step {start.step}" if start is not None else "no checkpoint"
        raise RestoreFailed(
            f"rank 0 goes on from step {told[words.START_STEP]}, and on the node of rank {group.world.rank} there is "
            f"{found}",
            hint="the run's events say what was wrong with it there; all ranks have to go on from the same one",
        )


def _given(settings: Settings, store: CheckpointStore, stage: Path | None, orders: Control | None) -> Place:
    """The runner chose and verified. Only what this very attempt has saved since may be newer."""
    if stage is not None:
        _wait_for_slots(stage)
    phase = settings.phase or "main"
    attempt_id = settings.attempt_id or new_id("a")
    stored = store.list(phase)
    number = settings.attempt_number
    if number is None:
        own = [each.attempt_number for each in stored if each.attempt_id == attempt_id]
        number = own[0] if own else max((each.attempt_number for each in stored), default=0) + 1
    start = _load(store, settings.restore) if settings.restore else None
    if stage is not None and orders is not None:
        known = [each.step for each in stored if each.attempt_id == attempt_id]
        _check_not_behind(orders, max([*known, start.step if start else -1]))
    newest = next((each for each in stored if each.attempt_id == attempt_id and each.healthy), None)
    if newest is not None and (start is None or newest.step > start.step):
        start = _verified(store, newest)
    return Place(store, phase, attempt_id, number, start)


def _check_not_behind(orders: Control, here: int) -> None:
    """Storage may be elsewhere: what this attempt has saved is not on this host then."""
    safe = orders[Word.DURABLE_STEP] - 1
    if safe > here:
        orders[Word.BEHIND] = safe + 1  # whatever a launcher makes of our end, the runner knows why
        raise RestoreFailed(
            f"step {safe} of this attempt is safe in storage, but not on this host; what is here is older",
            hint="the program was started again within its attempt; the next attempt goes on from that step",
        )


def _standalone(store: CheckpointStore, *, resume: str, lock: bool) -> Place:
    """Each training is a directory run-001, run-002, …: the newest one that is not finished goes on."""
    numbers = _trainings(store.root)
    latest = numbers[-1] if numbers else 0
    phase = f"run-{latest:03d}"
    if latest == 0 or resume == "never" or (store.root / phase / FINISHED).exists():
        if resume == "must":
            raise RestoreFailed(f"resume='must', but {store.root} holds no unfinished training")
        phase = f"run-{latest + 1:03d}"
    held = _lock(store.root / phase) if lock else None
    attempt_id = new_id("a")
    try:
        wrong = _salvage(store, phase) if lock else []
        newest, aside = _usable(store, phase)
        if newest is None and resume == "must":
            raise RestoreFailed(f"resume='must', but {store.root / phase} holds no checkpoint")
        number = max((each.attempt_number for each in store.list(phase)), default=0) + 1
        if lock:
            number = _open_attempt(store, phase, number, attempt_id)
    except BaseException:
        if held is not None:
            held.release()
        raise
    notes = (*wrong, *(f"set aside a checkpoint: {why}" for why in aside))
    return Place(store, phase, attempt_id, number, newest, notes, standalone=True, lock=held)


def _open_attempt(store: CheckpointStore, phase: str, number: int, attempt_id: str) -> int:
    """The number under which it may save. Earlier starts that never saved had one, too."""
    while True:
        try:
            store.open_attempt(phase, number, attempt_id)
        except Fenced:
            number += 1
            continue
        except OSError:  # the first save will say what is wrong with the disk
            pass
        return number


def _salvage(store: CheckpointStore, phase: str) -> list[str]:
    """What an earlier process had handed over when it died; we hold its lock, so it is gone."""
    wrong: list[str] = []
    for directory in sorted((store.root / phase).glob(f"{_STAGE}*")):
        from whistlestop.sdk.committing import salvage

        wrong += salvage(store, directory)
        for slot in staged.slots(directory):
            place = Path(os.path.realpath(slot)).parent
            if slot.is_symlink() and place.parent == MEMORY and place.name.startswith("whistle-"):
                shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)
    return wrong


def _wait_for_slots(stage: Path) -> None:
    end = time.monotonic() + _SETTLE_SECONDS
    while any(not staged.is_free(slot) for slot in staged.slots(stage)) and time.monotonic() < end:
        time.sleep(0.02)


def _usable(store: CheckpointStore, phase: str) -> tuple[Checkpoint | None, list[str]]:
    newest, aside = store.newest(phase)
    if newest is None and aside:
        raise RestoreFailed(
            f"none of the {len(aside)} checkpoints in {store.root / phase} can be used: {aside[0][1]}",
            hint="nothing was touched; move that directory away to start again from step 0",
        )
    return newest, [why for _, why in aside]


def _load(store: CheckpointStore, path: Path) -> Checkpoint:
    try:
        return store.load(path)
    except Damaged as error:
        raise RestoreFailed(f"the checkpoint to start from can't be read: {error.text}") from error


def _verified(store: CheckpointStore, checkpoint: Checkpoint) -> Checkpoint:
    try:
        store.verify(checkpoint)
    except Damaged as error:
        raise RestoreFailed(f"the newest checkpoint of this attempt is damaged: {error.text}") from error
    return checkpoint


def _trainings(root: Path) -> list[int]:
    if not root.is_dir():
        return []
    names = (each.name.removeprefix("run-") for each in root.iterdir() if each.name.startswith("run-"))
    return sorted(int(name) for name in names if name.isdecimal())


def _lock(directory: Path) -> Lock | None:
    """Hold this training; None where that can't be done. Refused while another one has it: going on from its
    checkpoints would mix two trainings, starting anew beside it would lose its progress."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return hold(directory / "lock")
    except OSError:  # the first save will say what is wrong with the disk
        return None
    except Taken:
        raise Refused(
            f"another process is training in {directory}, or another run() of this one",
            hint="end it, or give this one a name: run(name=...)",
        ) from None
