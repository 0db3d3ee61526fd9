"""Checkpoints on a real S3 server, with a proxy in between that does what networks do."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest

from whistlestop.blobs import objects
from whistlestop.blobs.manifest import MANIFEST, Checkpoint, Damaged
from whistlestop.blobs.objects import Objects
from whistlestop.blobs.open import locate
from whistlestop.blobs.remote import RemoteStorage
from whistlestop.blobs.staged import Staged
from whistlestop.blobs.storage import Fenced, StorageFailed
from whistlestop.testing.proxy import Fault, FaultProxy, Rule
from whistlestop.testing.s3 import S3Server
from whistlestop.testing.slots import lay

BASE = os.urandom(256 << 10)  # does not change from save to save


class Bucket:
    """A storage behind the proxy, and the way past it."""

    def __init__(self, server: S3Server, proxy: FaultProxy, directory: Path) -> None:
        self.proxy = proxy
        self.url = f"s3://{server.bucket()}/some/r-1"
        self.verified: set[str] = set()
        self._server, self._directory, self._laid = server, directory, 0

    def storage(self, *, patience: float = 20.0) -> RemoteStorage:
        options = {**self._server.options, "endpoint": self.proxy.endpoint}
        return RemoteStorage(self.url, options, patience=patience)

    def direct(self) -> RemoteStorage:
        return RemoteStorage(self.url, self._server.options)

    @property
    def objects(self) -> Objects:
        return Objects(self.url, self._server.options)

    def lay(self, step: int, *, attempt: int = 1, files: dict[str, bytes] | None = None) -> Staged:
        self._laid += 1
        content = files or {"parts/m/000000": BASE, "parts/m/index": b"%d" % step, "parts/n.pickle": b"%d" % -step}
        return lay(self._directory / f"slot-{self._laid}", step, attempt=attempt, files=content, phase="main")

    def names(self, under: str = "main") -> list[str]:
        return sorted(each.name for each in self.objects.all(under))


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path) -> Iterator[Bucket]:
    with FaultProxy(s3.endpoint, seed=1) as proxy:
        yield Bucket(s3, proxy, tmp_path)


def check_all(bucket: Bucket, into: Path, *, at_least: int) -> Checkpoint:
    """Whatever is listed is whole, and the newest one loads."""
    storage = bucket.direct()
    for each in storage.list("main"):
        if each.id not in bucket.verified:
            storage.verify(each)
            bucket.verified.add(each.id)
    newest, aside = storage.newest("main", verify=lambda found: storage.fetch(found, into))
    assert newest is not None
    assert not aside
    assert newest.step >= at_least
    return newest


def test_what_has_not_changed_does_not_go_over_the_network_again(bucket: Bucket) -> None:
    storage = bucket.storage()
    frozen = os.urandom(4 << 20)
    storage.commit(bucket.lay(1, files={"frozen": frozen, "changing": b"1"}))
    for step, again in ((2, storage), (3, bucket.storage())):
        bucket.proxy.clear()
        again.commit(bucket.lay(step, files={"frozen": frozen, "changing": b"%d" % step}))
        assert sum(bucket.proxy.sent.values()) + sum(bucket.proxy.received.values()) < 0.05 * len(frozen)


def test_a_save_costs_as_many_requests_in_a_full_bucket_as_in_an_empty_one(bucket: Bucket) -> None:
    storage = bucket.storage()
    storage.commit(bucket.lay(1))
    bucket.proxy.clear()
    storage.commit(bucket.lay(2))
    alone = len(bucket.proxy.requests)
    others = Objects(bucket.url.replace("r-1", "r-2"), bucket._server.options)
    for number in range(30):
        others.put(f"main/parts/{number:064x}", b"x")
    bucket.proxy.clear()
    storage.commit(bucket.lay(3))
    assert len(bucket.proxy.requests) <= alone <= 20


def test_large_files_go_in_blocks_and_come_back(bucket: Bucket, tmp_path: Path) -> None:
    data = os.urandom((33 << 20) + 11)
    storage = bucket.storage()
    saved = storage.commit(bucket.lay(1, files={"files/model.bin": data, "a": b"a"})).checkpoint
    assert max(path.count("partNumber") for _, path in bucket.proxy.requests) == 1
    assert (storage.fetch(saved, tmp_path / "into") / "files/model.bin").read_bytes() == data
    found = locate(storage.where(saved), bucket._server.options)
    assert found.checkpoint == saved


# --- faults ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is asked again at once."""
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("fault", [Fault.CUT, Fault.LOSE_ANSWER, Fault.CUT_UPLOAD, Fault.HALF_ANSWER, Fault.ANSWER])
def test_a_save_survives_trouble_at_any_single_request(bucket: Bucket, tmp_path: Path, fault: Fault) -> None:
    storage = bucket.storage()
    storage.open_attempt("main", 1, "a-1")
    storage.commit(bucket.lay(1))
    bucket.proxy.clear()
    storage.commit(bucket.lay(2))
    count = len(bucket.proxy.requests)
    for number in range(count):
        bucket.proxy.clear()
        bucket.proxy.add(Rule(fault, after=number, times=1))
        storage.commit(bucket.lay(3 + number))
    bucket.proxy.clear()
    check_all(bucket, tmp_path / "into", at_least=2 + count)


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.LOSE_ANSWER])
def test_a_network_that_ends_at_any_request_of_a_save_leaves_only_whole_checkpoints(
    bucket: Bucket, tmp_path: Path, fault: Fault
) -> None:
    storage = bucket.storage(patience=0.0)
    storage.open_attempt("main", 1, "a-1")
    storage.commit(bucket.lay(1))
    step, cuts = 2, 0
    while True:
        bucket.proxy.clear()
        bucket.proxy.add(Rule(fault, after=cuts))
        try:
            storage.commit(bucket.lay(step))
            break
        except StorageFailed:
            check_all(bucket, tmp_path / "into", at_least=step - 1)
        bucket.proxy.clear()
        newest = storage.commit(bucket.lay(step + 1)).checkpoint
        assert check_all(bucket, tmp_path / "into", at_least=step + 1) == newest
        step, cuts = step + 2, cuts + 1
    assert cuts == len(bucket.proxy.requests) >= 10


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("status", [503, 429])
def test_a_server_that_fails_every_third_time_is_asked_again(bucket: Bucket, tmp_path: Path, status: int) -> None:
    storage = bucket.storage()
    bucket.proxy.add(Rule(Fault.ANSWER, status=status, share=1 / 3))
    for step in (1, 2):
        storage.commit(bucket.lay(step, files={f"f{each}": b"%d-%d" % (step, each) for each in range(6)}))
    newest, aside = storage.newest("main")
    assert newest is not None
    assert (newest.step, aside) == (2, [])
    storage.fetch(newest, tmp_path / "into")


