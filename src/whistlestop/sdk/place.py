"""Where this program's checkpoints are, and which one it starts from. It reads; saving is in saver.py."""

from dataclasses import dataclass
from pathlib import Path

from whistlestop.blobs.checkpoints import Checkpoint, CheckpointStore, Damaged
from whistlestop.domain.ids import new_id
from whistlestop.sdk.parts import RestoreFailed
from whistlestop.sdk.settings import STANDALONE_ROOT, Settings, safe_name

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

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


def find_place(settings: Settings, *, checkpoints: Path | None, resume: str) -> Place:
    """RestoreFailed when there are checkpoints and none can be used: that is never a start from step 0."""
    if settings.checkpoints is not None:
        return _given(settings, settings.checkpoints)
    root = checkpoints or Path(STANDALONE_ROOT) / safe_name(settings.name)
    return _standalone(CheckpointStore(root), resume=resume, lock=settings.rank == 0)


def _given(settings: Settings, root: Path) -> Place:
    """The runner chose and verified. Only what this very attempt has saved since may be newer."""
    store = CheckpointStore(root)
    phase = settings.phase or "main"
    attempt_id = settings.attempt_id or new_id("a")
    stored = store.list(phase)
    number = settings.attempt_number
    if number is None:
        own = [each.attempt_number for each in stored if each.attempt_id == attempt_id]
        number = own[0] if own else max((each.attempt_number for each in stored), default=0) + 1
    start = _load(store, settings.restore) if settings.restore else None
    newest = next((each for each in stored if each.attempt_id == attempt_id), None)
    if newest is not None and (start is None or newest.step > start.step):
        start = _verified(store, newest)
    return Place(store, phase, attempt_id, number, start)


def _standalone(store: CheckpointStore, *, resume: str, lock: bool) -> Place:
    """Each training is a directory run-001, run-002, …: the newest one that is not finished goes on."""
    numbers = _trainings(store.root)
    notes: list[str] = []
    latest = numbers[-1] if numbers else 0
    phase = f"run-{latest:03d}"
    resumable = latest > 0 and resume != "never" and not (store.root / phase / FINISHED).exists()
    if resumable and lock and not _lock(store.root / phase):
        notes.append(f"another process is training in {store.root / phase}; this one starts a new training")
        resumable = False
    if not resumable:
        if resume == "must":
            raise RestoreFailed(f"resume='must', but {store.root} holds no unfinished training")
        phase = f"run-{latest + 1:03d}"
        if lock:
            _lock(store.root / phase)
        return Place(store, phase, new_id("a"), 1, None, tuple(notes), standalone=True)
    newest, aside = store.newest(phase)
    if newest is None and aside:
        raise RestoreFailed(
            f"none of the {len(aside)} checkpoints in {store.root / phase} can be used: {aside[0][1]}",
            hint="nothing was touched; move that directory away to start again from step 0",
        )
    notes += [f"set aside a damaged checkpoint: {why}" for _, why in aside]
    if newest is None and resume == "must":
        raise RestoreFailed(f"resume='must', but {store.root / phase} holds no checkpoint")
    number = max((each.attempt_number for each in store.list(phase)), default=0) + 1
    return Place(store, phase, new_id("a"), number, newest, tuple(notes), standalone=True)


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


_locks: list[object] = []  # held until the process ends


def _lock(directory: Path) -> bool:
    """Hold this training for this process. A system that can't lock does not stop anybody."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = (directory / "lock").open("a")
    except OSError:  # the first save will say what is wrong with the disk
        return True
    try:
        if fcntl is not None:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        return False
    _locks.append(handle)
    return True
