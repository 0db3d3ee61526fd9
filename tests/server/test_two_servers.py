"""Two servers beside each other: neither touches what is the other's."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2

from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until
from whistlestop.testing.watchers import alive_with


def test_a_run_survives_another_server_on_its_own_servers_port(data: Path, programs: Path) -> None:
    first = ServerProcess(data / "first", slots=1).start()
    try:
        phase = {"name": "train", "command": [sys.executable, "train.py"], "env": {"STEPS": "100000"}}
        run = first.submit(phase, directory=programs)
        until(lambda: first.client().run(run.id).progress.step > 5, what="some steps")
        port = first.url.rpartition(":")[2]
        first.stop()
        with ServerProcess(data / "second", slots=1, extra=["--port", port]) as second:
            assert second.url.endswith(f":{port}")
            until(lambda: "not ours" in second.output(), what="the runner to come by")
            assert alive_with(f"WHISTLE_RUN={run.id}"), "a foreign server ended the run"
            assert second.client().runs().runs == []
        first.start()
        until(lambda: first.client().run(run.id).phases[0].attempts[0].reachable, what="the runner to be back")
        before = first.client().run(run.id).progress.step
        until(lambda: first.client().run(run.id).progress.step > before, what="training to go on")
        first.client().stop(run.id)
        ended = first.wait(run.id)
        assert ended.status == "completed"
        assert len(ended.phases[0].attempts) == 1
        points = first.client().metrics(run.id, ["loss"]).series[0].points
        assert [step for step, _, _ in points] == list(range(ended.phases[0].attempts[0].last_step or 0))
    finally:
        first.close()


def test_a_database_is_refused_beside_another_data_directory(
    start_server: Callable[..., ServerProcess], data: Path
) -> None:
    url = f"sqlite:///{data / 'shared.db'}"
    server = start_server(slots=1, extra=["--db", url])
    command = [sys.executable, "-m", "whistlestop", "up", "--port", "0", "--data", str(data / "other"), "--db", url]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert second.returncode == 1
    assert "belongs to another data directory" in second.stderr
    assert server.client().whoami()


def test_an_address_that_is_no_database_is_refused_in_words(data: Path) -> None:
    for url, words in (
        ("garbage", "not one of a SQLite or PostgreSQL database"),
        ("postgresql://nobody:secret-word@127.0.0.1:1/x", "can't be reached"),
    ):
        command = [sys.executable, "-m", "whistlestop", "up", "--port", "0", "--data", str(data / "d"), "--db", url]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert refused.returncode == 1
        assert words in refused.stderr
        assert "secret-word" not in refused.stderr


def test_what_was_set_for_a_pool_is_kept_over_a_restart(data: Path) -> None:
    server = ServerProcess(data, slots=2).start()
    try:
        server.client().set_pool("local", slots=5, price=2.5)
        server.stop()
        command = [sys.executable, "-m", "whistlestop", "up", "--port", "0", "--data", str(data)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            until(lambda: (data / "server.json").exists(), what="the server")
            pool = server.client().pools()[0]
            process.terminate()
        assert (pool.slots, pool.price) == (5, 2.5)
    finally:
        server.close()


def test_nobody_without_a_token_fills_the_servers_memory(server: ServerProcess) -> None:
    def endless() -> object:
        for _ in range(64):
            yield b"x" * 2**20

    url = f"{server.url}/api/v1/runs"
    refused = httpx2.post(url, content=b"x" * 2**22)
    assert refused.status_code == 401
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    try:
        large = httpx2.post(url, content=endless(), headers=headers)  # type: ignore[arg-type]
        assert large.status_code == 413
    except httpx2.TransportError:
        pass  # closed in the middle of it: as good
    for content in (b"x" * (5 * 2**20), iter([b"x" * 2**20] * 4 + [b"x"])):  # the second does not say how long it is
        said = httpx2.post(url, content=content, headers=headers)
        assert (said.status_code, said.json()["code"]) == (413, "too_large")
    resident = Path(f"/proc/{server.process.pid}/status").read_text() if server.process else ""
    kilobytes = int(resident.split("VmHWM:")[1].split()[0])
    assert kilobytes < 400_000
