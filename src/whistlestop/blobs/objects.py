"""Objects behind an address (s3, gs, az, file, memory), by obstore: asked patiently, and refusals in words.

What may go by itself (5xx, a cut or stalled connection, a host that is away) is tried again for as long as `patience`
says, counted from the first failure. What will not (a wrong key, no such bucket) is said at once. obstore is loaded
with the first question: whoever only names an address does not need it.
"""

import contextlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from whistlestop.blobs import profiles
from whistlestop.blobs.storage import StorageFailed
from whistlestop.domain.errors import WhistleError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PATIENCE: Final = 60.0  # seconds, from the first failure of one request on
BLOCK: Final = 8 << 20  # of a multipart upload
_CHUNK: Final = 1 << 20
# Of one request with its body: 32 MiB at 280 KB/s. Three go at a time; once that was too much for the line, one, and
# for longer: at 50 KB/s.
_TIMEOUT: Final = timedelta(seconds=120)
_SLOW_TIMEOUT: Final = timedelta(seconds=600)
_FAST: Final = 2 << 20  # bytes per second of one alone, from which on several go at a time again
_RETRIES: Final = 2  # by obstore itself, of each block of a large one; it does not know how long we have tried
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_AGAIN: Final = (408, 409, 425, 429)  # of the 4xx; 5xx anyway

T = TypeVar("T")


class WrongSize(Exception):
    """The object does not have the bytes that were asked for."""


@dataclass(frozen=True)
class Listed:
    name: str  # below the root
    size: int


