"""One save to a directory: written aside, read back, then given its name in one move."""

import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whistlestop.blobs import files
from whistlestop.blobs.manifest import (
    DIRECTORY,
    MANIFEST,
    TRASH,
    BadName,
    Checkpoint,
    FileEntry,
    SaveFailed,
    check_name,
    directory_name,
    encode,
)
from whistlestop.domain.errors import WhistleError
from whistlestop.domain.ids import new_id


class ReadsOtherwise(SaveFailed):
    """What is on the disk is not what was written."""


class CheckpointWriter:
    """Add files, or write them into `path` directly; `commit` takes all that is there, and moves it."""

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

    def commit(
        self,
        meta: Mapping[str, Any],
        *,
        expected: Mapping[str, str] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Checkpoint:
        """Make it durable, then make it count. SaveFailed leaves nothing that could be taken for a checkpoint.

        `expected`: the hashes of what was meant to be written; what is read back has to have the same. `check` is
        called last of all, and raises if it shall not count.
        """
        try:
            found = self._read_back()
            self._compare(found, expected)
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
            self._publish(encode(checkpoint), target, check)
        except OSError as error:
            raise self._failed(error) from error
        except WhistleError:
            self.discard()
            raise
        self._over = True
        return checkpoint

    def bring(
        self,
        target: Path,
        describe: Callable[[Mapping[str, FileEntry]], bytes],
        *,
        expected: Mapping[str, str] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """As a share (see shares.py): made durable, read back and moved to `target`, with a word of what it is. One
        that is there already stays."""
        try:
            found = self._read_back()
            self._compare(found, expected)
            files.write(self.path / MANIFEST, describe(found))
            files.sync_directory(self.path)
            check()
            try:
                os.rename(self.path, target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                self.discard()
            files.sync_directory(target.parent)
        except OSError as error:
            raise self._failed(error) from error
        except WhistleError:
            self.discard()
            raise
        self._over = True

    def discard(self) -> None:
        """Give the space back. Never raises, and never touches what was committed: by now it may be another's."""
        if self._over:
            return
        self._over = True
        try:
            remove(self.path)
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

    def _publish(self, manifest: bytes, target: Path, check: Callable[[], None]) -> None:
        files.write(self.path / MANIFEST, manifest)
        files.sync_directory(self.path)
        check()
        # Moving a directory over one that holds something is refused by the system: another writer was quicker.
        os.rename(self.path, target)
        self.path = target
        files.sync_directory(target.parent)

    def _target(self, name: str) -> Path:
        return self.path / check_name(name)

    def _failed(self, error: Exception) -> SaveFailed:
        self.discard()
        return SaveFailed(f"step {self._step} of {self._phase} could not be saved in {self.path}: {error}")


def stage_name(step: int, attempt_number: int) -> str:
    return f".{directory_name(step, attempt_number)}.{_host()}.{os.getpid()}.{os.urandom(4).hex()}"


def _host() -> str:
    return re.sub("[^A-Za-z0-9-]", "-", os.uname().nodename) if hasattr(os, "uname") else ""


def has_ended(host: str, process: int) -> bool:
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


def remove(path: Path) -> None:
    """The manifest first: what is half deleted must not look complete. Twice is not an error."""
    if not path.exists():
        return
    (path / MANIFEST).unlink(missing_ok=True)
    files.sync_directory(path)
    shutil.rmtree(path)
