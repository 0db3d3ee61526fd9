"""The working directory as one tar with its hash for a name: the same files make the same bundle, always."""

import errno
import hashlib
import os
import stat
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO

from whistlestop.client.ignore import Ignore, around
from whistlestop.domain.errors import BundleInvalid, TooLarge

LIMIT = 100 << 20
MAX_FILES = 50_000
WAY_OUT = "leave things out with a .whistleignore file, or run in the directory itself with --in-place"
_MTIME = 315_532_800  # 1980-01-01: the files' own times would change the hash, and zip knows nothing earlier
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True)
class Bundle:
    path: Path  # a temporary file; gone after the `with` block
    hash: str
    bytes: int
    files: int
    skipped: tuple[str, ...] = ()  # sockets, pipes, devices

    def __enter__(self) -> "Bundle":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.path.unlink(missing_ok=True)


def make_bundle(directory: Path, limit: int = LIMIT) -> Bundle:
    """Raise BundleInvalid for what can't travel and TooLarge above `limit` bytes, naming the paths."""
    root = directory.resolve()
    if not root.is_dir():
        raise BundleInvalid(f"{directory} is not a directory.")
    found = _Found()
    _walk(root, root, PurePosixPath(), around(root).enter(root, PurePosixPath()), found)
    _judge(found, limit)
    descriptor, name = tempfile.mkstemp(prefix="whistle-bundle-", suffix=".tar")
    try:
        with os.fdopen(descriptor, "wb") as file:
            sink = _Hashing(file)
            with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, copybufsize=1 << 18) as tar:  # type: ignore[call-overload]
                for entry in sorted(found.entries, key=lambda entry: os.fsencode(entry.name)):
                    _add(tar, root, entry)
    except BaseException:
        os.unlink(name)
        raise
    files = sum(1 for entry in found.entries if not entry.is_directory)
    return Bundle(Path(name), sink.hash.hexdigest(), sink.written, files, tuple(found.skipped))


@dataclass(frozen=True)
class _Entry:
    name: str
    mode: int
    size: int = 0
    target: str | None = None  # of a symbolic link
    is_directory: bool = False


@dataclass
class _Found:
    entries: list[_Entry] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)  # links that point outside
    unreadable: list[str] = field(default_factory=list)


class _Hashing:
    """A file that is hashed while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.hash, self.written = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        self.written += len(data)
        return self._file.write(data)


def _walk(root: Path, directory: Path, relative: PurePosixPath, ignore: Ignore, found: _Found) -> None:
    try:
        with os.scandir(directory) as scan:
            entries = sorted(scan, key=lambda entry: os.fsencode(entry.name))
    except OSError:
        found.unreadable.append(f"{relative}/")
        return
    for entry in entries:
        path = relative / entry.name
        is_directory = entry.is_dir(follow_symlinks=False)
        if ignore.hides(path, is_directory=is_directory):
            continue
        if is_directory and os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
            continue  # a virtual environment by any name
        _take(root, Path(entry.path), path, found)
        if len(found.entries) > MAX_FILES:
            raise TooLarge(
                f"{root} holds more than {MAX_FILES:,} files: {_largest(found.entries, _count)}.",
                hint=WAY_OUT,
            )
        if is_directory:
            _walk(root, Path(entry.path), path, ignore.enter(Path(entry.path), path), found)


def _take(root: Path, path: Path, relative: PurePosixPath, found: _Found) -> None:
    name = str(relative)
    try:
        status = path.lstat()
    except OSError:
        return  # gone since the directory was listed
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISDIR(status.st_mode):
        found.entries.append(_Entry(name, mode | 0o700, is_directory=True))
    elif stat.S_ISLNK(status.st_mode):
        target = _target_inside(root, path)
        if target is None:
            found.leaving.append(name)
        else:
            found.entries.append(_Entry(name, 0o777, target=target))
    elif not stat.S_ISREG(status.st_mode):
        found.skipped.append(name)
    elif not os.access(path, os.R_OK):
        found.unreadable.append(name)
    else:
        found.entries.append(_Entry(name, mode, status.st_size))


def _target_inside(root: Path, link: Path) -> str | None:
    """Where the link points, relative to itself; None if that is outside, also by way of other links."""
    target = os.readlink(link)
    written = os.path.normpath(os.path.join(link.parent, target))
    for place in (written, os.path.realpath(link)):
        if os.path.commonpath([root, place]) != str(root):
            return None
    return os.path.relpath(written, link.parent) if os.path.isabs(target) else target


def _judge(found: _Found, limit: int) -> None:
    if found.leaving:
        raise BundleInvalid(
            f"These links point outside the directory and can't travel: {_some(found.leaving)}.", hint=WAY_OUT
        )
    if found.unreadable:
        raise BundleInvalid(
            f"These can't be read: {_some(found.unreadable)}.",
            hint="make them readable, or leave them out with a .whistleignore file",
        )
    total = sum(entry.size for entry in found.entries)
    if total > limit:
        largest = _largest(found.entries, _bytes)
        raise TooLarge(
            f"The code is {size_text(total)}; a bundle may have {size_text(limit)}. Largest: {largest}.",
            hint=WAY_OUT,
        )


def _some(names: list[str], most: int = 10) -> str:
    shown = [name.encode("utf-8", "replace").decode() for name in names[:most]]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown) + more


def _bytes(entry: _Entry) -> int:
    return entry.size


def _count(entry: _Entry) -> int:
    return 1


def _largest(entries: list[_Entry], measure: Callable[[_Entry], int], most: int = 5) -> str:
    """The heaviest places, each as deep as it still holds nearly everything: data/raw/ rather than data/."""
    weight: Counter[PurePosixPath] = Counter()
    inner: dict[PurePosixPath, set[PurePosixPath]] = {}
    for entry in entries:
        path = PurePosixPath(entry.name)
        for place in (path, *path.parents):
            weight[place] += measure(entry)
            if place != place.parent:
                inner.setdefault(place.parent, set()).add(place)
    places = []
    for top in sorted(inner.get(PurePosixPath(), ()), key=lambda place: -weight[place])[:most]:
        place = top
        while heavy := [child for child in inner.get(place, ()) if weight[child] > 0.9 * weight[place]]:
            place = heavy[0]
        amount = size_text(weight[place]) if measure is _bytes else f"{weight[place]:,} files"
        places.append(f"{_some([str(place)])}{'/' if place in inner else ''} ({amount})")
    return ", ".join(places)


def size_text(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def _add(tar: tarfile.TarFile, root: Path, entry: _Entry) -> None:
    info = tarfile.TarInfo(entry.name)
    info.mode, info.mtime = entry.mode, _MTIME
    if entry.is_directory:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
        return
    if entry.target is not None:
        info.type, info.linkname = tarfile.SYMTYPE, entry.target
        tar.addfile(info)
        return
    info.size = entry.size
    try:
        # Not through a link and never waiting: the file may have been replaced since it was looked at.
        descriptor = os.open(root / entry.name, _OPEN)
        with os.fdopen(descriptor, "rb") as file:
            tar.addfile(info, file)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BundleInvalid(
                f"There is no room for the bundle in {tempfile.gettempdir()}.",
                hint="free some space, or set TMPDIR",
            ) from error
        raise BundleInvalid(
            f"{_some([entry.name])} changed while it was being bundled.",
            hint="try again; leave files that are being written out with a .whistleignore file",
        ) from error
