"""Ray's agent on a node, without Ray: what it starts, what it says of it, and which GPUs it gives."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from whistlestop.engines.ray import agent as agent_module
from whistlestop.engines.ray.agent import ALL, Agent, choose
from whistlestop.testing.wait import until

# In place of boot.py: says what it was given, and lives.
BOOT = """
import json, os, pathlib, time
ticket = json.loads(os.environ["WHISTLE_TICKET"])
said = pathlib.Path(ticket["said"])
said.with_suffix(".new").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "-"))
said.with_suffix(".new").rename(said)
time.sleep(1000)
"""


class Node:
    """Where agents come and go."""

    def __init__(self, root: Path) -> None:
        self.root, self.agent, self.seats = root, Agent(str(root)), list[str]()

    def start(self, seat: str, devices: str | None, spare: tuple[str, ...] = ()) -> list[str]:
        self.seats.append(seat)
        ticket = {"said": str(self.root / f"{seat}.said")}
        return self.agent.start(seat, 0, sys.executable, BOOT, ticket, devices, spare)[0]

    def gpus(self, seat: str) -> str:
        said = self.root / f"{seat}.said"
        until(said.exists, what=f"{seat} to say what it got")
        return said.read_text()

    def restart(self) -> None:
        """A new raylet, and a new agent with it: what lives on the node lives on."""
        self.agent = Agent(str(self.root))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(agent_module, "ALONE", 1e9)  # it ends its process when nobody asks it for long
    made = Node(tmp_path)
    yield made
    for seat in made.seats:
        made.agent.act("cancel", seat, sys.executable)


def test_gpus_in_use_are_given_to_nobody_else_after_a_raylet_was_started_again(node: Node) -> None:
    assert node.start("a-1", "0") == []
    assert node.gpus("a-1") == "0"
    node.restart()
    assert node.start("a-2", "0") == ["a-1"], "Ray takes GPU 0 to be free"
    assert node.start("a-3", ALL) == ["a-1"]
    assert node.start("a-2", "0", ("1",)) == []
    assert node.gpus("a-2") == "1", "which Ray takes to be the first one's"
    node.agent.act("cancel", "a-1", sys.executable)
    assert node.start("a-4", "0") == []
    assert node.gpus("a-4") == "0"


def test_all_gpus_of_a_node_are_all_of_them(node: Node) -> None:
    assert node.start("a-1", ALL) == []
    assert node.gpus("a-1") == "-"
    node.restart()
    assert node.start("a-2", "1", ("0",)) == ["a-1"]
    assert node.start("a-3", None) == [], "one that wants none"


def test_a_program_whose_runner_died_keeps_its_gpus_as_long_as_it_lives(node: Node) -> None:
    """Also where no cgroup tells: by the mark."""
    seat = node.root / "attempts" / "a-1"
    assert node.start("a-1", "0") == []
    node.agent.act("cancel", "a-1", sys.executable)
    (seat / "began").write_text(json.dumps({"pid": 1, "start": 1, "group": None}))
    assert node.agent.look()[1]["a-1"] == "dead"
    with subprocess.Popen(["cat"], env={**os.environ, "WHISTLE_ATTEMPT": "a-1"}, stdin=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert node.start("a-2", "0") == ["a-1"]
        program.stdin.close()
    assert node.start("a-2", "0") == [], "nothing of it lives"


def test_what_was_started_is_in_every_look_that_was_begun_after_it(node: Node) -> None:
    before, nothing = node.agent.look()
    node.seats.append("a-1")
    ticket = {"said": str(node.root / "a-1.said")}
    _, (number, found) = node.agent.start("a-1", 0, sys.executable, BOOT, ticket, None)
    assert number > before
    assert (nothing, found) == ({}, {"a-1": "running"})
    assert node.agent.watch({}, 60) == (number + 1, found)


@pytest.mark.parametrize(
    ("devices", "spare", "held", "given"),
    [
        ("0,1", (), {}, "0,1"),
        ("0,1", (), {"1": "a"}, None),
        ("0,1", ("2",), {"1": "a"}, "0,2"),
        (ALL, ("2",), {"1": "a"}, None),
        ("1", ("0",), {ALL: "a"}, None),
    ],
)
def test_ray_s_own_gpus_come_first(devices: str, spare: tuple[str, ...], held: dict[str, str], given: str) -> None:
    assert choose(devices, spare, held) == given
