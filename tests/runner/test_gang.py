"""What each process of a training on several nodes is told, and how the ranks of a node are started."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from whistlestop.runner import gang, starting
from whistlestop.sdk.world import World, find_world
from whistlestop.wire.launch import Launch

MET = [gang.Met("10.0.0.1", [101, 102, 103, 104]), gang.Met("10.0.0.2", [201, 202, 203, 204])]


def launch(**values: Any) -> Launch:
    return Launch(
        **{
            "attempt_id": "a-1", "attempt_number": 1, "run_id": "r-1", "run_name": "x", "phase": "train",
            "kind": "train", "command": ["train"], "env": {}, "directory": "/d", "workdir": "/w", "checkpoints": "/c",
            "slots": [0, 1], "ladder": {}, "server": "ws://x", "token": "t", "nodes": 2, "node": 1, "ranks": 2,
            **values,
        }
    )  # fmt: skip


def test_every_rank_knows_its_place_as_every_framework_asks_for_it() -> None:
    env = gang.environment(launch(), MET)
    first, second = json.loads(env[gang.OWN])
    assert find_world({**env, **first}) == World(2, 4, 0, 2, 1)
    assert find_world({**env, **second}) == World(3, 4, 1, 2, 1)
    assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["WHISTLE_AGREE"]) == ("10.0.0.1", "101", "10.0.0.1:102")
    workers = ["10.0.0.1:103", "10.0.0.1:104", "10.0.0.2:203", "10.0.0.2:204"]
    assert json.loads(second["TF_CONFIG"]) == {
        "cluster": {"worker": workers},
        "task": {"type": "worker", "index": 3},
    }
    assert (first["JAX_COORDINATOR_ADDRESS"], first["JAX_PROCESS_ID"]) == ("10.0.0.1:101", "2")


def test_the_key_is_the_same_on_every_node_and_tells_nothing_of_the_token() -> None:
    keys = {gang.environment(launch(node=node), MET)[gang.KEY] for node in (0, 1)}
    other = gang.environment(launch(token="u"), MET)[gang.KEY]
    assert len(keys) == 1
    assert other not in keys


def test_ports_are_held_until_the_program_starts() -> None:
    ports = gang.ports_of(launch())
    assert ports is not None
    assert len(set(ports.numbers)) == 4
    ports.release()
    assert gang.ports_of(launch(nodes=1, ranks=0)) is None


def start(tmp_path: Path, code: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    own = json.dumps([{"RANK": str(rank)} for rank in range(ranks)])
    command = [sys.executable, "-S", "-E", starting.__file__, sys.executable, "-c", code]
    env = {**os.environ, "WHISTLE_RANK_ENV": own, "WHISTLE_CHANNEL": str(tmp_path)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("pass", 0),
        ("import sys; sys.exit(75)", 75),
        ("import os, sys; sys.exit(3 if os.environ['RANK'] == '1' else 0)", 3),
        ("import os, sys; sys.exit(75 if os.environ['RANK'] == '1' else 4)", 4),
        ("import os; os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else None", -9),
        ("import os; os.kill(os.getpid(), 11) if os.environ['RANK'] == '0' else None", -11),
    ],
)
def test_ranks_end_as_the_first_that_fails(tmp_path: Path, code: str, ends: int) -> None:
    assert start(tmp_path, code).returncode == ends


def test_a_rank_that_waits_for_a_dead_one_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "starting.py"
    script.write_text(Path(starting.__file__).read_text().replace("PATIENCE = 20.0", "PATIENCE = 0.1"))
    monkeypatch.setattr(starting, "__file__", str(script))
    code = "import os, sys, time; sys.exit(5) if os.environ['RANK'] == '0' else time.sleep(600)"
    assert start(tmp_path, code).returncode == 5


def test_a_command_that_does_not_exist_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-E", starting.__file__, "/no/such/program"]
    env = {**os.environ, "WHISTLE_RANK_ENV": "[{}]", "WHISTLE_CHANNEL": str(tmp_path)}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 127
    assert "/no/such/program can't be started" in ended.stderr
