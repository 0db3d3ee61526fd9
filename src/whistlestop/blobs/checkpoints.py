"""Checkpoints in a directory: written aside under a name of their own, then given their name in one move.

    ROOT/PHASE/step-000000000500-2/         …files…   manifest.json
    ROOT/PHASE/step-000000000500-2.r1/      the same attempt saved this step again: this one counts
    ROOT/PHASE/.step-000000000500-2.HOST.PID.RANDOM/    being written, by that process alone
    ROOT/PHASE/.trash-1763290000-step-000000000500-2/   removed, and kept for a day

What has no manifest, or not yet its name, does not exist: a save may be cut after any single write and the one before
it still holds. Two processes that save the same step never touch each other's files. A file that an earlier checkpoint
of the phase has, too, is linked to, not written again.
"""

import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whistlestop.blobs import files
from whistlestop.blobs.manifest import (
    DIRECTORY,
    MANIFEST,
    RANKS,
    STAGE,
    TRASH,
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
from whistlestop.blobs.staged import Staged
from whistlestop.blobs.storage import FENCE, Committed, Probe, Removed, Storage, StorageFailed
from whistlestop.domain.errors import WhistleError
from whistlestop.domain.ids import new_id

__all__ = ["BadName", "Checkpoint", "CheckpointStore", "CheckpointWriter", "Damaged", "FileEntry", "SaveFailed"]

_LINKED = 64 << 10  # smaller files are written: a link saves nothing
# What says something about the file. All else (too many open files, no memory, a share that is away) says nothing.
_DAMAGE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG, errno.EIO)
_LOOK_BACK = 2  # checkpoints in which a file that has not changed is looked for


