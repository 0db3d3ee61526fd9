"""Checkpoints in a directory: written aside under a name of their own, then given their name in one move.

    ROOT/PHASE/step-000000000500-2/         …files…   manifest.json
    ROOT/PHASE/step-000000000500-2.r1/      the same attempt saved this step again: this one counts
    ROOT/PHASE/.step-000000000500-2.HOST.PID.RANDOM/    being written, by that process alone
    ROOT/PHASE/.trash-1763290000-step-000000000500-2/   removed, and kept for a day
    ROOT/PHASE/.share-STEP-ATTEMPT-SAVE.NODE/           what a node has brought of a save that several make

What has no manifest, or not yet its name, does not exist: a save may be cut after any single write and the one before
it still holds. Two processes that save the same step never touch each other's files. A file that an earlier checkpoint
of the phase has, too, is linked to, not written again.
"""

import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from whistlestop.blobs import files, shares
from whistlestop.blobs.manifest import (
    DIRECTORY,
    MANIFEST,
    STAGE,
    TRASH,
    BadName,
    Checkpoint,
    Damaged,
    FileEntry,
    SaveFailed,
    check_name,
    check_names,
    check_phase,
    decode,
)
from whistlestop.blobs.shares import Shares, is_left, nodes_of, share_name
from whistlestop.blobs.staged import Staged
from whistlestop.blobs.storage import CLAIM, DAY, FENCE, Committed, Fence, Probe, Removed, Storage, StorageFailed
from whistlestop.blobs.writer import CheckpointWriter, ReadsOtherwise, has_ended, remove, stage_name
from whistlestop.domain.errors import WhistleError

__all__ = ["BadName", "Checkpoint", "CheckpointStore", "CheckpointWriter", "Damaged", "FileEntry", "SaveFailed"]

