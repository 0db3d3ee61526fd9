"""Checkpoints in a directory: written aside under a name of their own, then given their name in one move.

    ROOT/PHASE/step-000000000500-2/         …files…   manifest.json
    ROOT/PHASE/step-000000000500-2.r1/      the same attempt saved this step again: this one counts
    ROOT/PHASE/.step-000000000500-2.HOST.PID.RANDOM/    being written, by that process alone

What has no manifest, or not yet its name, does not exist: a save may be cut after any single write and the one before
it still holds. Two processes that save the same step never touch each other's files.
"""

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whistlestop.blobs.manifest import (
    DIRECTORY,
    MANIFEST,
    RANKS,
    STAGE,
    BadName,
    Checkpoint,
    Damaged,
    FileEntry,
    SaveFailed,
    check_name,
    check_phase,
    decode,
    directory_name,
    encode,
    ranks_name,
)
from whistlestop.domain.ids import new_id

__all__ = ["BadName", "Checkpoint", "CheckpointStore", "CheckpointWriter", "Damaged", "FileEntry", "SaveFailed"]

_CHUNK = 1 << 20
_WRITE_ONCE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


class CheckpointStore:
    """All checkpoints of one run, on a file system."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def begin(self, phase: str, step: int, attempt_number: int, attempt_id: str) -> "CheckpointWriter":
        """A place to write to, that nobody else writes to. It counts from `commit` on."""
        stage = self.root / check_phase(phase) / _stage_name(step, attempt_number)
        try:
            stage.mkdir(parents=True)
            _sync_directory(self.root)
        except OSError as error:
            raise SaveFailed(f"step {step} can't be saved in {stage.parent}: {error}") from error
        return CheckpointWriter(stage, phase, step, attempt_number, attempt_id)

    def ranks_stage(self, phase: str, step: int, attempt_number: int) -> Path:
        """Where each rank lays its own part of a save, for the one that commits it."""
        return self.root / check_phase(phase) / ranks_name(step, attempt_number)

    def list(self, phase: str) -> list[Checkpoint]:
        """Those with a readable manifest, newest first by step, attempt and revision. Their files are not looked at."""
        return [found for found, why in self._all(phase) if why is None]

    def newest(self, phase: str) -> tuple[Checkpoint | None, Sequence[tuple[Checkpoint, str]]]:
        """The newest one that verifies, and the newer ones that had to be set aside, each with why."""
        aside: list[tuple[Checkpoint, str]] = []
        for found, why in self._all(phase):
            if why is None and not found.healthy:
                why = f"{found.path}: a value was not finite before it was saved"
            if why is None:
                try:
                    self.verify(found)
                except Damaged as error:
                    why = error.text
            if why is None:
                return found, aside
            aside.append((found, why))
        return None, aside

    def verify(self, checkpoint: Checkpoint) -> None:
        """Read every file. Damaged, with words, unless all are there with the size and hash of the manifest."""
        for name, entry in checkpoint.files.items():
            try:
                size, digest = _read(checkpoint.path, check_name(name))
            except (OSError, BadName) as error:
                raise Damaged(f"{name} of {checkpoint.path} can't be read: {error}") from error
            if size != entry.size:
                raise Damaged(f"{name} of {checkpoint.path} has {size} bytes instead of {entry.size}")
            if digest != entry.sha256:
                raise Damaged(f"{name} of {checkpoint.path} has changed since it was saved")

    def load(self, path: Path) -> Checkpoint:
        """The checkpoint in a directory, by its manifest alone."""
        try:
            return decode((path / MANIFEST).read_bytes(), path)
        except OSError as error:
            raise Damaged(f"{path / MANIFEST} can't be read: {error}") from error

    def remove(self, checkpoint: Checkpoint) -> None:
        """The manifest first: what is half deleted must not look complete. Removing it twice is not an error."""
        inside = checkpoint.path.parent.parent == self.root and DIRECTORY.fullmatch(checkpoint.path.name)
        if not inside:
            raise BadName(f"{checkpoint.path} is not a checkpoint of {self.root}")
        _remove(checkpoint.path)

    def remove_all(self) -> None:
        """Everything of this run: every manifest before any data."""
        for manifest in list(self.root.glob(f"*/*/{MANIFEST}")):
            manifest.unlink(missing_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)

    def sweep(self, phase: str, attempt_number: int) -> int:
        """Remove what saves of earlier attempts, and of ended processes of this one, left unfinished.

        Earlier attempts are over when a later one runs. Another process of this attempt may be saving just now: its
        files go only if it was on this machine and has ended; if that can't be told, the next attempt takes them.
        """
        left = [path for path, _, number, _ in self._directories(phase) if number <= attempt_number]
        left = [path for path in left if not (path / MANIFEST).exists()]
        left += [path for path, match in self._matching(phase, RANKS) if int(match[2]) < attempt_number]
        for path, match in self._matching(phase, STAGE):
            number = int(match[2])
            if number < attempt_number or (number == attempt_number and _ended(match[3], int(match[4]))):
                left.append(path)
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        return len(left)

    def _all(self, phase: str) -> Iterator[tuple[Checkpoint, str | None]]:
        """Newest first. Where a manifest is there but can't be read: a stand-in, and why."""
        for path, step, number, revision in self._directories(phase):
            if not (path / MANIFEST).exists():
                continue
            try:
                found = self.load(path)
                if found.phase != phase:
                    raise Damaged(f"{path / MANIFEST} belongs to phase {found.phase}")
                yield found, None
            except Damaged as error:
                yield Checkpoint(path.name, phase, step, number, "", path, 0.0, 0, {}, {}, revision), error.text

    def _directories(self, phase: str) -> Sequence[tuple[Path, int, int, int]]:
        found = [
            (path, int(match[1]), int(match[2]), int(match[3] or 0)) for path, match in self._matching(phase, DIRECTORY)
        ]
        return sorted(found, key=lambda each: each[1:], reverse=True)

    def _matching(self, phase: str, pattern: re.Pattern[str]) -> Sequence[tuple[Path, re.Match[str]]]:
        try:
            names = os.listdir(self.root / check_phase(phase))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [(self.root / phase / name, match) for name in names if (match := pattern.fullmatch(name))]


