"""The first thing that runs on a node of a cluster: brings Whistlestop's own code and the run's code there, and becomes
the runner. A script by itself, for the standard library of Python 3.11: on the node there is nothing of ours yet.

    WHISTLE_TICKET=… python boot.py      JSON, see `Ticket` in wire/launch.py; others may read a command line

Code is kept by the hash of its bytes, so that each version is fetched once per node, whoever comes first. Who uses one
holds a shared lock beside it for as long as it lives; what nobody has used for days goes, and so do the directories of
attempts that are over. Secrets come with the launch, from the server, and go to the runner through a pipe: they are in
no file and on no command line.
"""

import fcntl
import hashlib
import http.client
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE = 600.0  # seconds for the server to answer: it may be restarting
FIRST_DELAY, LAST_DELAY = 0.2, 5.0
TIMEOUT = 30.0
NEEDED = ("msgspec", "websockets", "obstore", "numpy", "psutil", "zstandard")  # by the runner
LOOK = 0.02  # seconds between two looks whether another one has brought it
TRIES = 3  # of what came damaged
HOUR, UNUSED = 3600.0, 3 * 86_400.0  # seconds for which the directory of an attempt is kept, and what nobody uses
UNTOLD = 30 * 86_400.0  # and that of one which has not told the server of its end
STAGED, MEMORY = 600.0, Path("/dev/shm")  # seconds, and where, as in attempt_files.py
SWEEP_SECONDS = 2.0  # the next boot goes on with it
LOCK, DONE, LAUNCH = "lock", "done", "launch.json"  # as in attempt_files.py
TOLD = {"grace": "WHISTLE_PREEMPT_GRACE", "ahead": "WHISTLE_PREEMPT_AHEAD"}  # as in runner/preempted.py
DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
NOT_OURS = ("WHISTLE_", "SLURM", "SRUN", "SBATCH", "BASH_FUNC", "SHLVL", "PWD", "OLDPWD", "_")
LEAVING = (signal.SIGTERM, signal.SIGUSR2)  # the capacity goes; as in runner/launching.py
_PIPE = 1 << 20
_REFUSED = 409
_GONE = (401, 403, 404, 410)  # nobody wants this attempt any more


class Refused(Exception):
    """The server does not want it any more, or can't be reached for long."""


class Unfit(Exception):
    """The server says that it can't be run here, and another try would be answered alike: its words."""


class Left(BaseException):
    """The node has to be left, before there is a runner that could."""


class Damaged(Exception):
    """What came is not what was asked for."""


def main() -> int:
    ticket = json.loads(os.environ["WHISTLE_TICKET"])
    node = int(os.environ.get("SLURM_NODEID", ticket.get("node", 0)))
    for number in LEAVING:
        signal.signal(number, _leave)
    try:
        place = prepare(ticket, node)
        signal.pthread_sigmask(signal.SIG_BLOCK, LEAVING)  # from here on they are the runner's, who waits for them
    except Left as error:
        for number in LEAVING:
            signal.signal(number, signal.SIG_IGN)  # it is said once
        tell(ticket, node, str(error), left=True)
        return 1
    except Refused as error:
        print(f"whistlestop: {error}", file=sys.stderr, flush=True)
        return 0
    except Exception as error:
        unfit = isinstance(error, Unfit)
        tell(ticket, node, str(error) if unfit else f"{type(error).__name__}: {error}", unfit=unfit)
        raise
    sweep(Path(ticket["root"]), time.time())
    told = {name: ticket[key] for key, name in TOLD.items() if ticket.get(key)}
    become_runner(*place, told, lock=os.environ.get("WHISTLE_LOCK"))
    return 1  # never


def _leave(number: int, frame: object) -> None:
    raise Left(f"{signal.Signals(number).name} came before its runner was there")


