"""Laying out the submitted code in the working directory. Nothing of a bundle ever lands outside of it."""

import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path


class BundleRefused(Exception):
    """The bundle holds something that does not belong into a working directory."""


def lay_out(bundle: Path, workdir: Path, *, cancelled: Callable[[], bool] = lambda: False) -> int:
    """Write the bundle's files over those that are there, and leave all others alone. Returns how many were written.

    All names are judged before the first byte is written. OSError if the disk does not take it.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(bundle) as tar:
            members = tar.getmembers()
            root = os.path.realpath(workdir)
            for member in members:
                _judge(member, root)
            written = 0
            for member in members:
                if cancelled():
                    break
                written += _write(tar, member, root)
            return written
    except tarfile.TarError as error:
        raise BundleRefused(f"The code bundle {bundle} can't be read: {error}. Submit the run again.") from error


def _judge(member: tarfile.TarInfo, root: str) -> None:
    if not (member.isfile() or member.isdir() or member.issym()):
        raise BundleRefused(f"The code bundle holds {member.name!r}, which is a device, a pipe or a hard link.")
    target = _target(member.name, root)
    if member.issym():
        lands = os.path.normpath(os.path.join(os.path.dirname(target), member.linkname))
        if os.path.isabs(member.linkname) or not _inside(lands, root):
            raise BundleRefused(f"The code bundle holds {member.name!r}, a link that leads out of it.")


def _target(name: str, root: str) -> str:
    target = os.path.normpath(os.path.join(root, name))
    if os.path.isabs(name) or "\0" in name or not _inside(target, root):
        raise BundleRefused(f"The code bundle holds {name!r}, which lies outside of it.")
    return target


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root + os.sep)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, root: str) -> int:
    target = _target(member.name, root)
    if target == root:
        return 0
    # Links that the bundle or the program made on the way must not lead our writing elsewhere.
    if not _inside(os.path.realpath(os.path.dirname(target)), root):
        raise BundleRefused(f"{member.name!r} would be written through a link that leads out of the working directory.")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    found = os.lstat(target) if os.path.lexists(target) else None
    if member.isdir():
        if found is not None and not stat.S_ISDIR(found.st_mode):
            os.unlink(target)
        os.makedirs(target, exist_ok=True)
        return 0
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise BundleRefused(
            f"{member.name!r} is a file in the bundle and a directory in the working directory: remove it."
        )
    if member.issym():
        if found is not None:
            os.unlink(target)
        os.symlink(member.linkname, target)
        return 1
    if found is not None and stat.S_ISREG(found.st_mode) and _same(found, member):
        return 0
    _copy(tar, member, target)
    return 1


def _same(found: os.stat_result, member: tarfile.TarInfo) -> bool:
    return found.st_size == member.size and int(found.st_mtime) == int(member.mtime)


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, target: str) -> None:
    source = tar.extractfile(member)
    assert source is not None
    making = f"{target}.whistle-{os.getpid()}"
    try:
        with source, open(making, "xb") as file:
            while block := source.read(1 << 20):
                file.write(block)
        os.chmod(making, 0o755 if member.mode & 0o100 else 0o644)
        os.utime(making, (member.mtime, member.mtime))
        os.replace(making, target)  # a program of another attempt that has it open keeps the old one
    except BaseException:
        if os.path.exists(making):
            os.unlink(making)
        raise
