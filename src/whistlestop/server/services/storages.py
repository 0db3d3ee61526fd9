"""Where checkpoints are kept: what a person may give as an address, a run's own place there, and whether it works."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import sqlalchemy as sa

from whistlestop.blobs.checkpoints import CheckpointStore
from whistlestop.blobs.manifest import Checkpoint, Damaged
from whistlestop.blobs.open import is_remote, open_storage
from whistlestop.blobs.storage import Storage, StorageFailed
from whistlestop.domain.errors import BadRequest, Refused, WhistleError
from whistlestop.domain.ids import new_id
from whistlestop.server.services.context import Context
from whistlestop.server.services.settings import Settings
from whistlestop.server.store import runs

log = logging.getLogger(__name__)
Row = sa.Row[Any]
SCHEMES = {"s3": "s3://BUCKET/PREFIX", "gs": "gs://BUCKET/PREFIX", "az": "az://CONTAINER/PREFIX"}
PATIENCE = 30.0  # seconds for a probe: somebody waits for it


def address(given: str) -> str:
    """A directory's absolute path, or a URL without its last slash. BadRequest, in words, if it is neither."""
    kinds = ", ".join(SCHEMES.values())
    hint = f"give a directory, or one of {kinds}"
    if not given.strip() or "\0" in given:
        raise BadRequest("where shall checkpoints be kept?", hint=hint)
    if "://" not in given:
        return str(Path(given).expanduser().absolute())
    parts = urlsplit(given)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise BadRequest(f"{given} is not a directory of this machine", hint="write file:///absolute/path")
        return str(Path(unquote(parts.path)))
    if parts.scheme not in SCHEMES:
        raise BadRequest(f"checkpoints can't be kept at {given}: nothing here speaks {parts.scheme}://", hint=hint)
    if parts.username or parts.password or "@" in parts.netloc:
        raise BadRequest(
            f"the address {parts.scheme}://… holds a user name or a key",
            hint="keys come from the environment or a profile, as for any other tool",
        )
    if not parts.netloc:
        raise BadRequest(f"{given} names no bucket", hint=f"write {SCHEMES[parts.scheme]}")
    if parts.query or parts.fragment:
        raise BadRequest(f"{given} has more than a bucket and a prefix", hint=f"write {SCHEMES[parts.scheme]}")
    return given.rstrip("/")


def options(where: str | None, endpoint: str | None, region: str | None) -> dict[str, str]:
    given = {name: value for name, value in (("endpoint", endpoint), ("region", region)) if value}
    if given and (where is None or not is_remote(where)):
        raise BadRequest(
            f"{' and '.join(given)} of what? The checkpoints are kept in a directory",
            hint="say where they are kept: --checkpoints s3://BUCKET/PREFIX",
        )
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise BadRequest(f"{endpoint} is not the address of a server", hint="write http://HOST:PORT or https://HOST")
    return given


def of_server(settings: Settings) -> tuple[str, Mapping[str, str]]:
    """Where new runs keep theirs."""
    return settings.storage or str(settings.data / "runs"), settings.storage_options


def check(context: Context) -> None:
    """At start. A place that never worked is refused; one that did may be away for a while: its runs wait for it."""
    where, given = context.settings.storage, context.settings.storage_options
    if where is None:
        return
    found = probe(where, given)
    if found.fit:
        log.info("checkpoints are kept at %s", found.text)
        return
    with context.database.read() as connection:
        known = runs.stored_below(connection, where)
    if not known:
        raise Refused(
            f"checkpoints can't be kept there: {found.text}",
            hint="look at --checkpoints, --checkpoints-endpoint and --checkpoints-region, and at the keys it finds",
        )
    log.warning("checkpoints can't be kept now: %s", found.text)


def for_new_run(settings: Settings, run_id: str) -> dict[str, Any]:
    """A run keeps its place, also if the server is started with another one later."""
    if settings.storage is None:
        return {}
    return {"storage": f"{settings.storage}/{run_id}", "storage_options": dict(settings.storage_options)}


def root(settings: Settings, run: Row) -> str:
    return run.storage or str(settings.checkpoints(run.id))


def of_run(settings: Settings, run: Row) -> Storage:
    return open_storage(root(settings, run), run.storage_options or {})


def find(storage: Storage, row: Row) -> Checkpoint:
    """The checkpoint that a row stands for, removed or not: that may change while we look. Damaged if it is not there,
    StorageFailed if nothing is."""

    def removed() -> Iterator[Checkpoint]:
        return (checkpoint for checkpoint, _ in storage.trashed(row.phase))

    def kept() -> Iterator[Checkpoint]:
        return iter(storage.list(row.phase))

    for known in (kept, removed, kept) if row.trashed_until is None else (removed, kept, removed):
        for checkpoint in known():
            if checkpoint.id == row.id:
                return checkpoint
    if isinstance(storage, CheckpointStore) and not storage.root.is_dir():
        raise StorageFailed(f"{storage.root} is not there: is it mounted?")
    raise Damaged(f"{row.path} is not there any more, or its manifest can't be read")


def find_or_name(storage: Storage, row: Row) -> Checkpoint:
    """Also where its manifest can't be read: good enough to remove it, or to bring it back."""
    try:
        return find(storage, row)
    except Damaged:
        root = storage.root if isinstance(storage, CheckpointStore) else Path()
        path = root / row.phase / row.path.rpartition("/")[2]
        return Checkpoint(row.id, row.phase, row.step, row.attempt, "", path, row.committed_at, row.bytes, {}, {})


@dataclass(frozen=True)
class Probe:
    fit: bool
    text: str
    seconds: float


def probe(where: str, given: Mapping[str, str], patience: float = PATIENCE) -> Probe:
    """Write a small thing, read it, remove it."""
    began, found = time.monotonic(), list[str]()

    def work() -> None:
        try:
            storage = open_storage(f"{where}/.probe-{new_id('p')}", given)
            storage.open_attempt("probe", 1, "probe")
            storage.check_fence("probe", 1)
            storage.remove_all()
            found.append("")
        except WhistleError as error:
            found.append(error.text)
        except Exception as error:  # whatever the storage's library raises: it is not usable
            found.append(f"{error or type(error).__name__}")

    # In a thread of its own: some failures are tried again for minutes, and nobody waits that long.
    thread = threading.Thread(target=work, name="probe", daemon=True)
    thread.start()
    thread.join(patience)
    seconds = time.monotonic() - began
    if not found:
        return Probe(False, f"{where} did not answer within {patience:.0f} s", seconds)
    if found[0]:
        return Probe(False, f"{where}: {found[0]}", seconds)
    return Probe(True, f"{where}: written, read and removed again in {seconds:.2f} s", seconds)
