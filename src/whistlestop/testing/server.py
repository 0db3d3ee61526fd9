"""A real `whistle up` in its own process, on a free port, in a directory of its own; killed, restarted, stopped."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whistlestop.client import Client
from whistlestop.domain.errors import WhistleError
from whistlestop.domain.states import RUN_ENDED
from whistlestop.testing.spawning import Process, spawn
from whistlestop.testing.wait import until
from whistlestop.wire.api import RunStatus, RunView
from whistlestop.wire.spec_file import spec_to_text


def environment() -> dict[str, str]:
    """What the programs of a test have of ours, and nothing that makes one machine compute otherwise than another."""
    env = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
    return {**env, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"}


class ServerProcess:
    """`same_port`: it comes back where it was, as one does that other machines know by its address."""

    def __init__(self, data: Path, *, slots: int = 2, extra: Sequence[str] = (), same_port: bool = False) -> None:
        self.data, self.slots, self.extra = data, slots, tuple(extra)
        self._same_port, self._port = same_port, 0
        self.process: Process | None = None
        self._clients: list[Client] = []
        self.env: Mapping[str, str] = {**os.environ, "WHISTLE_DATA": str(data), "NO_COLOR": "1"}

    def start(self) -> "ServerProcess":
        assert self.process is None
        (self.data / "server.json").unlink(missing_ok=True)
        self.data.mkdir(parents=True, exist_ok=True)
        words = ["up", "--port", str(self._port), "--data", str(self.data), "--slots", str(self.slots), *self.extra]
        self.process = spawn(words, env=self.env, output=self.data / "server.out")
        until(self._ready, within=60, what="the server to be up")
        if self._same_port:
            self._port = int(self.url.rpartition(":")[2])
        return self

    def _ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended: {self.output()[-3000:]}")
        with contextlib.suppress(FileNotFoundError, ValueError, WhistleError), self.client() as client:
            return bool(client.whoami())
        return False

    @property
    def url(self) -> str:
        return str(json.loads((self.data / "server.json").read_text())["url"])

    @property
    def token(self) -> str:
        return (self.data / "token").read_text().strip()

    def client(self) -> Client:
        """A new one; those that nobody closes are closed with the server."""
        made = Client(self.url, self.token)
        self._clients.append(made)
        return made

    def output(self) -> str:
        return (self.data / "server.out").read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: what a crash is."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)
        self.process = None

    def stop(self) -> int:
        """SIGTERM: what an upgrade is. The exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(60)
        self.process = None
        return code

    def close(self) -> None:
        """Kill what still runs, then stop: nothing is left behind, whatever the test did."""
        try:
            if self.process is None:
                self.start()
            self.end_all()
        finally:
            for client in self._clients:
                client.close()
            if self.process is not None:
                self.process.send_signal(signal.SIGTERM)
                try:
                    self.process.wait(30)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait(30)
                self.process = None

    def clear(self) -> None:
        """As good as new for another test: no run, no open client and nothing said. The rest stays as it is."""
        self.end_all()
        with self.client() as client:
            ended: list[RunStatus] = ["completed", "failed", "killed"]
            client.bulk("delete", status=ended)
            assert not client.runs().runs, "a run outlived its test"
        for each in self._clients:
            each.close()
        self._clients.clear()
        os.truncate(self.data / "server.out", 0)

    def complaints(self) -> list[str]:
        """What the server printed that nobody should see."""
        words = ("Traceback", "Warning:", "ERROR")
        return [line for line in self.output().splitlines() if any(word in line for word in words)]

    def end_all(self) -> None:
        """Kill what still runs, and wait for it."""
        with self.client() as client:
            active: list[RunStatus] = ["queued", "starting", "running", "waiting"]
            client.bulk("kill", status=active)
            until(lambda: not client.runs(status=active).runs, within=60, what="every run to be killed")

    def __enter__(self) -> "ServerProcess":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- shortcuts that tests read well with ------------------------------------------------------------------

    def submit(
        self, *phases: Mapping[str, Any], name: str = "test", directory: Path | None = None, **top: Any
    ) -> RunView:
        """Phases as in a whistle.yaml; `directory` is run in place."""
        spec = {"name": name, **top, "phases": [dict(phase) for phase in phases]}
        with self.client() as client:
            in_place = str(directory) if directory else None
            return client.submit(spec_to_text(spec), in_place=in_place, env=environment())

    def wait(self, run: str, *statuses: str, within: float = 90) -> RunView:
        """Until the run has one of these statuses (default: any ended one)."""
        wanted = set(statuses) or {state.value for state in RUN_ENDED}
        with self.client() as client:

            def reached() -> RunView | None:
                view = client.run(run)
                return view if view.status in wanted else None

            found = until(reached, within=within, what=f"run {run} to be {' or '.join(sorted(wanted))}")
            assert found is not None
            return found

    def logs(self, run: str) -> list[str]:
        with self.client() as client:
            return [line.text for line in client.logs(run, limit=10_000).lines]

    def events(self, run: str) -> list[str]:
        with self.client() as client:
            return [event.kind for event in client.events(run)]