class CheckpointStore(Storage):
    """All checkpoints of one run, on a file system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._distrusted: set[str] = set()  # names

    def where(self, checkpoint: Checkpoint) -> str:
        return str(checkpoint.path)

    # Writing.

    def probe(self, phase: str) -> Probe:
        directory = self.root / check_phase(phase)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            files.write(path := directory / f".probe-{os.getpid()}-{os.urandom(4).hex()}", b"probe")
            path.unlink()
        except OSError as error:
            raise StorageFailed(f"nothing can be written in {directory}: {error.strerror}") from error
        return Probe(conditional=True)

    def begin(self, phase: str, step: int, attempt_number: int, attempt_id: str) -> "CheckpointWriter":
        """A place to write to, that nobody else writes to. It counts from `commit` on."""
        stage = self.root / check_phase(phase) / _stage_name(step, attempt_number)
        try:
            stage.mkdir(parents=True)
            files.sync_directory(self.root)
        except OSError as error:
            raise SaveFailed(f"step {step} can't be saved in {stage.parent}: {error}") from error
        return CheckpointWriter(stage, phase, step, attempt_number, attempt_id)

    def commit(self, staged: Staged, *, progress: Callable[[int], None] = lambda written: None) -> Committed:
        began = time.perf_counter()
        try:
            self.check_fence(staged.phase, staged.attempt_number)
            try:
                checkpoint, written = self._write(staged, self._known(staged.phase), progress)
            except ReadsOtherwise:  # a file that was linked to is not what it was: this one stands by itself
                checkpoint, written = self._write(staged, {}, progress)
        except OSError as error:
            raise SaveFailed(f"step {staged.step} of {staged.phase} could not be saved: {error}") from error
        return Committed(checkpoint, written, time.perf_counter() - began)

    def _write(
        self, staged: Staged, known: Mapping[tuple[int, str], Path], progress: Callable[[int], None]
    ) -> tuple[Checkpoint, int]:
        writer = self.begin(staged.phase, staged.step, staged.attempt_number, staged.attempt_id)
        try:
            digests, written = files.write_pieces(staged, writer.path, known, progress)
            return writer.commit(staged.meta, expected=digests, fence=self.check_fence), written
        finally:
            writer.discard()

    def _known(self, phase: str) -> Mapping[tuple[int, str], Path]:
        """Files of the newest checkpoints by size and hash. They were read back when they were written."""
        return {
            (entry.size, entry.sha256): checkpoint.path / name
            for checkpoint in reversed(self.list(phase)[:_LOOK_BACK])
            if checkpoint.path.name not in self._distrusted
            for name, entry in checkpoint.files.items()
            if entry.size >= _LINKED
        }

    def distrust(self, address: str) -> None:
        self._distrusted.add(address.rstrip("/").rpartition("/")[2])

    def ranks_stage(self, phase: str, step: int, attempt_number: int) -> Path:
        """Where each rank lays its own part of a save, for the one that commits it."""
        return self.root / check_phase(phase) / ranks_name(step, attempt_number)

    # Reading.

    def verify(self, checkpoint: Checkpoint) -> None:
        self.fetch(checkpoint, checkpoint.path)

    def fetch(self, checkpoint: Checkpoint, into: Path) -> Path:
        """It is on this machine already."""
        place = self._place(checkpoint)

        def check(each: tuple[str, FileEntry]) -> None:
            name, entry = each
            try:
                size, digest = files.read(place, check_name(name))
            except (OSError, BadName) as error:
                raise _unreadable(place, name, error) from error
            if size != entry.size:
                raise Damaged(f"{name} of {place} has {size} bytes instead of {entry.size}")
            if digest != entry.sha256:
                raise Damaged(f"{name} of {place} has changed since it was saved")

        files.in_threads(check, checkpoint.files.items(), checkpoint.bytes)
        return place

    def load(self, path: Path) -> Checkpoint:
        """The checkpoint in a directory, by its manifest alone."""
        try:
            return decode((path / MANIFEST).read_bytes(), path)
        except OSError as error:
            raise Damaged(f"{path / MANIFEST} can't be read: {error}") from error

    def open_file(self, checkpoint: Checkpoint, name: str) -> Iterator[bytes]:
        entry = checkpoint.files.get(name)
        if entry is None:
            raise BadName(f"{checkpoint.path} has no file {name}")
        place = self._place(checkpoint)
        try:
            yield from files.stream(place, check_name(name), entry)
        except OSError as error:
            raise _unreadable(place, name, error) from error

    def _place(self, checkpoint: Checkpoint) -> Path:
        """Where its files are now."""
        if not (checkpoint.path / MANIFEST).exists():
            for path, match in self._matching(checkpoint.phase, TRASH):
                if match[2] == checkpoint.path.name:
                    return path
        return checkpoint.path

    # Removing.

    def discard(self, checkpoint: Checkpoint, now: float) -> None:
        target = checkpoint.path.with_name(f".trash-{int(now)}-{checkpoint.path.name}")
        try:
            os.rename(self._own(checkpoint), target)
        except FileNotFoundError:
            return
        files.sync_directory(target.parent)

    def trashed(self, phase: str) -> Sequence[tuple[Checkpoint, float]]:
        found = []
        for path, match in self._matching(phase, TRASH):
            try:
                data = (path / MANIFEST).read_bytes()
                found.append((decode(data, path.with_name(match[2])), float(match[1])))
            except (OSError, Damaged):  # nobody can have it back; purge takes it
                continue
        return found

    def recover(self, checkpoint: Checkpoint) -> None:
        self._own(checkpoint)
        for path, match in self._matching(checkpoint.phase, TRASH):
            if match[2] == checkpoint.path.name:
                os.rename(path, checkpoint.path)
                files.sync_directory(path.parent)
                return
        if not (checkpoint.path / MANIFEST).exists():
            raise Damaged(f"{checkpoint.path} was removed for good")

    def purge(self, phase: str, before: float) -> int:
        gone = [path for path, match in self._matching(phase, TRASH) if float(match[1]) < before]
        for path in gone:
            _remove(path)
        return len(gone)

    def remove(self, checkpoint: Checkpoint) -> None:
        """For good. The manifest first: what is half deleted must not look complete. Twice is not an error."""
        _remove(self._own(checkpoint))

    def remove_all(self) -> None:
        for manifest in list(self.root.glob(f"*/*/{MANIFEST}")):
            manifest.unlink(missing_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)

    def sweep(self, phase: str, attempt_number: int) -> int:
        """Remove what saves of earlier attempts, and of ended processes of this one, left unfinished.

        Earlier attempts are over when a later one runs. Another process of this attempt may be saving just now: its
        files go only if it was on this machine and has ended; if that can't be told, the next attempt takes them.
        """
        counts, fence = self._counts(phase), self._fence(phase)
        left: list[Path] = []
        for path, match in self._matching(phase, DIRECTORY):
            number = int(match[2])
            if number <= attempt_number and not ((path / MANIFEST).exists() and counts(path.name, number)):
                left.append(path)
        left += [path for path, match in self._matching(phase, RANKS) if int(match[2]) < attempt_number]
        for path, match in self._matching(phase, STAGE):
            number = int(match[2])
            if number < attempt_number or (number == attempt_number and _ended(match[3], int(match[4]))):
                left.append(path)
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        for path, match in self._matching(phase, FENCE):
            if fence is not None and int(match[1]) < fence.attempt_number:
                path.unlink(missing_ok=True)
        return len(left)

    # How it is done.

    def _names(self, phase: str) -> Sequence[str]:
        found = [path.name for path, _ in self._matching(phase, DIRECTORY) if (path / MANIFEST).exists()]
        return found + [path.name for path, _ in self._matching(phase, FENCE)]

    def _manifest(self, phase: str, name: str) -> tuple[bytes, Path]:
        path = self.root / phase / name
        try:
            return (path / MANIFEST).read_bytes(), path
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unreadable(path, MANIFEST, error) from error

    def _read(self, phase: str, name: str) -> bytes:
        return (self.root / phase / name).read_bytes()

    def _create(self, phase: str, name: str, data: bytes) -> bool:
        target = self.root / check_phase(phase) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        making = target.with_name(f".{name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            files.write(making, data)
            os.link(making, target)
        except FileExistsError:
            return False
        finally:
            making.unlink(missing_ok=True)
        files.sync_directory(target.parent)
        return True

    def _own(self, checkpoint: Checkpoint) -> Path:
        path = checkpoint.path
        if path.parent.parent != self.root or not DIRECTORY.fullmatch(path.name):
            raise BadName(f"{path} is not a checkpoint of {self.root}")
        return path

    def _matching(self, phase: str, pattern: re.Pattern[str]) -> Sequence[tuple[Path, re.Match[str]]]:
        try:
            names = os.listdir(self.root / check_phase(phase))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [(self.root / phase / name, match) for name in names if (match := pattern.fullmatch(name))]


class ReadsOtherwise(SaveFailed):
    """What is on the disk is not what was written."""


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
            files.write(target, data)
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

    def commit(
        self,
        meta: Mapping[str, Any],
        *,
        expected: Mapping[str, str] | None = None,
        fence: Callable[[str, int], None] = lambda phase, attempt_number: None,
    ) -> Checkpoint:
        """Make it durable, then make it count. SaveFailed leaves nothing that could be taken for a checkpoint.

        `expected`: the hashes of what was meant to be written; what is read back has to have the same. `fence` is
        asked last of all.
        """
        try:
            found = self._read_back()
            self._compare(found, expected)
            fence(self._phase, self._attempt_number)
            target, revision = self._free_name()
            checkpoint = Checkpoint(
                id=new_id("c"),
                phase=self._phase,
                step=self._step,
                attempt_number=self._attempt_number,
                attempt_id=self._attempt_id,
                path=target,
                at=time.time(),
                bytes=sum(entry.size for entry in found.values()),
                files=found,
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

    def _read_back(self) -> dict[str, FileEntry]:
        """Every file synced, and read from where it is now. Its directories synced behind it."""
        names: list[str] = []
        directories: list[Path] = []
        for directory, _, inside in os.walk(self.path, topdown=False):
            directories.append(Path(directory))
            names += [(Path(directory) / name).relative_to(self.path).as_posix() for name in inside]
        found: dict[str, FileEntry] = {}

        def look(name: str) -> None:
            try:
                found[name] = FileEntry(*files.read(self.path, check_name(name), sync=True))
            except BadName as error:
                raise SaveFailed(error.text) from error

        files.in_threads(look, names, files.LARGE)
        for path in directories:
            files.sync_directory(path)
        return dict(sorted(found.items()))

    def _compare(self, found: Mapping[str, FileEntry], expected: Mapping[str, str] | None) -> None:
        if expected is None:
            return
        for name in sorted({*found, *expected}):
            if name not in found or name not in expected or found[name].sha256 != expected[name]:
                raise ReadsOtherwise(f"{name} of step {self._step} reads back as something else than what was written")

    def _free_name(self) -> tuple[Path, int]:
        """Names are never used again: what has one may be in use, or half removed."""
        name = directory_name(self._step, self._attempt_number)
        revisions = [
            int(match[3] or 0)
            for each in os.listdir(self.path.parent)
            if (match := DIRECTORY.fullmatch(trashed[2] if (trashed := TRASH.fullmatch(each)) else each))
            and (match[0] == name or match[0].startswith(f"{name}.r"))
        ]
        revision = max(revisions, default=-1) + 1
        return self.path.parent / directory_name(self._step, self._attempt_number, revision), revision

    def _publish(self, manifest: bytes, target: Path) -> None:
        files.write(self.path / MANIFEST, manifest)
        files.sync_directory(self.path)
        # Moving a directory over one that holds something is refused by the system: another writer was quicker.
        os.rename(self.path, target)
        self.path = target
        files.sync_directory(target.parent)

    def _target(self, name: str) -> Path:
        return self.path / check_name(name)

    def _failed(self, error: Exception) -> SaveFailed:
        self.discard()
        return SaveFailed(f"step {self._step} of {self._phase} could not be saved in {self.path}: {error}")


def _open_up(path: Path) -> None:
    """A copy has the modes of its source; a directory without write permission could never be removed again."""
    for directory, _, names in os.walk(path):
        for name in ("", *names):
            each = os.path.join(directory, name)
            if not os.path.islink(each):
                os.chmod(each, os.stat(each).st_mode | (0o600 if name else 0o700))


def _unreadable(place: Path, name: str, error: Exception) -> WhistleError:
    """What it means that a file of a checkpoint can't be read."""
    if isinstance(error, OSError):
        if error.errno not in _DAMAGE:
            return StorageFailed(f"{name} of {place} can't be read just now: {error}")
        if not (place / MANIFEST).exists():
            return Removed(f"{place} was removed while it was read")
    return Damaged(f"{name} of {place} can't be read: {error}")


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
    files.sync_directory(path)
    shutil.rmtree(path)
