"""`whistle doctor`: how the rehearsal is asked for and told, and the look at this machine. The rehearsal itself is
tested with the runner."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Whistle, own_process

from whistlestop.engines import processes
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until

SCRIPT = """
import random, sys, whistlestop
rng = random.Random(int(sys.argv[1]) if sys.argv[1:] else 0)
weights = {"w": 0.0}
with whistlestop.run() as run:
    run.track(weights=weights, TRACKED)
    for step in run.steps(total=12):
        weights["w"] += rng.random()
        run.log(loss=weights["w"])
"""
GOOD, BAD = SCRIPT.replace("TRACKED", "rng_own=rng"), SCRIPT.replace("TRACKED", "")


def test_a_script_that_resumes_exactly_ends_with_0_and_a_mark_per_part(whistle: Whistle) -> None:
    Path("train.py").write_text(GOOD)
    result = whistle("doctor", "--resume", "train.py", "--steps", "10", "--at", "4")
    assert result.code == 0
    assert result.out.splitlines() == [
        "train.py: 10 steps straight, and paused and resumed at step 4",
        "",
        "✓ weights  same",
        "✓ rng_own  same",
        "✓ loss     same (10 points)",
        "",
        "The resumed run is the same as the uninterrupted one, bit by bit.",
    ]
    assert result.err.startswith("whistle: the straight run: starting\n")
    assert sorted(each.name for each in Path().iterdir()) == ["train.py"]


def test_a_script_that_does_not_ends_with_1_and_names_what_differs(whistle: Whistle) -> None:
    Path("train.py").write_text(BAD)
    result = whistle("doctor", "--resume", "train.py", "--at", "4", "--json")
    assert (result.code, result.err) == (1, "")
    answer = result.json
    assert (answer["same"], answer["steps"], answer["at"], answer["problem"]) == (False, 12, [4], None)
    assert [(each["part"], each["leaf"], each["kind"], each["step"]) for each in answer["differences"]] == [
        ("weights", "w", "differs after the resume", None),
        ("metrics", "loss", "differs after the resume", 4),
    ]
    assert "No random state is tracked" in answer["advice"][0]
    said = whistle("doctor", "--resume", "train.py", "--at", "4")
    assert said.code == 1
    assert said.out.strip() == answer["text"]
    ignored = whistle("doctor", "--resume", "train.py", "--ignore", "weights/*", "--ignore", "metrics/*")
    assert ignored.code == 1
    assert "nothing to compare" in ignored.out


def test_a_script_that_fails_ends_with_1_and_its_last_words(whistle: Whistle) -> None:
    Path("train.py").write_text("raise ValueError('no data here')\n")
    result = whistle("doctor", "--resume", "train.py")
    assert result.code == 1
    assert "ValueError: no data here" in result.out
    assert "no data here" in whistle("doctor", "--resume", "train.py", "--json").json["problem"]


def test_options_of_the_script_and_other_commands_come_after_two_dashes(whistle: Whistle) -> None:
    Path("train.py").write_text(GOOD)
    assert whistle("doctor", "--resume", "train.py", "--", "7").code == 0
    assert whistle("doctor", "--resume", "--steps", "5", "--", sys.executable, "train.py", "7").code == 0
    missing = whistle("doctor", "--resume", "--", "no-such-program-here", "--json")
    assert missing.code == 1
    assert "could not be started" in missing.out


@pytest.mark.parametrize(
    "words",
    [["--resume"], ["train.py"], ["--resume", "none.py"], ["--resume", "a.py", "--steps", "1"]],
)
def test_wrong_usage_ends_with_2(whistle: Whistle, words: list[str]) -> None:
    result = whistle("doctor", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("whistle: ")


def test_an_interruption_behind_the_end_is_refused(whistle: Whistle) -> None:
    Path("train.py").write_text(GOOD)
    result = whistle("doctor", "--resume", "train.py", "--steps", "5", "--at", "5")
    assert result.code == 1
    assert "one of the steps 1 to 4" in result.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_was_started_ends_with_the_doctor(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "train.py").write_text(
        "import os, pathlib, time\n"
        "pathlib.Path('pid.new').write_text(str(os.getpid()))\n"
        "os.rename('pid.new', 'pid')\n"
        "time.sleep(600)\n"
    )
    # A shell may have told its background jobs to ignore SIGINT; the child must not.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        words = ("doctor", "--resume", "train.py")
        doctor = own_process(tmp_path / "none", tmp_path, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        until((tmp_path / "pid").exists, what="the script")
        doctor.send_signal(number)
        said, _ = doctor.communicate(timeout=60)
    finally:
        doctor.kill()
        doctor.wait()
    assert "Traceback" not in said
    assert doctor.returncode == 128 + number
    gone = processes.read(int((tmp_path / "pid").read_text()))
    assert gone is None or not gone.alive


def test_an_impatient_ctrl_c_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd takes its time to end: the second Ctrl-C comes in the middle of it."""
    (tmp_path / "train.py").write_text(
        "import os, pathlib, subprocess, time\n"
        "crowd = [subprocess.Popen(['sleep', '600'], start_new_session=True) for _ in range(40)]\n"
        "pathlib.Path('pids.new').write_text(' '.join(str(each.pid) for each in crowd))\n"
        "os.rename('pids.new', 'pids')\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # what it may leave there goes with the test
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        words = ("doctor", "--resume", "train.py")
        doctor = own_process(tmp_path / "none", tmp_path, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    finally:
        signal.signal(signal.SIGINT, before)
    crowd: list[int] = []
    try:
        until((tmp_path / "pids").exists, what="the script")
        crowd = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        while doctor.poll() is None:
            doctor.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                doctor.wait(0.005)
        said, _ = doctor.communicate(timeout=60)
        left = [pid for pid in crowd if (found := processes.read(pid)) is not None and found.alive]
    finally:
        doctor.kill()
        doctor.wait()
        for pid in crowd:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert left == []
    assert list(tmp_path.glob("whistle-rehearsal-*")) == []
    assert doctor.returncode in (128 + signal.SIGINT, -signal.SIGINT), said


def test_the_look_at_this_machine_needs_no_server(whistle: Whistle) -> None:
    result = whistle("doctor")
    names = [line.split()[1] for line in result.out.splitlines()]
    assert names == ["whistle", "server", "data", "disk", "processes", "frameworks"]
    assert "– server        There is no server at http://127.0.0.1:9." in result.out
    answer = whistle("doctor", "--json")
    assert answer.code == result.code == (0 if answer.json["fit"] else 1)
    assert [each["name"] for each in answer.json["checks"]] == names


def test_a_pool_whose_cluster_can_t_be_reached_is_named_with_what_to_do(served: Whistle, server: ServerProcess) -> None:
    with server.client() as client:
        client.add_pool("cloud", slots=1, ray={"address": "127.0.0.1:9", "driver": "/nowhere/python"})
        try:
            answer = served("doctor", "--json")
            said = served("doctor")
        finally:
            client.remove_pool("cloud")
    checks = {each["name"]: each for each in answer.json["checks"]}
    assert (answer.code, said.code) == (1, 1)
    assert checks["pool cloud"]["fit"] is False
    assert "/nowhere/python can't be started" in checks["pool cloud"]["text"]
    assert "✗ pool cloud    Ray at 127.0.0.1:9 can't be reached." in said.out


def test_the_look_at_this_machine_finds_the_server(served: Whistle) -> None:
    checks = {each["name"]: each for each in served("doctor", "--json").json["checks"]}
    assert checks["server"]["fit"] is True
    assert checks["data"]["fit"] is True
