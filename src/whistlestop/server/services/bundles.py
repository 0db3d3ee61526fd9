"""Code bundles on disk, named by the hash of their bytes: written once, never changed."""

import errno
import hashlib
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool

from whistlestop.domain.errors import BundleInvalid, DiskFull, TooLarge
from whistlestop.domain.ids import new_id
from whistlestop.server.services.settings import Settings
from whistlestop.wire.api import BundleView


def path_of(settings: Settings, digest: str) -> Path:
    return settings.bundles / f"{digest}.tar"


async def receive(settings: Settings, digest: str, body: AsyncIterator[bytes]) -> BundleView:
    """Stream to a temporary file; it gets its name only when hash and content are right."""
    target = path_of(settings, digest)
    if target.exists():
        async for _ in body:
            pass
        return BundleView(hash=digest, bytes=target.stat().st_size, known=True)
    settings.bundles.mkdir(parents=True, exist_ok=True)
    temporary = settings.bundles / f".{new_id('b')}"
    try:
        size, seen = 0, hashlib.sha256()
        with temporary.open("xb") as file:
            async for part in body:
                size += len(part)
                if size > settings.bundle_limit:
                    raise TooLarge(
                        f"the bundle is larger than {settings.bundle_limit // 2**20} MiB",
                        hint="leave data and outputs out with .whistleignore, or submit with --in-place",
                    )
                await run_in_threadpool(_take, file, seen, part)
            await run_in_threadpool(_settle, file)
        if seen.hexdigest() != digest:
            raise BundleInvalid("the bundle's bytes do not match its hash", hint="send it again")
        await run_in_threadpool(check, temporary)
        os.replace(temporary, target)
        _fsync_directory(settings.bundles)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull("the server's disk is too full for the bundle", hint="make room and submit again") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return BundleView(hash=digest, bytes=size, known=False)


def _take(file: BinaryIO, seen: "hashlib._Hash", part: bytes) -> None:
    seen.update(part)
    file.write(part)


def _settle(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def check(path: Path) -> None:
    """Refuse a bundle that would write outside of its directory, before anything is stored."""
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                tarfile.data_filter(member, "/bundle")
    except tarfile.FilterError as error:
        raise BundleInvalid(f"the bundle has a path that leaves it: {error}") from error
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise BundleInvalid(f"the bundle is not a readable tar file: {error}") from error


def _fsync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
