"""Full disks, floods, garbage and bombs: bounded, in words, and nobody else's trouble."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whistlestop.client import Client
from whistlestop.domain.errors import BundleInvalid, DiskFull, SpecInvalid, TooLarge
from whistlestop.testing.missing import missing
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

FLOOD = int(os.environ.get("FLOOD", "150000000"))  # bytes; a gigabyte under `make soak`


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def task(*command: str) -> dict[str, object]:
    return {"name": "t", "kind": "task", "command": list(command)}


@pytest.fixture
def small_disk(data: Path) -> Iterator[Path]:
    mount = data / "small"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)], capture_output=True)
    if made.returncode != 0:
        missing("a tmpfs can't be mounted here: this takes root")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(path: Path) -> Path:
    filler = path / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (2**20, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


def refuses(server: ServerProcess) -> bool:
    """What is free inside of the database's files may still take a few."""
    try:
        server.submit({"name": "t", "kind": "task", "command": ["true"]}, name="more")
    except DiskFull as full:
        return "nothing was changed" in full.text
    return False


def test_a_full_disk_refuses_in_words_and_the_run_goes_on_and_loses_nothing(small_disk: Path, programs: Path) -> None:
    with ServerProcess(small_disk / "data", slots=1) as server:
        client = server.client()
        phase = {"name": "train", "command": [sys.executable, "train.py"], "checkpoint": {"every": "20 steps"}}
        run = server.submit({**phase, "env": {"STEPS": "300", "PACE": "0.02"}}, directory=programs)
        until(lambda: client.run(run.id).progress.step > 30, what="some steps")
        filler = fill(small_disk)
        until(lambda: refuses(server), what="a submit to be refused")
        before = client.run(run.id).progress.step
        until(lambda: client.run(run.id).progress.step > before + 20, what="training to go on")
        filler.unlink()
        ended = server.wait(run.id)
        assert ended.status == "completed", ended.reason
        points = client.metrics(run.id, ["loss"]).series[0].points
        assert [step for step, _, _ in points] == list(range(300))
        assert client.checkpoints(run.id)[0].step == 300


def test_a_flood_of_log_is_bounded_marked_and_keeps_its_end(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server(slots=2, extra=["--log-limit", "4"])
    client = server.client()
    line = "x" * 99
    flood = server.submit(task("bash", "-c", f"yes {line} | head -c {FLOOD}; echo the very end"), name="flood")
    other = server.submit(task("bash", "-c", "echo calm; echo still calm"), name="other")
    assert server.wait(other.id).status == "completed"
    assert server.wait(flood.id, within=1500 if FLOOD > 500_000_000 else 250).status == "completed"
    page = client.logs(flood.id, tail=20)
    assert any("the very end" in found.text for found in page.lines)
    assert page.dropped > 1_000_000
    kept = sum(path.stat().st_size for path in (server.data / "attempts").rglob("*") if path.is_file())
    assert kept < 32 * 2**20, "the flood is on the disk"


def test_a_line_of_100_mb_is_cut_and_does_not_fill_the_memory(server: ServerProcess, client: Client) -> None:
    run = server.submit(task("bash", "-c", "head -c 100000000 /dev/zero | tr '\\0' y; echo; echo after"))
    assert server.wait(run.id, within=120).status == "completed"
    lines = server.logs(run.id)
    assert "after" in lines
    assert max(map(len, lines)) < 100_000


def test_binary_garbage_on_stdout_is_kept_readable(server: ServerProcess, client: Client) -> None:
    run = server.submit(task("bash", "-c", "head -c 2000000 /dev/urandom; echo; echo after"))
    assert server.wait(run.id).status == "completed"
    assert "after" in [line.text for line in client.logs(run.id, tail=5).lines]


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x]\n" + "".join(f"b{i}: &b{i} [*a, *a, *a]\n" for i in range(500)),
        "[" * 100_000,
        "x: " * 50_000,
        "name: " + "y" * 400_000,
        "name: x\nphases:\n" + "- {name: p, command: c}\n" * 9_000,
        "!!python/object/apply:os.system ['true']",
        "\x00\x01",
        "name: x\nname: y\ncommand: 'true'\n",
    ],
)
def test_a_bomb_in_a_spec_is_refused_quickly_and_in_words(client: Client, text: str) -> None:
    assert not client.check(text).ok
    with pytest.raises(SpecInvalid) as refused:
        client.submit(text)
    assert refused.value.problems


def stored(server: ServerProcess) -> set[str]:
    return {path.name for path in (server.data / "bundles").iterdir()}


def tar_with(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "bad",
    [
        tar_with(member("../outside")),
        tar_with(member("a/../../outside")),
        tar_with(member("link", tarfile.SYMTYPE, "/etc"), member("link/passwd")),
        tar_with(member("hard", tarfile.LNKTYPE, "../../etc/passwd")),
        tar_with(member("device", tarfile.CHRTYPE)),
        b"this is not a tar file" * 100,
        b"",
    ],
)
def test_a_bundle_that_leaves_its_directory_is_refused(
    client: Client, server: ServerProcess, bad: bytes, tmp_path: Path
) -> None:
    before = stored(server)
    (tmp_path / "bad.tar").write_bytes(bad)
    digest = hashlib.sha256(bad).hexdigest()
    with pytest.raises(BundleInvalid):
        client.upload_bundle(digest, tmp_path / "bad.tar")
    assert not client.has_bundle(digest)
    assert stored(server) <= before


def test_a_bundle_whose_bytes_are_not_its_hash_is_refused(client: Client, tmp_path: Path) -> None:
    (tmp_path / "good.tar").write_bytes(tar_with(member("a")))
    with pytest.raises(BundleInvalid, match="do not match"):
        client.upload_bundle("0" * 64, tmp_path / "good.tar")


def test_a_bundle_above_the_limit_is_refused_without_being_stored(
    client: Client, server: ServerProcess, tmp_path: Path
) -> None:
    before = stored(server)
    large = tmp_path / "large.tar"
    with large.open("wb") as file:
        file.truncate(201 * 2**20)
    with pytest.raises(TooLarge, match="200 MiB"):
        client.upload_bundle("0" * 64, large)
    assert stored(server) <= before
