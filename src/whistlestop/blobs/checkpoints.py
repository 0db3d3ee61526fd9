"""Checkpoints in a directory: write-once files, then one manifest that is put last and never replaced.

    ROOT/PHASE/step-000000000500-2/   …files…   manifest.json

What has no manifest does not exist: a save may be cut after any single write and the one before it still holds.
"""

import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whistlestop.blobs.manifest import (
    DIRECTORY,
    MANIFEST,
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
        """A place to write to. SaveFailed if this attempt has committed this step already."""
        path = self.root / check_phase(phase) / directory_name(step, attempt_number)
        try:
            if (path / MANIFEST).exists():
                raise SaveFailed(f"step {step} is saved already, in {path}")
            if path.exists():  # left by a save of this same attempt that did not finish
                shutil.rmtree(path)
            path.mkdir(parents=True)
            _sync_directory(self.root)
        except OSError as error:
            raise SaveFailed(f"step {step} can't be saved in {path}: {error}") from error
        return CheckpointWriter(path, phase, step, attempt_number, attempt_id)

    def list(self, phase: str) -> list[Checkpoint]:
        """Those with a readable manifest, newest first by step, then by attempt. Their files are not looked at."""
        return [found for found, why in self._all(phase) if why is None]

    def newest(self, phase: str) -> tuple[Checkpoint | None, Sequence[tuple[Checkpoint, str]]]:
        """The newest one that verifies, and the newer ones that had to be set aside, each with why."""
        aside: list[tuple[Checkpoint, str]] = []
        for found, why in self._all(phase):
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
        """Remove what saves of this attempt and of earlier ones left without a manifest. Only between saves."""
        swept = 0
        for path, _, number in self._directories(phase):
            if number <= attempt_number and not (path / MANIFEST).exists():
                shutil.rmtree(path, ignore_errors=True)
                swept += 1
        return swept

    def _all(self, phase: str) -> Iterator[tuple[Checkpoint, str | None]]:
        """Newest first. Where a manifest is there but can't be read: a stand-in, and why."""
        for path, step, number in self._directories(phase):
            if not (path / MANIFEST).exists():
                continue
            try:
                found = self.load(path)
                if found.phase != phase:
                    raise Damaged(f"{path / MANIFEST} belongs to phase {found.phase}")
                yield found, None
            except Damaged as error:
                yield Checkpoint(path.name, phase, step, number, "", path, 0.0, 0, {}, {}), error.text

    def _directories(self, phase: str) -> Sequence[tuple[Path, int, int]]:
        try:
            names = os.listdir(self.root / check_phase(phase))
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = [
            (self.root / phase / name, int(match[1]), int(match[2]))
            for name in names
            if (match := DIRECTORY.fullmatch(name))
        ]
        return sorted(found, key=lambda each: each[1:], reverse=True)


class CheckpointWriter:
    """One save. Add files, or write them into `path` directly; `commit` takes all that is there."""

    def __init__(self, path: Path, phase: str, step: int, attempt_number: int, attempt_id: str) -> None:
        self.path = path
        self._phase = phase
        self._step = step
        self._attempt_number = attempt_number
        self._attempt_id = attempt_id

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
            shutil.copytree(source, target)
        except (OSError, shutil.Error) as error:
            raise self._failed(error) from error

    def commit(self, meta: Mapping[str, Any]) -> Checkpoint:
        """Make it durable, then make it count. SaveFailed leaves nothing that could be taken for a checkpoint."""
        try:
            files = self._hash_and_sync()
            checkpoint = Checkpoint(
                id=new_id("c"),
                phase=self._phase,
                step=self._step,
                attempt_number=self._attempt_number,
                attempt_id=self._attempt_id,
                path=self.path,
                at=time.time(),
                bytes=sum(entry.size for entry in files.values()),
                files=files,
                meta=dict(meta),
            )
            self._publish(encode(checkpoint))
        except SaveFailed:
            self.discard()
            raise
        except OSError as error:
            raise self._failed(error) from error
        return checkpoint

    def discard(self) -> None:
        """Give the space back. Never raises: what stays has no manifest."""
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

    def _publish(self, manifest: bytes) -> None:
        making = self.path / f"{MANIFEST}.making"
        _write(making, manifest)
        _link(making, self.path / MANIFEST)
        _sync_directory(self.path)
        _sync_directory(self.path.parent)

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


def _link(source: Path, target: Path) -> None:
    """Give a finished file its name, unless something has that name already."""
    try:
        os.link(source, target)
        os.unlink(source)
    except (PermissionError, NotImplementedError):  # no hard links on this file system
        if target.exists():
            raise FileExistsError(f"{target} exists") from None
        os.rename(source, target)


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