def prepare(ticket: dict[str, Any], node: int) -> tuple[Path, Path, dict[str, str]]:
    """Everything in its place: the directory of our code, that of the attempt, and the secrets."""
    root = Path(ticket["root"])
    own(root)
    for part in ("kits", "bundles", "attempts", "runs"):
        (root / part).mkdir(mode=0o700, parents=True, exist_ok=True)
    # The number is this start's own: another start of the same attempt, should the cluster have taken it twice, is
    # refused, and this one is not when it has to ask again.
    asked = json.loads(fetch(ticket, f"launch?node={node}&start={secrets.token_hex(8)}"))
    kit = root / "kits" / asked["kit"]
    bring(kit, lambda into: unpack(_whole(ticket, "kit", asked["kit"]), into))
    if missing := [name for name in NEEDED if not _is_there(name)]:
        raise RuntimeError(
            f"{sys.executable} on this node lacks {', '.join(missing)}: pip install whistlestop there, or name another "
            "interpreter with `python` in the pool's settings"
        )
    launch, digest = asked["launch"], asked["bundle"]
    if digest is not None:
        bundle = root / "bundles" / f"{digest}.tar"
        bring(bundle, lambda into: _write(into, _whole(ticket, "bundle", digest)))
        launch["bundle"] = str(bundle)
    directory = root / "attempts" / asked["seat"]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    work = root / "runs" / launch["run_id"]
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.utime(work)  # in use
    launch["env"] |= {name: value for name, value in found_here().items() if name not in asked.get("own", ())}
    launch |= {
        "directory": str(directory),
        "workdir": launch["workdir"] or str(work / "work"),
        "checkpoints": launch["checkpoints"] or str(work / "checkpoints"),
        "sdk_path": str(kit),
        "server": f"ws{ticket['server'].removeprefix('http').rstrip('/')}/api/v1/runner",  # as it is reached from here
        "server_file": None,
        "forgets": ticket.get("forgets", True),
    }
    # What only the cluster knows: as what the node is known there, and who says whether it still counts on it.
    launch |= {name: ticket[name] for name in ("host", "address", "witness") if ticket.get(name)}
    if launch["devices"] is None:  # a slot's number is no device of this node
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        named = given.split(",") if given else []
        launch["devices"] = [int(each) for each in named if each.isdecimal()] or list(range(len(launch["slots"])))
    _write(directory / LAUNCH, json.dumps(launch).encode())
    return kit, directory, asked["secrets"]


