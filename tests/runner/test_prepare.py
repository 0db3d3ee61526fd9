"""Before the program starts: which checkpoint, and what is said where there is none to be had."""

import hashlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_kit import LADDER, Kit, until

from whistlestop.blobs import remote
from whistlestop.blobs.objects import Objects
from whistlestop.blobs.open import open_storage
from whistlestop.blobs.storage import Storage
from whistlestop.runner.prepare import CannotStart, environment, prepare
from whistlestop.sdk.fetched import mark_of, wait_until_fetched
from whistlestop.testing.proxy import Fault, FaultProxy, Rule
from whistlestop.testing.s3 import S3Server
from whistlestop.testing.slots import lay
from whistlestop.wire.launch import Input, Launch


def described(root: Path, **fields: Any) -> Launch:
    (root / "work").mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "attempt_id": "a-2",
        "attempt_number": 2,
        "run_id": "r-1",
        "run_name": "one",
        "phase": "train",
        "kind": "train",
        "command": [sys.executable],
        "env": {},
        "directory": str(root / "attempt"),
        "workdir": str(root / "work"),
        "checkpoints": str(root / "checkpoints"),
        "slots": [0],
        "ladder": LADDER,
        "server": "ws://127.0.0.1:1/api/v1/runner",
        "token": "token",
    }
    return Launch(**(given | fields))


class Bucket:
    """A storage behind a proxy, with what an earlier attempt has saved."""

    def __init__(self, s3: S3Server, proxy: FaultProxy, root: Path) -> None:
        self.proxy, self.root = proxy, root
        self.url = f"s3://{s3.bucket()}/r-1"
        self.options = {**s3.options, "endpoint": proxy.endpoint}

    def storage(self) -> Storage:
        return open_storage(self.url, self.options)

    def save(self, *steps: int) -> None:
        storage = self.storage()
        storage.open_attempt("train", 1, "a-1")
        for step in steps:
            storage.commit(lay(self.root / "slot-0", step, files={"state": b"%d" % step * 1000}))

    def damage(self, data: bytes) -> None:
        """What was saved as this has changed."""
        Objects(self.url, self.options).put(f"train/parts/{hashlib.sha256(data).hexdigest()}", b"x" * len(data))

    def fields(self) -> dict[str, Any]:
        return {"attempt_number": 2, "storage": self.url, "storage_options": self.options}

    def launch(self, **fields: Any) -> Launch:
        return described(self.root, **(self.fields() | fields))


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setattr(remote, "PROBE_PATIENCE", 0.2)
    with FaultProxy(s3.endpoint) as proxy:
        yield Bucket(s3, proxy, tmp_path)


def refused(launch: Launch) -> CannotStart:
    with pytest.raises(CannotStart) as caught:
        prepare(launch, {})
    return caught.value


def test_a_storage_that_is_away_is_no_fault_of_the_code(bucket: Bucket) -> None:
    bucket.proxy.refuse()
    problem = refused(bucket.launch(storage_worked=True))
    assert problem.reason == "storage_away"
    assert bucket.url in problem.text
    assert "can't be reached" in problem.text
    bucket.proxy.listen()
    assert prepare(bucket.launch(storage_worked=True), {}).choice.restored is None


def test_a_storage_that_never_worked_for_this_run_is_a_mistake_and_said_so(bucket: Bucket) -> None:
    launch = bucket.launch(attempt_number=1)
    problem = refused(described(bucket.root, storage="s3://no-such-bucket/r-1", storage_options=launch.storage_options))
    assert problem.reason == "storage_unfit"
    assert "there is no bucket no-such-bucket: create it, or correct the address" in problem.text