class CheckpointWriter:
    """One save. Add files, or write them into `path` directly; `commit` takes all that is there, and moves it."""

    def __init__(self, path: Path, phase: str, step: int, attempt_number: int, attempt_id: str) -> None:
        self.path = path  # our own until `commit` has given it its name
        self._phase = phase
        self._step = step
        self._attempt_number = attempt_number
        self._attempt_id = attempt_id
        self._over = False  # committed or given up

    def add_bytes(self, name: str, data: bytes) -> None:
        target = self._target(name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(target, data)
        except OSError as error:
            raise self._failed(error) from error

    def add_file(self, name: str, source: Path) -> None:
        target = self._target(name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        except OSError as error:
            raise self._failed(error) from error

    def add_tree(self, name: str, source: Path) -> None:
        """A directory with all it holds, as `name`. Links are followed: a checkpoint stands by itself."""
        target = self._target(name)
        try:
            try:
                shutil.copytree(source, target)
            finally:
                _open_up(target)
        except (OSError, shutil.Error) as error:
            raise self._failed(error) from error

    def move_in(self, name: str, source: Path) -> None:
        """A directory on the same file system, as `name`; it is not there any more afterwards."""
        target = self._target(name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(source, target)
        except OSError as error:
            raise self._failed(error) from error

    def commit(self, meta: Mapping[str, Any]) -> Checkpoint:
        """Make it durable, then make it count. SaveFailed leaves nothing that could be taken for a checkpoint."""
        try:
            files = self._hash_and_sync()
            target, revision = self._free_name()
            checkpoint = Checkpoint(
                id=new_id("c"),
                phase=self._phase,
                step=self._step,
                attempt_number=self._attempt_number,
                attempt_id=self._attempt_id,
                path=target,
                at=time.time(),
                bytes=sum(entry.size for entry in files.values()),
                files=files,
                meta=dict(meta),
                revision=revision,
            )
            self._publish(encode(checkpoint), target)
        except SaveFailed:
            self.discard()
            raise
        except OSError as error:
            raise self._failed(error) from error
        self._over = True
        return checkpoint

    def discard(self) -> None:
        """Give the space back. Never raises, and never touches what was committed: by now it may be another's."""
        if self._over:
            return
        self._over = True
        try:
            _remove(self.path)
        except OSError:
            pass

    def _hash_and_sync(self) -> dict[str, FileEntry]:
        files: dict[str, FileEntry] = {}
        for directory, _, names in os.walk(self.path, topdown=False):
            for name in sorted(names):
                relative = (Path(directory) / name).relative_to(self.path).as_posix()
                try:
                    files[relative] = FileEntry(*_read(self.path, check_name(relative), sync=True))
                except BadName as error:
                    raise SaveFailed(error.text) from error
            _sync_directory(Path(directory))
        return dict(sorted(files.items()))

    def _free_name(self) -> tuple[Path, int]:
        """Names are never used again: what has one may be in use, or half removed."""
        name = directory_name(self._step, self._attempt_number)
        revisions = [
            int(match[3] or 0)
            for each in os.listdir(self.path.parent)
            if (match := DIRECTORY.fullmatch(each)) and (each == name or each.startswith(f"{name}.r"))
        ]
        revision = max(revisions, default=-1) + 1
        return self.path.parent / directory_name(self._step, self._attempt_number, revision), revision

    def _publish(self, manifest: bytes, target: Path) -> None:
        _write(self.path / MANIFEST, manifest)
        _sync_directory(self.path)
        # Moving a directory over one that holds something is refused by the system: another writer was quicker.
        os.rename(self.path, target)
        self.path = target
        _sync_directory(target.parent)

    def _target(self, name: str) -> Path:
        return self.path / check_name(name)

    def _failed(self, error: Exception) -> SaveFailed:
        self.discard()
        return SaveFailed(f"step {self._step} of {self._phase} could not be saved in {self.path}: {error}")


def _write(path: Path, data: bytes) -> None:
    handle = os.open(path, _WRITE_ONCE, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(root: Path, name: str, *, sync: bool = False) -> tuple[int, str]:
    """Size and hash. Only plain files inside `root`: a link could lead anywhere."""
    import hashlib

    path = root / name
    if os.path.realpath(path) != os.path.join(os.path.realpath(root), name):
        raise BadName(f"{name} leads out of the checkpoint through a link")
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise BadName(f"{name} is not a plain file")
        digest, size = hashlib.sha256(), 0
        while chunk := os.read(handle, _CHUNK):
            digest.update(chunk)
            size += len(chunk)
        if sync:
            os.fsync(handle)
        return size, digest.hexdigest()
    finally:
        os.close(handle)


def _open_up(path: Path) -> None:
    """A copy has the modes of its source; a directory without write permission could never be removed again."""
    for directory, _, names in os.walk(path):
        for name in ("", *names):
            each = os.path.join(directory, name)
            if not os.path.islink(each):
                os.chmod(each, os.stat(each).st_mode | (0o600 if name else 0o700))


def _stage_name(step: int, attempt_number: int) -> str:
    return f".{directory_name(step, attempt_number)}.{_host()}.{os.getpid()}.{os.urandom(4).hex()}"


def _host() -> str:
    return re.sub("[^A-Za-z0-9-]", "-", os.uname().nodename) if hasattr(os, "uname") else ""


def _ended(host: str, process: int) -> bool:
    """Known to have ended. On another machine that can't be told."""
    if not host or host != _host():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def _remove(path: Path) -> None:
    if not path.exists():
        return
    (path / MANIFEST).unlink(missing_ok=True)
    _sync_directory(path)
    shutil.rmtree(path)


def _sync_directory(path: Path) -> None:
    if os.name == "nt":  # directories can't be opened there
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