_LOOK_BACK = 2  # checkpoints in which a file that has not changed is looked for
_SLOTS = re.compile(r"\.stage-(.*\D.*)")  # of ranks on several nodes; those with plain numbers have no runner
_SHARE = re.compile(rf"\.share-({shares.NAME.pattern})")
_SCRATCH = re.compile(r"\.(?:probe|claim|fence)-.+")  # gone in a moment, unless the machine went first
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


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
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageFailed(f"nothing can be written in {directory}: {error.strerror}") from error
        return Probe(conditional=True)

    def begin(self, phase: str, step: int, attempt_number: int, attempt_id: str) -> "CheckpointWriter":
        """A place to write to, that nobody else writes to. It counts from `commit` on."""
        stage = self.root / check_phase(phase) / stage_name(step, attempt_number)
        try:
            stage.mkdir(parents=True)
            files.sync_directory(self.root)
        except OSError as error:
            raise SaveFailed(f"step {step} can't be saved in {stage.parent}: {error}") from error
        return CheckpointWriter(stage, phase, step, attempt_number, attempt_id)

    def commit(self, staged: Staged, *, cancelled: Callable[[], bool] = lambda: False) -> Committed:
        began = time.perf_counter()
        check_names(piece.name for piece in staged.pieces)
        try:
            self.check_fence(staged.phase, staged.attempt_number)
            try:
                checkpoint, written = self._write(staged, self._known(staged.phase), cancelled)
            except ReadsOtherwise:  # a file that was linked to is not what it was: this one stands by itself
                checkpoint, written = self._write(staged, {}, cancelled)
            self.check_counts(staged.phase, staged.attempt_number, checkpoint.path.name)
        except OSError as error:
            raise SaveFailed(f"step {staged.step} of {staged.phase} could not be saved: {error}") from error
        return Committed(checkpoint, written, time.perf_counter() - began)

    def _write(
        self, staged: Staged, known: Mapping[tuple[int, str], Path], cancelled: Callable[[], bool]
    ) -> tuple[Checkpoint, int]:
        writer = self.begin(staged.phase, staged.step, staged.attempt_number, staged.attempt_id)
        try:
            digests, written = files.write_pieces(staged, writer.path, known)
            check = partial(self._check_wanted, staged, cancelled)
            return writer.commit(staged.meta, expected=digests, check=check), written
        finally:
            writer.discard()

    # Several nodes.

    def lay_share(self, staged: Staged, *, cancelled: Callable[[], bool] = lambda: False) -> int:
        check_names(piece.name for piece in staged.pieces)
        target = self._share(staged)
        try:
            self.check_fence(staged.phase, staged.attempt_number)
            if (target / MANIFEST).exists():
                return 0
            try:
                return self._write_share(staged, self._known(staged.phase), target, cancelled)
            except ReadsOtherwise:
                return self._write_share(staged, {}, target, cancelled)
        except OSError as error:
            raise SaveFailed(f"this node's part of step {staged.step} could not be saved: {error}") from error

    def _write_share(
        self, staged: Staged, known: Mapping[tuple[int, str], Path], target: Path, cancelled: Callable[[], bool]
    ) -> int:
        writer = self.begin(staged.phase, staged.step, staged.attempt_number, staged.attempt_id)
        try:
            digests, written = files.write_pieces(staged, writer.path, known)

            def describe(found: Mapping[str, FileEntry]) -> bytes:
                return shares.encode(shares.brought_of(staged, found))

            writer.bring(target, describe, expected=digests, check=partial(self._check_wanted, staged, cancelled))
            return written
        finally:
            writer.discard()

    def refuse_share(self, staged: Staged, why: str) -> None:
        assert staged.share is not None
        self.check_fence(staged.phase, staged.attempt_number)
        refused = shares.encode(shares.Brought(staged.share.node, refused=why))
        writer = self.begin(staged.phase, staged.step, staged.attempt_number, staged.attempt_id)
        try:
            writer.bring(self._share(staged), lambda found: refused)
        finally:
            writer.discard()

    def shares(self, staged: Staged) -> Shares:
        assert staged.share is not None
        names = {match[1]: path for path, match in self._matching(staged.phase, _SHARE)}
        own, passed = nodes_of(staged, names)
        found = {node: shares.decode((names[name] / MANIFEST).read_bytes(), name) for node, name in own.items()}
        return Shares(staged.share.nodes, found, passed)

    def join(self, staged: Staged, shares: Shares, *, cancelled: Callable[[], bool] = lambda: False) -> Checkpoint:
        """Their files are linked to, and read once more."""
        entries = shares.files()
        try:
            self._check_wanted(staged, cancelled)
            writer = self.begin(staged.phase, staged.step, staged.attempt_number, staged.attempt_id)
            try:
                for node, brought in shares.brought.items():
                    for name in brought.files:
                        files.take_over(self._share(staged, node) / name, writer.path / name)
                expected = {name: entry.sha256 for name, entry in entries.items()}
                check = partial(self._check_wanted, staged, cancelled)
                checkpoint = writer.commit(shares.meta(staged), expected=expected, check=check)
            finally:
                writer.discard()
            self.check_counts(staged.phase, staged.attempt_number, checkpoint.path.name)
        except OSError as error:
            raise SaveFailed(f"step {staged.step} of {staged.phase} could not be saved: {error}") from error
        self.drop_shares(staged)
        return checkpoint

    def drop_shares(self, staged: Staged) -> None:
        assert staged.share is not None
        for node in range(staged.share.nodes):
            with contextlib.suppress(OSError):  # a sweep takes it
                remove(self._share(staged, node))

    def _share(self, staged: Staged, node: int | None = None) -> Path:
        return self.root / check_phase(staged.phase) / f".share-{share_name(staged, node)}"

    def _known(self, phase: str) -> Mapping[tuple[int, str], Path]:
        """Files of the newest checkpoints by size and hash. They were read back when they were written."""
        try:
            newest = self.list(phase)[:_LOOK_BACK]
        except StorageFailed:  # it can do without
            return {}
        return {
            (entry.size, entry.sha256): checkpoint.path / name
            for checkpoint in reversed(newest)
            if checkpoint.path.name not in self._distrusted
            for name, entry in checkpoint.files.items()
            if entry.size >= files.LINKED
        }

    def distrust(self, address: str) -> None:
        self._distrusted.add(address.rstrip("/").rpartition("/")[2])

    # Reading.

    def verify(self, checkpoint: Checkpoint) -> None:
        self.fetch(checkpoint, checkpoint.path)

    def fetch(self, checkpoint: Checkpoint, into: Path, *, only: Callable[[str], bool] | None = None) -> Path:
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

        wanted = [(name, entry) for name, entry in checkpoint.files.items() if only is None or only(name)]
        files.in_threads(check, wanted, sum(entry.size for _, entry in wanted))
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
                with contextlib.suppress(FileNotFoundError):
                    os.rename(path, checkpoint.path)
                files.sync_directory(path.parent)
        if not (checkpoint.path / MANIFEST).exists():  # `purge` was quicker, and takes this first
            raise Damaged(f"{checkpoint.path} was removed for good")

    def purge(self, phase: str, before: float) -> int:
        gone, errors = 0, list[OSError]()
        for path, match in self._matching(phase, TRASH):
            if float(match[1]) < before:
                try:
                    remove(path)
                    gone += 1
                except OSError as error:  # one that resists must not keep the others
                    errors.append(error)
        if errors:
            raise errors[0]
        return gone

    def remove_all(self) -> None:
        for manifest in list(self.root.glob(f"*/*/{MANIFEST}")):
            manifest.unlink(missing_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)

    def sweep(self, phase: str, attempt_number: int, *, nodes: int = 1) -> int:
        """Remove what saves of earlier attempts, and of ended processes of this one, left unfinished.

        Earlier attempts are over when a later one runs. Another process of this attempt may be saving just now: its
        files go only if it was on this machine and has ended; if that can't be told, the next attempt takes them.
        """
        counts, fence = self._counts(phase), self._fence(phase)
        left: list[Path] = []
        for path, match in self._matching(phase, DIRECTORY):
            number = int(match[2])
            if number <= attempt_number and (not counts(path.name, number) or _is_torn(path)):
                left.append(path)
        for path, match in self._matching(phase, STAGE):
            number = int(match[2])
            if number < attempt_number or (number == attempt_number and has_ended(match[3], int(match[4]))):
                left.append(path)
        own = [match for _, match in self._matching(phase, DIRECTORY) if int(match[2]) == attempt_number]
        committed = max((int(match[1]) for match in own), default=-1)
        for path, match in self._matching(phase, _SHARE):
            if is_left(match[1], attempt_number, committed, nodes=nodes):
                left.append(path)
        for path in left:
            try:
                remove(path)
            except OSError:  # the next sweep tries again
                continue
        if fence is not None:
            self._sweep_begun(phase, fence)
        for path, _ in self._matching(phase, _SCRATCH):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - DAY:
                    path.unlink()
        return len(left)

    def _sweep_begun(self, phase: str, fence: Fence) -> None:
        """What attempts before the one that has begun have left of their own."""
        for pattern, last in ((FENCE, fence.attempt_number - 1), (CLAIM, fence.attempt_number)):
            for path, match in self._matching(phase, pattern):
                if int(match[1]) <= last:
                    path.unlink(missing_ok=True)
        for path, match in self._matching(phase, _SLOTS):
            if match[1] != fence.attempt_id:
                shutil.rmtree(path, ignore_errors=True)

    # How it is done.

    def _names(self, phase: str) -> Sequence[str]:
        found = [path.name for path, _ in self._matching(phase, DIRECTORY) if (path / MANIFEST).exists()]
        return found + [path.name for pattern in (CLAIM, FENCE) for path, _ in self._matching(phase, pattern)]

    def _trashed_names(self, phase: str) -> Sequence[str]:
        return [match[2] for _, match in self._matching(phase, TRASH)]

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
            try:
                os.link(making, target)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))  # ours, and empty for a moment
                os.rename(making, target)
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


def _unreadable(place: Path, name: str, error: Exception) -> WhistleError:
    """What it means that a file of a checkpoint can't be read."""
    if isinstance(error, OSError):
        if not files.is_about_the_file(error):
            return StorageFailed(f"{name} of {place} can't be read just now: {error}")
        if not (place / MANIFEST).exists():
            return Removed(f"{place} was removed while it was read")
    return Damaged(f"{name} of {place} can't be read: {error}")


def _is_torn(path: Path) -> bool:
    """There, without its manifest. Asked of the directory itself: it may be on its way to the trash, or back."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        os.stat(MANIFEST, dir_fd=handle)
    except FileNotFoundError:
        return True
    except OSError:
        pass
    finally:
        os.close(handle)
    return False
