"""From an address to the storage behind it: a directory, or s3://, gs://, az://…"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.blobs.manifest import Checkpoint, Damaged, is_phase
from whistlestop.blobs.storage import Storage


class Found(NamedTuple):
    storage: Storage
    checkpoint: Checkpoint


def is_remote(where: str) -> bool:
    return "://" in where and urlsplit(where).scheme != "file"


def open_storage(where: str, options: Mapping[str, str] | None = None) -> Storage:
    """The storage of one run, by its root. Nothing is asked of it yet."""
    if is_remote(where):
        from whistlestop.blobs.remote import RemoteStorage

        return RemoteStorage(where, options or {})
    return CheckpointStore(Path(unquote(urlsplit(where).path)) if where.startswith("file://") else Path(where))


def locate(address: str, options: Mapping[str, str] | None = None) -> Found:
    """One checkpoint, by what Storage.where says of it, trashed ones excepted. Damaged if it is not there."""
    root, phase, name = ("", "", *address.rstrip("/").rsplit("/", 2))[-3:]
    if not root or not is_phase(phase):
        raise Damaged(f"{address!r} is not the address of a checkpoint")
    storage = open_storage(root, options)
    for checkpoint in storage.list(phase):
        if checkpoint.path.name == name:
            return Found(storage, checkpoint)
    raise Damaged(f"there is no checkpoint {address}, or it does not count any more")
