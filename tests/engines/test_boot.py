"""What a node does before its runner is there: code is fetched once, whole, and kept while it is used; and what it
makes of its surroundings."""

import contextlib
import fcntl
import hashlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from whistlestop.engines import boot
from whistlestop.testing.wait import until

BUNDLE = b"the run's code" * 1000
NOW = 2_000_000_000.0


def kit() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("whistlestop/__init__.py", "")
    return made.getvalue()


class Server(ThreadingHTTPServer):
    """Answers as ours does; `spoil` are bodies that come first, `refuse` is a refusal's body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self._seats = itertools.count()
        self.told: list[dict[str, Any]] = []
        self.spoil: list[bytes] = []
        self.cut = 0  # answers that end in the middle
        self.refuse: dict[str, str] | None = None
        self.answers = threading.Event()  # it answers once this is set
        self.answers.set()
        self.run, self.bundle, self.kit = "r-1", BUNDLE, kit()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def launch(self) -> dict[str, Any]:
        launch = {"run_id": self.run, "workdir": "", "checkpoints": "", "env": {}, "devices": None, "slots": [0]}
        digests = [hashlib.sha256(each).hexdigest() for each in (self.bundle, self.kit)]
        return {
            "launch": launch,
            "secrets": {"A": "b"},
            "seat": f"a-{next(self._seats)}",  # of its own: threads of one process ask at once
            "bundle": digests[0],
            "kit": digests[1],
        }


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        what = self.path.rpartition("/")[2].partition("?")[0]
        self.server.asked.append(what)
        self.server.answers.wait()
        body = {
            "launch": json.dumps(self.server.launch()).encode(),
            "bundle": self.server.bundle,
            "kit": self.server.kit,
        }
        if what == "launch" and self.server.refuse is not None:
            self._answer(409, json.dumps(self.server.refuse).encode())
        elif what != "launch" and self.server.spoil:
            self._answer(200, self.server.spoil.pop())
        elif what != "launch" and self.server.cut:
            self.server.cut -= 1
            self._answer(200, body[what], announced=len(body[what]) + 10)
        else:
            self._answer(200, body[what])

    def do_POST(self) -> None:
        self.server.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(204, b"")

    def _answer(self, code: int, body: bytes, announced: int | None = None) -> None:
        self.close_connection = True
        with contextlib.suppress(ConnectionError):  # who asked has left
            self.send_response(code)
            self.send_header("Content-Length", str(len(body) if announced is None else announced))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(boot, "FIRST_DELAY", 0.01)
    with Server() as started:
        thread = threading.Thread(target=started.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield started
        started.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _let_go(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Here no runner comes that would hold the locks: they are this process's, until the test is over."""
    held: list[int] = []
    bring = boot.bring
    monkeypatch.setattr(boot, "bring", lambda *given: held.append(bring(*given)))
    before = {number: signal.getsignal(number) for number in boot.LEAVING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    for each in held:
        os.close(each)


def ticket(server: Server, root: Path) -> dict[str, Any]:
    return {"server": server.url, "token": "t", "root": str(root)}


def test_code_is_fetched_once_for_all_attempts_on_a_node(server: Server, tmp_path: Path) -> None:
    threads = [threading.Thread(target=boot.prepare, args=(ticket(server, tmp_path), 0)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert sorted(server.asked) == ["bundle", "kit", *["launch"] * 8]
    place, directory, secrets = boot.prepare(ticket(server, tmp_path), 0)
    assert (place / "whistlestop" / "__init__.py").exists()
    assert secrets == {"A": "b"}
    launch = json.loads((directory / "launch.json").read_bytes())
    assert Path(launch["bundle"]).read_bytes() == BUNDLE
    assert launch["forgets"] is True
    assert not list(tmp_path.rglob(".making-*"))


def test_what_comes_damaged_is_fetched_again(server: Server, tmp_path: Path) -> None:
    server.spoil = [b"", b"half of"]
    server.cut = 1
    boot.prepare(ticket(server, tmp_path), 0)
    assert [path.name for path in (tmp_path / "bundles").glob("*.tar")] == [f"{hashlib.sha256(BUNDLE).hexdigest()}.tar"]


def test_what_is_damaged_every_time_is_said_and_leaves_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.spoil = [b"something else"] * 9
    monkeypatch.setenv("WHISTLE_TICKET", json.dumps(ticket(server, tmp_path)))
    with pytest.raises(boot.Damaged):
        boot.main()
    assert server.told == [
        {
            "node": 0,
            "unfit": False,
            "left": False,
            "text": f"Damaged: the kit that came from {server.url} is not what was announced, 3 times",
        }
    ]
    assert [path for path in (tmp_path / "kits").iterdir() if path.suffix != ".lock"] == []


def test_a_refusal_is_told_in_the_server_s_own_words_and_not_tried_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.refuse = {"detail": "it runs in place", "hint": "submit it with its code"}
    monkeypatch.setenv("WHISTLE_TICKET", json.dumps(ticket(server, tmp_path)))
    with pytest.raises(boot.Unfit):
        boot.main()
    assert server.told == [
        {"node": 0, "unfit": True, "left": False, "text": "it runs in place. submit it with its code"}
    ]
    assert server.asked == ["launch"]


@pytest.mark.parametrize("number", boot.LEAVING)
def test_a_node_that_has_to_be_left_before_its_runner_is_there_says_so(
    server: Server, tmp_path: Path, number: signal.Signals
) -> None:
    server.answers.clear()
    env = {**os.environ, "WHISTLE_TICKET": json.dumps(ticket(server, tmp_path))}
    booting = subprocess.Popen([sys.executable, boot.__file__], env=env)
    try:
        until(lambda: server.asked == ["launch"], what="the boot to ask for its part")
        booting.send_signal(number)
        assert booting.wait(30) == 1, "else Slurm would take it for a good end"
    finally:
        server.answers.set()
        booting.kill()
        booting.wait()
    text = f"{number.name} came before its runner was there"
    assert server.told == [{"node": 0, "unfit": False, "left": True, "text": text}]


# Old things.

HOLDER = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from whistlestop.engines import boot
boot.bring(Path(sys.argv[2]), lambda path: path.write_bytes(b"made"))
print("here", flush=True)
sys.stdin.read()
"""


def use(target: Path) -> "subprocess.Popen[bytes]":
    """As a runner does, until its stdin is closed."""
    package = str(Path(boot.__file__).parents[2])
    command = [sys.executable, "-c", HOLDER, package, str(target)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline()
    return holder


def old(path: Path, seconds: float) -> None:
    os.utime(path, (NOW - seconds, NOW - seconds))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("kits", "bundles", "attempts", "runs"):
        (tmp_path / name).mkdir()
    return tmp_path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_code_that_nobody_has_used_for_days_goes_and_what_is_in_use_never(root: Path) -> None:
    used, unused, fresh = (root / "bundles" / f"{name}.tar" for name in ("used", "unused", "fresh"))
    holder = use(used)
    for each in (unused, fresh):
        use(each).communicate()
    for each in (used, unused):
        old(each, boot.UNUSED + 60)
    old(fresh, 60)
    (root / "kits" / ".making-1").mkdir()
    old(root / "kits" / ".making-1", boot.UNUSED + 60)
    boot.sweep(root, NOW)
    assert names(root / "bundles") == [".fresh.tar.lock", ".used.tar.lock", "fresh.tar", "used.tar"]
    assert names(root / "kits") == []
    holder.communicate()
    boot.sweep(root, NOW)
    assert names(root / "bundles") == [".fresh.tar.lock", "fresh.tar"]
    use(unused).communicate()  # it comes back for who wants it
    assert unused.read_bytes() == b"made"


def attempt(root: Path, name: str, *, done: float | None = None, age: float = 0.0) -> Path:
    directory = root / "attempts" / name
    directory.mkdir()
    (directory / "launch.json").write_text(json.dumps({"run_id": f"r-{name}"}))
    (root / "runs" / f"r-{name}" / "work").mkdir(parents=True)
    if done is not None:
        (directory / "done").write_bytes(b"")
        old(directory / "done", done)
    old(directory, age)
    old(root / "runs" / f"r-{name}", age)
    return directory


def test_attempts_go_an_hour_after_their_end_and_runs_days_after_their_last(root: Path) -> None:
    attempt(root, "just-done", done=60)
    attempt(root, "done", done=boot.HOUR + 60)
    attempt(root, "dead", age=60)
    attempt(root, "long-dead", age=boot.UNTOLD + 60)
    attempt(root, "long-done", done=boot.UNUSED + 60, age=boot.UNUSED + 60)
    alive = attempt(root, "alive", age=boot.UNTOLD + 60)
    with (alive / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old(alive, boot.UNTOLD + 60)
        boot.sweep(root, NOW)
    assert names(root / "attempts") == ["alive", "dead", "just-done"]
    assert names(root / "runs") == ["r-alive", "r-dead", "r-done", "r-just-done"]


def test_a_sweep_is_not_an_error_whatever_it_finds(root: Path) -> None:
    (root / "attempts" / "file").write_bytes(b"")
    old(root / "attempts" / "file", boot.UNTOLD + 60)
    broken = attempt(root, "broken")
    (broken / "launch.json").write_text("{")
    boot.sweep(root, NOW)
    assert names(root / "attempts") == ["broken"]
    boot.sweep(root / "nowhere", NOW)


def test_what_a_prolog_has_changed_is_found_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(boot.os.environ):
        monkeypatch.delenv(name)
    before = {"PATH": "/usr/bin", "HOME": "/home/anna", "PAGES": "one\ntwo", "CHANGED": "old"}
    after = {
        "CHANGED": "new",
        "ADDED": "yes",
        "EMPTY": "",
        "SLURM_PROCID": "1",
        "SRUN_DEBUG": "3",
        "WHISTLE_TICKET": "{}",
        "BASH_FUNC_module%%": "() { :; }",
    }
    monkeypatch.setenv("WHISTLE_BEFORE", "\n".join(f"{name}={value}" for name, value in before.items()))
    for name, value in {**before, **after}.items():
        monkeypatch.setenv(name, value)
    assert boot.found_here() == {"CHANGED": "new", "ADDED": "yes", "EMPTY": ""}


def test_without_a_prolog_only_the_devices_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHISTLE_BEFORE", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    found = boot.found_here()
    assert found["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert set(found) <= set(boot.DEVICES)


def test_memory_that_a_killed_runner_has_left_is_given_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "MEMORY", root / "memory")
    for name in ("dead", "lives", "fresh", "of-others"):
        (root / "memory" / f"whistle-{name}").mkdir(parents=True)
    attempt(root, "dead", age=boot.STAGED + 60)
    attempt(root, "fresh")
    lives = attempt(root, "lives", age=boot.STAGED + 60)
    with (lives / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old(lives, boot.STAGED + 60)
        boot.sweep(root, NOW)
    assert names(root / "memory") == ["whistle-fresh", "whistle-lives", "whistle-of-others"]


def test_a_directory_that_others_write_to_is_made_ours_and_that_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    boot.own(tmp_path / "open")
    boot.own(tmp_path / "new" / "root")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("open", "new/root")] == [0o755, 0o700]
    if os.geteuid():
        pytest.skip("only root may give a directory away")
    os.chown(tmp_path / "open", 65534, 65534)
    with pytest.raises(RuntimeError, match="belongs to another user, or can be replaced by one: name a directory"):
        boot.own(tmp_path / "open")


def test_a_directory_in_one_that_anybody_may_change_is_refused(tmp_path: Path) -> None:
    (tmp_path / "public").mkdir()
    (tmp_path / "public").chmod(0o777)
    with pytest.raises(RuntimeError, match="can be replaced"):
        boot.own(tmp_path / "public" / "root")
    (tmp_path / "public").chmod(0o1777)
    boot.own(tmp_path / "public" / "root")