def test_a_slow_server_and_half_answers_are_waited_for(bucket: Bucket, tmp_path: Path) -> None:
    storage, data = bucket.storage(), os.urandom(2 << 20)
    bucket.proxy.add(Rule(Fault.SLOW, rate=4 << 20, delay=0.01))
    saved = storage.commit(bucket.lay(1, files={"a": data})).checkpoint
    bucket.proxy.clear()
    bucket.proxy.add(Rule(Fault.HALF_ANSWER, method="GET", path="/parts/", times=3))
    assert (storage.fetch(saved, tmp_path / "into") / "a").read_bytes() == data
    assert bucket.proxy.received["GET"] < 1.6 * len(data), "it goes on where it was cut"


def test_on_a_slow_line_parts_go_one_by_one_and_arrive(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several at a time would all take too long, again and again."""
    monkeypatch.setattr(objects, "_TIMEOUT", timedelta(seconds=0.3))
    monkeypatch.setattr(objects, "_FAST", 100_000)
    under_way, most, real, lock = 0, 0, obstore.put, threading.Lock()

    def put(store: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal under_way, most
        if store is not storage._objects._made_slow:
            return real(store, *arguments, **options)
        with lock:
            under_way += 1
            most = max(most, under_way)
        try:
            return real(store, *arguments, **options)
        finally:
            with lock:
                under_way -= 1

    monkeypatch.setattr(obstore, "put", put)
    storage = bucket.storage()
    bucket.proxy.add(Rule(Fault.SLOW, method="PUT", path="/parts/", rate=1 << 20))
    saved = storage.commit(bucket.lay(1, files={f"f{each}": os.urandom(600_000) for each in range(3)})).checkpoint
    bucket.direct().verify(saved)
    assert most == 1
    bucket.proxy.clear()
    storage.commit(bucket.lay(2, files={"f": os.urandom(1_500_000)}))
    assert storage._objects._made_slow is None, "it is not slow any more"


def test_a_server_that_is_away_for_good_is_given_up_in_words(bucket: Bucket) -> None:
    storage = bucket.storage(patience=0.5)
    bucket.proxy.refuse()
    with pytest.raises(StorageFailed, match="can't be reached"):
        storage.commit(bucket.lay(1))
    with pytest.raises(StorageFailed, match="can't be reached"):
        storage.list("main")
    bucket.proxy.listen()
    storage.commit(bucket.lay(1))


def test_a_save_goes_on_where_it_was_interrupted(bucket: Bucket) -> None:
    files = {f"f{each}": os.urandom(100_000) for each in range(10)}
    bucket.proxy.add(Rule(Fault.CUT, method="PUT", after=7))
    with pytest.raises(StorageFailed):
        bucket.storage(patience=0.0).commit(bucket.lay(1, files=files))
    assert bucket.direct().list("main") == []
    bucket.proxy.clear()
    done = bucket.storage().commit(bucket.lay(1, files=files))
    assert done.written == 300_000
    assert bucket.proxy.received["GET"] > 1_000_000, "what another has put is read back, too"


def test_a_part_that_an_interrupted_save_has_left_damaged_is_put_again(bucket: Bucket) -> None:
    import hashlib

    data = os.urandom(1000)
    bucket.objects.put(f"main/parts/{hashlib.sha256(data).hexdigest()}", b"x" * 1000)
    saved = bucket.storage().commit(bucket.lay(1, files={"a": data})).checkpoint
    bucket.direct().verify(saved)


# --- attempts that are over ----------------------------------------------------------------------------------------


def test_a_manifest_that_slips_in_behind_the_fence_does_not_count_and_is_swept(bucket: Bucket) -> None:
    storage = bucket.direct()
    storage.open_attempt("main", 1, "a-1")
    kept = storage.commit(bucket.lay(1)).checkpoint
    storage.open_attempt("main", 2, "a-2")
    elsewhere = RemoteStorage(f"{bucket.url}-2", bucket._server.options)
    late = elsewhere.commit(bucket.lay(9, files={"late": b"late"})).checkpoint
    manifest = f"main/{late.path.name}/{MANIFEST}"
    for name in (manifest, f"main/parts/{late.files['late'].sha256}"):
        bucket.objects.put(name, elsewhere._objects.read(name))
    assert bucket.direct().list("main") == [kept]
    assert bucket.direct().newest("main") == (kept, [])
    assert storage.sweep("main", 2) == 5  # the manifest, its part, the first fence and two claims
    assert storage.sweep("main", 2) == 0
    assert manifest not in bucket.names()
    with pytest.raises(Fenced):
        storage.sweep("main", 1)
    storage.verify(kept)


def test_sweeping_takes_what_belongs_to_nothing_and_nothing_else(bucket: Bucket) -> None:
    storage = bucket.direct()
    storage.open_attempt("main", 1, "a-1")
    first, second = (storage.commit(bucket.lay(step)).checkpoint for step in (1, 2))
    storage.discard(first, 5.0)
    storage.sweep("main", 1)
    before = bucket.names()
    left = [f"main/parts/{'0' * 64}", "main/probe-1234"]
    for name in left:
        bucket.objects.put(name, b"x")
    assert storage.sweep("main", 1) == 2
    assert bucket.names() == before
    storage.recover(first)
    storage.verify(first)
    storage.discard(first, 5.0)
    assert storage.purge("main", 6.0) == 1
    assert storage.sweep("main", 1) == 2  # its own two small parts; the large one is the second's, too
    storage.verify(second)


# --- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["gone", "short", "long", "flipped"])
def test_a_damaged_part_is_named_and_the_checkpoint_before_is_taken(
    bucket: Bucket, tmp_path: Path, damage: str
) -> None:
    storage = bucket.direct()
    older, newer = (storage.commit(bucket.lay(step)).checkpoint for step in (1, 2))
    entry = newer.files["parts/m/index"]
    part = f"main/parts/{entry.sha256}"
    match damage:
        case "gone":
            bucket.objects.delete([part])
        case "short":
            bucket.objects.put(part, b"")
        case "long":
            bucket.objects.put(part, b"22")
        case "flipped":
            bucket.objects.put(part, b"3")
    for act in (
        lambda: storage.verify(newer),
        lambda: storage.fetch(newer, tmp_path / "x"),
        lambda: list(storage.open_file(newer, "parts/m/index")),
    ):
        with pytest.raises(Damaged, match="parts/m/index"):
            act()
    assert not (tmp_path / "x" / MANIFEST).exists()
    found, aside = bucket.direct().newest("main")
    assert found == older
    assert [each.step for each, _ in aside] == [2]
    # The same state saved again is whole, though its part seems to be there.
    again = storage.commit(bucket.lay(2)).checkpoint
    bucket.direct().verify(again)


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"content": 1, "sha256": 2}'])
def test_an_unreadable_manifest_is_set_aside_with_words(bucket: Bucket, content: bytes) -> None:
    storage = bucket.direct()
    older, newer = (storage.commit(bucket.lay(step)).checkpoint for step in (1, 2))
    bucket.objects.put(f"main/{newer.path.name}/{MANIFEST}", content)
    assert storage.list("main") == [older]
    found, aside = storage.newest("main")
    assert found == older
    assert "manifest.json" in aside[0][1]


# --- a wrong address ------------------------------------------------------------------------------------------------


def test_a_bucket_that_is_missing_is_named(s3: S3Server) -> None:
    storage = RemoteStorage("s3://not-there/runs/r-1", s3.options)
    for act in (lambda: storage.probe("main"), lambda: storage.list("main"), lambda: storage.newest("main")):
        with pytest.raises(StorageFailed, match="there is no bucket not-there"):
            act()


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_credentials_are_said_to_be_wrong(s3: S3Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    bucket = s3.bucket()
    monkeypatch.setenv(name, "wrong")
    storage = RemoteStorage(f"s3://{bucket}/r-1", s3.options)
    for act in (lambda: storage.probe("main"), lambda: storage.list("main")):
        with pytest.raises(StorageFailed, match="denied"):
            act()


def test_a_host_that_is_not_there_is_named(s3: S3Server, bucket: Bucket) -> None:
    storage = bucket.storage(patience=0.2)
    bucket.proxy.refuse()
    with pytest.raises(StorageFailed, match=rf"{bucket.proxy.endpoint} can't be reached"):
        storage.probe("main")


def test_an_address_that_makes_no_sense_is_said_to_make_none() -> None:
    for url in ("s3:///nothing", "gopher://a/b", "s3://"):
        with pytest.raises(StorageFailed):
            RemoteStorage(url).probe("main")


def test_where_there_are_no_credentials_it_is_said_what_to_set(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in s3.env:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StorageFailed, match="AZURE_STORAGE_ACCOUNT_NAME"):
        RemoteStorage("az://container/r-1").probe("main")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    storage = RemoteStorage(f"s3://{s3.bucket()}/r-1", s3.options)
    with pytest.raises(StorageFailed, match="denied"):
        storage.probe("main")


def test_credentials_come_from_the_profile_where_the_environment_has_none(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bucket = s3.bucket()
    for name in s3.env:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    keys = "aws_access_key_id = {AWS_ACCESS_KEY_ID}\naws_secret_access_key={AWS_SECRET_ACCESS_KEY}\n"
    text = "[default]\naws_access_key_id = no\naws_secret_access_key = no\n[lab]\n" + keys.format(**s3.env)
    (tmp_path / ".aws" / "credentials").write_text(text)
    (tmp_path / ".aws" / "config").write_text(f"[profile lab]\nendpoint_url = {s3.endpoint}\nregion = us-east-1\n")
    with pytest.raises(StorageFailed, match="denied"):
        RemoteStorage(f"s3://{bucket}/r-1", s3.options).probe("main")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert RemoteStorage(f"s3://{bucket}/r-1").probe("main").conditional


# --- memory ---------------------------------------------------------------------------------------------------------

UPLOADING = """
import sys
from pathlib import Path
from whistlestop.blobs import staged
from whistlestop.blobs.remote import RemoteStorage

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) // 1024

storage = RemoteStorage(sys.argv[1], {"endpoint": sys.argv[2], "region": "us-east-1"})
storage.open_attempt("main", 1, "a-1")
laid = staged.read(Path(sys.argv[3]))
before = peak()
saved = storage.commit(laid).checkpoint
storage.fetch(saved, Path(sys.argv[3], "into"))
print(peak() - before)
"""


@pytest.mark.long
def test_the_memory_for_an_upload_does_not_grow_with_its_size(bucket: Bucket) -> None:
    one = os.urandom(32 << 20)
    files = {f"parts/m/{each:06d}": bytes([each]) + one[1:] for each in range(6)}
    files["files/large"] = one * 3 + one[: 12 << 20]
    laid = bucket.lay(1, files=files)
    assert laid.bytes >= 300_000_000
    words = [sys.executable, "-c", UPLOADING, bucket.url, bucket._server.endpoint, str(laid.directory)]
    grown = int(subprocess.run(words, check=True, capture_output=True, text=True, timeout=120).stdout)
    assert grown < 150