def test_a_storage_that_goes_in_the_middle_of_a_fetch_is_waited_for_as_well(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.save(5)
    bucket.proxy.add(Rule(Fault.CUT, method="GET", path="/parts/"))
    monkeypatch.setattr(remote.RemoteStorage.__init__, "__kwdefaults__", {"patience": 0.1})
    problem = refused(bucket.launch(storage_worked=True))
    assert (problem.reason, bucket.url in problem.text) == ("storage_away", True)


def test_a_disk_of_this_host_that_is_full_is_called_so(bucket: Bucket) -> None:
    bucket.save(5)
    launch = bucket.launch(storage_worked=True)
    (place := Path(launch.directory) / "fetched" / "train" / "step-000000000005-1").mkdir(parents=True)
    (place / "state").symlink_to("/dev/full")
    problem = refused(launch)
    assert problem.reason == "storage_away"
    assert "the checkpoint of step 5" in problem.text
    assert "No space left on device. Make room there" in problem.text
    assert bucket.url not in problem.text


def test_what_is_fetched_beside_the_program_is_chosen_by_its_manifest_and_marked_until_it_is_there(
    bucket: Bucket,
) -> None:
    bucket.save(5, 6)
    bucket.proxy.clear()
    ready = prepare(bucket.launch(storage_worked=True, fetch_beside=True), {})
    chosen = ready.choice.restored
    assert chosen is not None
    assert chosen.fetching is not None
    assert (chosen.step, ready.env["WHISTLE_RESTORE"]) == (6, chosen.path)
    assert not [path for _, path in bucket.proxy.requests if "/parts/" in path]
    assert mark_of(Path(chosen.path)).exists()
    assert chosen.fetching.run() is None
    assert mark_of(Path(chosen.path)).exists(), "that it is there is said first"
    chosen.fetching.release()
    wait_until_fetched(Path(chosen.path))
    assert (Path(chosen.path) / "state").read_bytes() == b"6" * 1000


def test_damage_that_is_found_beside_the_program_keeps_the_mark(bucket: Bucket) -> None:
    bucket.save(5)
    bucket.damage(b"5" * 1000)
    chosen = prepare(bucket.launch(storage_worked=True, fetch_beside=True), {}).choice.restored
    assert chosen is not None
    assert chosen.fetching is not None
    problem = chosen.fetching.run()
    assert problem is not None
    assert problem.reason == "checkpoint_damaged"
    assert mark_of(Path(chosen.path)).exists(), "nobody takes half of it for the whole"


def test_a_storage_that_goes_beside_the_program_is_waited_for_as_well(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.save(5)
    monkeypatch.setattr(remote.RemoteStorage.__init__, "__kwdefaults__", {"patience": 0.1})
    chosen = prepare(bucket.launch(storage_worked=True, fetch_beside=True), {}).choice.restored
    assert chosen is not None
    assert chosen.fetching is not None
    bucket.proxy.refuse()
    problem = chosen.fetching.run()
    assert problem is not None
    assert problem.reason == "storage_away"


def test_a_storage_that_was_tried_is_told_of_in_words(bucket: Bucket, tmp_path: Path) -> None:
    tried = prepare(bucket.launch(), {}).choice.tried
    assert tried is not None
    assert tried.in_words().startswith(f"Checkpoints can be kept in {bucket.url}: written, read and removed in ")
    assert tried.conditional
    here = prepare(described(tmp_path), {}).choice.tried
    assert here is not None
    assert here.place == str(tmp_path / "checkpoints")


def test_what_another_run_has_saved_is_found_where_that_run_keeps_it(bucket: Bucket, tmp_path: Path) -> None:
    bucket.save(5)
    (found,) = bucket.storage().list("train")
    address = bucket.storage().where(found)
    launch = described(
        tmp_path,
        restore_from=address,
        restore_options=bucket.options,
        inputs=[Input(phase="before", path=address, options=bucket.options)],
    )
    ready = prepare(launch, {})
    assert ready.choice.restored is not None
    assert ready.choice.restored.step == 5
    assert Path(ready.env["WHISTLE_INPUT_BEFORE"], "state").exists()


def test_a_directory_that_is_not_there_any_more_is_not_made_anew(tmp_path: Path) -> None:
    launch = described(tmp_path, storage_worked=True)
    problem = refused(launch)
    assert problem.reason == "storage_away"
    assert "No such file or directory" in problem.text
    assert "Check that its disk is there" in problem.text
    assert not Path(launch.checkpoints).exists()
    Path(launch.checkpoints).mkdir()
    prepare(launch, {})


def test_a_directory_that_can_not_be_made_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    problem = refused(described(tmp_path, checkpoints=str(tmp_path / "file" / "below")))
    assert problem.reason == "storage_unfit"
    assert str(tmp_path / "file") in problem.text


WAITS = """
    import os
    from pathlib import Path
    print("started", flush=True)
    from whistlestop.sdk.fetched import wait_until_fetched
    wait_until_fetched(Path(os.environ["WHISTLE_RESTORE"]))
    print(Path(os.environ["WHISTLE_RESTORE"], "state").read_text()[:3])
"""


def test_a_program_starts_while_its_checkpoint_is_fetched(bucket: Bucket, kit: Kit) -> None:
    bucket.save(5)
    bucket.proxy.add(Rule(Fault.ANSWER, method="GET", path="/parts/"))
    kit.python(WAITS, **bucket.fields(), storage_worked=True, fetch_beside=True)
    until(lambda: kit.peer.texts() == ["started"], "the program")
    bucket.proxy.clear()
    assert kit.ended()["reason"] == "finished"
    assert kit.peer.texts() == ["started", "555"]
    (fetched,) = [event for event in kit.peer.events() if event.kind == "checkpoint_fetched"]
    assert fetched.data["bytes"] == 1000


def test_a_program_whose_checkpoint_is_found_damaged_on_its_way_is_ended(bucket: Bucket, kit: Kit) -> None:
    bucket.save(5)
    bucket.damage(b"5" * 1000)
    kit.python(WAITS, **bucket.fields(), storage_worked=True, fetch_beside=True)
    ended = kit.ended()
    assert (ended["reason"], ended["signal"]) == ("checkpoint_damaged", signal.SIGKILL)
    assert "has changed since it was saved" in ended["evidence"]
    (aside,) = [event.data["path"] for event in kit.peer.events() if event.kind == "checkpoint_set_aside"]
    assert aside == f"{bucket.url}/train/step-000000000005-1"


def test_what_was_found_damaged_is_not_built_on(bucket: Bucket, kit: Kit) -> None:
    bucket.save(5, 6)
    bucket.damage(b"6" * 1000)
    code = """
        import os
        from pathlib import Path
        from whistlestop.testing.slots import lay
        slot = Path(os.environ["WHISTLE_STAGE"], "slot-0")
        lay(slot, 7, attempt=2, id=os.environ["WHISTLE_ATTEMPT"], files={"state": b"6" * 1000})
    """
    kit.python(code, **bucket.fields(), storage_worked=True)
    assert kit.ended()["saved_step"] == 7
    found, aside = bucket.storage().newest("train")
    assert found is not None
    assert (found.step, aside) == (7, [])


def test_gpus_are_those_that_the_pool_gives_to_the_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.exists", lambda path: path == "/proc/driver/nvidia/gpus")
    given = [environment(described(tmp_path, slots=[0, 1], devices=each), {}, restore=None) for each in (None, [6, 3])]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in given] == ["0,1", "6,3"]
    assert {each["WHISTLE_SLOTS"] for each in given} == {"0,1"}