class Objects:
    """All that lies below one address. Nothing is asked before the first call."""

    def __init__(self, url: str, options: Mapping[str, str], *, patience: float = PATIENCE) -> None:
        self.url = url.rstrip("/")
        self.patience = patience
        self._options = options
        self._made: ObjectStore | None = None
        self._made_slow: ObjectStore | None = None  # set: the line is slow
        self._making, self._alone = threading.Lock(), threading.Lock()

    def patient(self, seconds: float) -> "Objects":
        """The same objects, asked with another patience."""
        twin = Objects(self.url, self._options, patience=seconds)
        twin._made = self._store()  # what is in memory is in there alone
        return twin

    def read(self, name: str) -> bytes:
        """A small one. FileNotFoundError."""
        return b"".join(self.stream(name))

    def stream(
        self, name: str, *, start: int = 0, size: int | None = None, total: int | None = None
    ) -> Iterator[memoryview]:
        """In pieces; what was cut goes on where it was. FileNotFoundError, or WrongSize: the object has not `total`
        bytes, or not `size` of them from `start` on."""
        import obstore

        done, patience = 0, _Patience(self.patience)
        while True:
            try:
                options: Any = None
                if size:
                    options = {"range": (start + done, start + size)}
                elif start + done:
                    options = {"range": {"offset": start + done}}
                answer = obstore.get(self._store(), name, options=options)
                found = answer.meta["size"]
                if total is not None and found != total:
                    raise WrongSize(f"{found} bytes instead of {total}")
                if size is not None and found < start + size:
                    raise WrongSize(f"{found} bytes")
                for chunk in answer.stream(min_chunk_size=_CHUNK):
                    done += len(chunk)
                    patience.renew()
                    yield memoryview(chunk)
                if done >= (found - start if size is None else size):
                    return
                raise ConnectionError(f"it ended after {done} bytes")
            except (WrongSize, FileNotFoundError, GeneratorExit):
                raise
            except Exception as error:
                if _status(error) == 416:
                    raise WrongSize("it is shorter than it was") from error
                patience.after(error, self._words(error))

    def size(self, name: str) -> int:
        """FileNotFoundError."""
        import obstore

        return self._ask(lambda: int(obstore.head(self._store(), name)["size"]))

    def put(self, name: str, data: "bytes | memoryview") -> None:
        import obstore

        if self.url.startswith("memory:"):
            data = bytes(data)  # it keeps what it is given, and the caller writes over it
        self._send(lambda store, _: obstore.put(store, name, data, use_multipart=False), len(data))

    def put_large(self, name: str, blocks: Callable[[], Iterable[bytes]], size: int) -> None:
        """In many requests; `blocks` gives the bytes from the beginning, each time it is called."""
        import obstore

        block = max(BLOCK, -(-size // 9_000))  # S3 takes 10,000 of them
        self._send(
            lambda store, several: obstore.put(
                store, name, iter(blocks()), use_multipart=True, chunk_size=block, max_concurrency=4 if several else 1
            ),
            size,
        )

    def create(self, name: str, data: bytes) -> bool:
        """False: there is one already, or ours has arrived without our hearing of it."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, NotSupportedError, PreconditionError

        def act() -> bool:
            try:
                obstore.put(self._store(), name, data, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False
            except NotSupportedError:
                if any(each.name == name for each in self.below(name.rpartition("/")[0])[1]):
                    return False
                obstore.put(self._store(), name, data)
            return True

        return self._ask(act, written=True)

    def below(self, name: str) -> tuple[Sequence[str], Sequence[Listed]]:
        """What lies directly below: the names of those with something below them, and the objects."""
        import obstore

        found = self._ask(lambda: obstore.list_with_delimiter(self._store(), name or None))
        return list(found["common_prefixes"]), [Listed(each["path"], each["size"]) for each in found["objects"]]

    def all(self, name: str = "") -> list[Listed]:
        """All that lies anywhere below."""
        import obstore

        found = self._ask(lambda: obstore.list(self._store(), name or None, chunk_size=1000).collect())
        return [Listed(each["path"], each["size"]) for each in found]

    def delete(self, names: Iterable[str]) -> None:
        """What is not there is not an error."""
        import obstore

        gone = sorted(names)
        if not gone:
            return
        try:
            self._ask(lambda: obstore.delete(self._store(), gone))
        except FileNotFoundError:  # some stores say so, and may have left the others
            for name in gone:
                try:
                    self._ask(lambda name=name: obstore.delete(self._store(), name))  # type: ignore[misc]
                except FileNotFoundError:
                    continue

    def _send(self, put: "Callable[[ObjectStore, bool], object]", size: int) -> None:
        """What may be large. Once the line was too slow for several at a time they go one by one, until it is not."""

        def act() -> None:
            slow, began = self._made_slow, time.monotonic()
            with self._alone if slow else contextlib.nullcontext():
                try:
                    put(slow or self._store(), slow is None)
                except Exception as error:
                    if "kind: Timeout" in str(error):
                        self._made_slow = self._made_slow or self._open(_SLOW_TIMEOUT)
                    raise
            if slow and size > _CHUNK and size / _FAST > time.monotonic() - began:
                self._made_slow = None

        self._ask(act, written=True)

    def _ask(self, act: Callable[[], T], *, written: bool = False) -> T:
        """FileNotFoundError only where one object was asked for; StorageFailed else."""
        patience = _Patience(self.patience)
        while True:
            try:
                return act()
            except FileNotFoundError as error:
                if written or _code(error) == "NoSuchBucket":
                    raise StorageFailed(self._words(error)) from error
                raise
            except Exception as error:
                patience.after(error, self._words(error))

    def _store(self) -> "ObjectStore":
        with self._making:
            if self._made is None:
                self._made = self._open(_TIMEOUT)
            return self._made

    def _open(self, timeout: timedelta) -> "ObjectStore":
        try:
            return _open(self.url, self._options, retries=_RETRIES if self.patience else 0, timeout=timeout)
        except StorageFailed:
            raise
        except Exception as error:
            hint = f": set {_credentials(self.url)}" if "must be specified" in str(error) else ""
            raise StorageFailed(f"{self.url} can't be used as a storage: {_short(error)}{hint}") from error

    def _words(self, error: Exception) -> str:
        status, code, text = _status(error), _code(error), str(error)
        bucket = urlsplit(self.url).netloc
        if code in ("NoSuchBucket", "ContainerNotFound") or (status == 404 and "bucket does not exist" in text):
            return f"there is no bucket {bucket}: create it, or correct the address {self.url}"
        if "169.254.169.254" in text:
            return f"no credentials for {self.url}: set {_credentials(self.url)} where the server and its runs run"
        if status in (401, 403):
            return (
                f"access to {self.url} is denied ({code or status}): check the credentials, and that they may list,"
                " read, write and delete there"
            )
        if status == 301 or "incorrectly configured region" in text:
            return f"{bucket} is in another region: say which, or set AWS_REGION"
        if status is None and _unreachable(text):
            return f"{self._host()} can't be reached for {self.url}: check the endpoint and the network"
        return f"{self.url} does not work: {_short(error)}"

    def _host(self) -> str:
        return self._options.get("endpoint") or f"the host of {urlsplit(self.url).scheme}"


class _Patience:
    """For one request and its repetitions."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._first: float | None = None
        self._tries = 0

    def renew(self) -> None:
        self._first, self._tries = None, 0

    def after(self, error: Exception, words: str) -> None:
        """Wait, or raise StorageFailed."""
        if isinstance(error, WhistleError):
            raise error
        now = time.monotonic()
        self._first = now if self._first is None else self._first
        left = self._first + self._seconds - now
        if left <= 0 or not _may_go(error):
            raise StorageFailed(words) from error
        self._tries += 1
        time.sleep(min(left, random.uniform(0.5, 1.0) * min(5.0, 0.1 * 2**self._tries)))


def _open(url: str, options: Mapping[str, str], *, retries: int, timeout: timedelta) -> "ObjectStore":
    from obstore.store import LocalStore, MemoryStore, from_url

    parts = urlsplit(url)
    if parts.scheme == "memory":
        return MemoryStore()
    if parts.scheme == "file":
        return LocalStore(unquote(parts.path), mkdir=True)
    if not parts.netloc:
        raise StorageFailed(f"{url} names no bucket")
    config: dict[str, Any] = {}
    if parts.scheme in ("s3", "s3a"):
        config = profiles.s3_config(options)
    elif "endpoint" in options and parts.scheme in ("az", "azure", "abfs", "abfss", "adl"):
        config = {"endpoint": options["endpoint"]}
    plain = str(config.get("endpoint", "")).startswith("http://")
    how: dict[str, Any] = {
        "config": config,
        "client_options": {"allow_http": plain, "timeout": timeout, "connect_timeout": timedelta(seconds=5)},
        "retry_config": {"max_retries": retries, "retry_timeout": timedelta(seconds=10)},
    }
    store: ObjectStore = from_url(url, **how)
    return store


def _status(error: BaseException) -> int | None:
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def _code(error: BaseException) -> str:
    found = _CODE.search(str(error))
    return found[1] if found else ""


def _credentials(url: str) -> str:
    match urlsplit(url).scheme:
        case "gs":
            return "GOOGLE_APPLICATION_CREDENTIALS"
        case "s3" | "s3a":
            return "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        case _:
            return "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"


def _unreachable(text: str) -> bool:
    return "kind: Connect" in text or "dns error" in text or "Connection refused" in text


def _may_go(error: Exception) -> bool:
    status = _status(error)
    if status is None:
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        if "169.254.169.254" in str(error):
            return False
        return isinstance(error, BaseError | OSError) and not isinstance(
            error, PermissionDeniedError | UnauthenticatedError
        )
    return status >= 500 or status in _AGAIN or _code(error) == "RequestTimeout"


def _short(error: Exception) -> str:
    """Without obstore's own inside."""
    return str(error).partition("\n\nDebug source")[0].strip()[:500]