def own(root: Path) -> None:
    """It is ours, and nobody else writes there: code that lies there is run. It may be in a directory for everybody,
    but what is in one of these is its owner's to take away, and to put something else there."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = root.lstat()
    others = [root] if found.st_uid != os.geteuid() else []
    for place in (root, *root.parents):
        above = place.parent.stat().st_mode
        if above & 0o002 and (not above & 0o1000 or place.lstat().st_uid not in (0, os.geteuid())):
            others.append(place)
    if others:
        raise RuntimeError(
            f"{others[-1]} on this node belongs to another user, or can be replaced by one: name a directory of your "
            "own with `directory` in the pool's settings"
        )
    if found.st_mode & 0o022:
        root.chmod(found.st_mode & 0o755)


def found_here() -> dict[str, str]:
    """What the program gets of our own environment: what the pool's prolog has changed (WHISTLE_BEFORE is how it was
    before), and which devices are its own."""
    found = {name: os.environ[name] for name in DEVICES if name in os.environ}
    if "WHISTLE_BEFORE" in os.environ:
        before = set(os.environ["WHISTLE_BEFORE"].splitlines())
        for name, value in os.environ.items():
            first = value.splitlines()[0] if value else ""
            if not name.startswith(NOT_OURS) and f"{name}={first}" not in before:
                found[name] = value
    return found


def become_runner(
    kit: Path, directory: Path, secrets: dict[str, str], told: dict[str, float], *, lock: str | None = None
) -> None:
    """In this very process: whoever started us waits for the runner, and ends it by our number. `lock`: the file
    descriptor of the attempt's, where we were given it."""
    read_end, write_end = os.pipe()
    with suppress(OSError):  # more than this user may have
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE)
    os.write(write_end, json.dumps(secrets).encode())
    os.close(write_end)
    os.dup2(read_end, 0)
    log = os.open(directory / "runner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    env = {name: value for name, value in os.environ.items() if not name.startswith("WHISTLE_")}
    env |= {"PYTHONPATH": str(kit), **{name: str(value) for name, value in told.items()}}
    words = [sys.executable, "-s", "-P", "-m", "whistlestop.runner", str(directory)]
    os.execve(sys.executable, words + ([f"--lock={lock}"] if lock else []), env)


def fetch(ticket: dict[str, Any], what: str) -> bytes:
    """Tried until the server answers; Refused if it does not want us."""
    request = urllib.request.Request(
        f"{ticket['server'].rstrip('/')}/api/v1/runner/{what}", headers={"Authorization": f"Bearer {ticket['token']}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end, delay = time.monotonic() + PATIENCE, FIRST_DELAY
    while True:
        try:
            with opener.open(request, timeout=TIMEOUT) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code in _GONE:
                raise Refused(f"the server does not want this attempt any more ({error.code})") from error
            if error.code == _REFUSED:
                raise Unfit(_words(error)) from error
            trouble: Exception = error
        except (OSError, http.client.HTTPException) as error:  # the second: it ended in the middle
            trouble = error
        if time.monotonic() > end:
            raise Refused(f"{ticket['server']} has not answered for {PATIENCE:.0f} s: {trouble}")
        time.sleep(delay)
        delay = min(LAST_DELAY, delay * 2)


def tell(ticket: dict[str, Any], node: int, text: str, *, unfit: bool = False, left: bool = False) -> None:
    """So that people see it where they look, and not in a file on a node."""
    body = json.dumps({"node": node, "text": text[:2000], "unfit": unfit, "left": left}).encode()
    request = urllib.request.Request(
        f"{ticket['server'].rstrip('/')}/api/v1/runner/trouble",
        data=body,
        headers={"Authorization": f"Bearer {ticket['token']}", "Content-Type": "application/json"},
    )
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=TIMEOUT).close()
    except OSError:
        pass


def bring(target: Path, make: Any) -> int:
    """`make(path)` makes it; it is there whole or not at all, and one of those who want it does the work. Returns the
    descriptor of a lock that keeps it there: it goes on to the runner, and is held until that is gone."""
    lock = _lock_of(target)
    while True:
        fd = _hold(lock, fcntl.LOCK_SH)
        if target.exists():
            os.utime(target)
            os.set_inheritable(fd, True)
            return fd
        os.close(fd)
        try:
            fd = _hold(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # never waited for: who has made it holds it for long
        except BlockingIOError:
            time.sleep(LOOK)
            continue
        try:
            if not target.exists():
                _make(target, make)
        finally:
            os.close(fd)


def _make(target: Path, make: Any) -> None:
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=target.parent))
    try:
        make(making / "it")
        os.rename(making / "it", target)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _lock_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")


def _hold(path: Path, how: int) -> int:
    """A lock on the file that has this name now: a sweep may have taken it away. BlockingIOError if others hold it and
    `how` does not wait."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, how)
            if path.exists() and os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


# What is left of others.


def sweep(root: Path, now: float) -> None:
    """Attempts that are over, code and runs that nobody has used for days. Never what is in use, and never an error."""
    end = time.monotonic() + SWEEP_SECONDS
    for act in (_sweep_attempts, _sweep_runs, _sweep_code):
        try:
            for path in act(root, now):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
                if time.monotonic() > end:
                    return
        except OSError as error:
            print(f"whistlestop: sweeping {root}: {error}", file=sys.stderr, flush=True)


def _sweep_attempts(root: Path, now: float) -> Iterator[Path]:
    for path in (root / "attempts").iterdir():
        done = path / DONE
        if (_age(done, now) > HOUR if done.exists() else _age(path, now) > UNTOLD) and not _is_held(path / LOCK):
            yield path
        staged = MEMORY / f"whistle-{path.name}"
        if staged.exists() and _age(path, now) > STAGED and not _is_held(path / LOCK):
            yield staged  # its runner was killed: a checkpoint that nobody will bring to safety


def _sweep_runs(root: Path, now: float) -> Iterator[Path]:
    """Of a run whose attempts on this node are over for days."""
    used = set()
    for path in (root / "attempts").glob(f"*/{LAUNCH}"):
        try:
            used.add(json.loads(path.read_bytes())["run_id"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    for path in (root / "runs").iterdir():
        if path.name not in used and _age(path, now) > UNUSED:
            yield path


def _sweep_code(root: Path, now: float) -> Iterator[Path]:
    for path in [*(root / "kits").iterdir(), *(root / "bundles").iterdir()]:
        if path.name.endswith(".lock") and path.name.startswith("."):
            if not path.with_name(path.name[1 : -len(".lock")]).exists():
                yield from _unless_used(path, path, now)
        elif path.name.startswith("."):
            if _age(path, now) > UNUSED:  # half made, by one that died
                yield path
        else:
            yield from _unless_used(path, _lock_of(path), now)


def _unless_used(path: Path, lock: Path, now: float) -> Iterator[Path]:
    """Away under the lock: who comes next finds nothing, and fetches it."""
    if _age(path, now) <= UNUSED:
        return
    try:
        fd = _hold(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    try:
        if _age(path, now) > UNUSED:
            gone = path.with_name(f".gone-{os.getpid()}-{path.name.lstrip('.')}")
            os.rename(path, gone)
            lock.unlink(missing_ok=True)
            yield gone
    finally:
        os.close(fd)


def _is_held(lock: Path) -> bool:
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0


# How it is done.


def _whole(ticket: dict[str, Any], what: str, digest: str) -> bytes:
    """With the hash that it should have."""
    for _ in range(TRIES):
        data = fetch(ticket, what)
        if hashlib.sha256(data).hexdigest() == digest:
            return data
    raise Damaged(f"the {what} that came from {ticket['server']} is not what was announced, {TRIES} times")


def unpack(data: bytes, into: Path) -> None:
    into.mkdir()
    with tempfile.TemporaryFile() as file:
        file.write(data)
        with zipfile.ZipFile(file) as kit:
            kit.extractall(into)


def _words(error: urllib.error.HTTPError) -> str:
    """Of a refusal: RFC 9457."""
    try:
        said = json.loads(error.read())
        return ". ".join(
            filter(None, (str(said.get("detail") or said.get("title") or ""), str(said.get("hint") or "")))
        )
    except (OSError, ValueError, AttributeError, http.client.HTTPException):
        return f"the server refuses it ({error.code})"


def _write(path: Path, data: bytes) -> None:
    making = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
    os.replace(making, path)


def _is_there(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    sys.exit(main())
