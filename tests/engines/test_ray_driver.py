"""Ray's driver as the server has it: what it says when there is no cluster, and that it does not outlive the server."""

import importlib.util
import io
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import whistlestop
from whistlestop.domain.errors import EngineUnreachable
from whistlestop.engines.ray.driver import Driver
from whistlestop.engines.ray.engine import Drivers, RayEngine
from whistlestop.engines.ray.process import DriverProcess
from whistlestop.testing.missing import missing
from whistlestop.testing.wait import until

Start = Callable[..., DriverProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A driver for an address at which nobody listens."""
    (tmp_path / "sdk").mkdir()
    (tmp_path / "sdk" / "whistlestop").symlink_to(Path(whistlestop.__file__).parent)
    made: list[DriverProcess] = []

    def start(*options: str) -> DriverProcess:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        words = ["-m", "whistlestop.engines.ray.driver", address, str(tmp_path / "nodes"), str(tmp_path), "600"]
        made.append(
            DriverProcess([sys.executable, *options, *words], package=tmp_path / "sdk", log=tmp_path / "driver.log")
        )
        return made[-1]

    yield start
    for driver in made:
        driver.close()


def test_an_interpreter_without_ray_is_told_what_it_lacks(start: Start) -> None:
    with pytest.raises(EngineUnreachable, match=r"ray is not installed in .* name another interpreter"):
        start("-S").ask("poll", jobs=["a-1"])


def test_a_head_that_does_not_answer_is_named(start: Start) -> None:
    if importlib.util.find_spec("ray") is None:
        missing("ray is not installed")
    driver = start()
    with pytest.raises(EngineUnreachable, match="nobody answers at"):
        driver.ask("poll", jobs=["a-1"])


def test_a_driver_that_dies_is_started_again_and_ends_with_its_server(start: Start) -> None:
    driver = start("-S")
    for _ in range(2):
        with pytest.raises(EngineUnreachable):
            driver.ask("poll", jobs=["a-1"])
    process = until(lambda: driver._process, what="the next one")
    driver.close()
    assert process.poll() is not None
    with pytest.raises(EngineUnreachable):
        driver.ask("poll", jobs=["a-1"])


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = {"address": "127.0.0.1:1", "directory": "/tmp", "python": "python3", "driver": "/nowhere/python"}
    drivers = Drivers(tmp_path / "ray", tmp_path)
    driver = drivers.of(settings)
    assert drivers.of({**settings, "resource": "GPU"}) is driver
    with pytest.raises(EngineUnreachable, match="/nowhere/python can't be started"):
        RayEngine(settings, driver).poll([])
    drivers.close()


class Reached(Driver):
    """As if its cluster were there; what is done on nodes hangs, as a node does that does not answer."""

    def __init__(self, answers: io.StringIO) -> None:
        super().__init__("127.0.0.1:1", "/nowhere", Path("/nowhere"), 600.0, answers)
        self.hangs, self.over = list[str](), threading.Event()

    def _connect_and_look(self) -> None:
        self._up.set()

    def _do(self, what: str, asked: Mapping[str, Any]) -> Any:
        if what == "poll":
            return {}
        self.hangs.append(asked["job"])
        self.over.wait()
        return None


def test_nodes_that_do_not_answer_keep_nobody_who_asks_for_something_else_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = io.StringIO()
    driver = Reached(said)
    asked = [{"id": number, "do": "salvage", "job": f"a-{number}"} for number in range(40)]
    asked += [{"id": 40, "do": "salvage", "job": "a-0"}, {"id": 41, "do": "poll", "jobs": []}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(each) + "\n" for each in asked)))
    driver.run()
    until(lambda: said.getvalue() == '{"id": 41, "answer": {}}\n', what="the poll to be answered")
    until(lambda: len(driver.hangs) == 40, what="each of them, and none twice")
    driver.over.set()
    until(lambda: len(said.getvalue().splitlines()) == 42, what="everybody's answer")
    assert {json.loads(line)["id"] for line in said.getvalue().splitlines()} == set(range(42))
